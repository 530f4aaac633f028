"""Whether the user may describe the cluster: without that right brokers leave out topics and
groups, and do not say so.

In Kafka: `DescribeClusterResult.authorizedOperations` (KIP-430).
"""

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

__all__ = ["may_describe_cluster"]


def may_describe_cluster(connection: AdminConnection) -> bool | None:
    """None where brokers do not say it, as those before Kafka 2.8. Raises `ConnectError`."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    try:
        answer = connection.send(request, DescribeClusterResponse)
    except KafkaError:
        return None
    operations = answer.cluster_authorized_operations
    return None if answer.error_code or operations < 0 else bool(operations >> AclOperation.DESCRIBE & 1)
