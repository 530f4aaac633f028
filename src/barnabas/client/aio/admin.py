"""`AsyncAdmin`: the methods of `Admin` under their names, to be awaited.

Calls run in one thread, in order.

In Kafka: `KafkaAdminClient`, whose methods return futures.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from barnabas.client.admin.admin import Admin
from barnabas.client.aio.methods import awaited
from barnabas.client.aio.thread import InOneThread

__all__ = ["AsyncAdmin"]


class AsyncAdmin:
    """Manages a cluster. See `barnabas.client.admin.admin.Admin`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.blocking = Admin(properties)
        self.thread = InOneThread("admin")

    describe_cluster = awaited(Admin.describe_cluster)
    list_topics = awaited(Admin.list_topics)
    describe_topics = awaited(Admin.describe_topics)
    create_topic = awaited(Admin.create_topic)
    delete_topics = awaited(Admin.delete_topics)
    create_partitions = awaited(Admin.create_partitions)
    topic_configs = awaited(Admin.topic_configs)
    broker_configs = awaited(Admin.broker_configs)
    alter_topic_configs = awaited(Admin.alter_topic_configs)
    alter_broker_configs = awaited(Admin.alter_broker_configs)
    list_groups = awaited(Admin.list_groups)
    describe_group = awaited(Admin.describe_group)
    group_offsets = awaited(Admin.group_offsets)
    group_lag = awaited(Admin.group_lag)
    alter_group_offsets = awaited(Admin.alter_group_offsets)
    delete_group = awaited(Admin.delete_group)
    delete_group_offsets = awaited(Admin.delete_group_offsets)
    remove_group_members = awaited(Admin.remove_group_members)
    list_offsets = awaited(Admin.list_offsets)
    delete_records = awaited(Admin.delete_records)
    elect_leaders = awaited(Admin.elect_leaders)
    list_reassignments = awaited(Admin.list_reassignments)
    reassign = awaited(Admin.reassign)
    describe_log_dirs = awaited(Admin.describe_log_dirs)
    move_replicas = awaited(Admin.move_replicas)
    describe_producers = awaited(Admin.describe_producers)
    list_transactions = awaited(Admin.list_transactions)
    describe_transactions = awaited(Admin.describe_transactions)
    abort_transaction = awaited(Admin.abort_transaction)
    fence_producers = awaited(Admin.fence_producers)
    force_terminate_transaction = awaited(Admin.force_terminate_transaction)
    describe_features = awaited(Admin.describe_features)
    update_features = awaited(Admin.update_features)
    list_acls = awaited(Admin.list_acls)
    create_acls = awaited(Admin.create_acls)
    delete_acls = awaited(Admin.delete_acls)
    client_quotas = awaited(Admin.client_quotas)
    alter_client_quotas = awaited(Admin.alter_client_quotas)
    scram_users = awaited(Admin.scram_users)
    alter_scram_users = awaited(Admin.alter_scram_users)

    async def close(self) -> None:
        """Close all connections."""
        await self.thread.run(self.blocking.close)
        self.thread.end()

    async def __aenter__(self) -> Self:
        self.blocking.connection.check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
