"""Quotas of Apache's brokers, set over our own wire codec."""

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.wire.kafka.messages import alter_client_quotas

__all__ = ["set_quota"]


def set_quota(bootstrap: str, client_id: str, bytes_per_s: int) -> None:
    """A consumer quota for a client id; a broker of Apache's takes it up within a moment."""
    operation = alter_client_quotas.OpData(key="consumer_byte_rate", value=float(bytes_per_s))
    entity = alter_client_quotas.AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=client_id)
    entry = alter_client_quotas.AlterClientQuotasRequestEntryData(entity=[entity], ops=[operation])
    with AdminConnection(bootstrap) as connection:
        request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry])
        answer = connection.send_to_controller(
            request,
            alter_client_quotas.AlterClientQuotasResponse,
            lambda response: [each.error_code for each in response.entries],
        )
        assert [each.error_code for each in answer.entries] == [0]
