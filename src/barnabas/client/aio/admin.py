"""`AsyncAdmin`: the methods of `Admin` under their names, to be awaited. Calls run in one thread, in order.

In Kafka: `KafkaAdminClient`, whose methods return futures.
"""

import functools
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from barnabas.client.admin.admin import Admin
from barnabas.client.aio.thread import InOneThread

__all__ = ["AsyncAdmin"]

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Admin, P], T],
) -> Callable[Concatenate["AsyncAdmin", P], Coroutine[Any, Any, T]]:
    """The same method, run in the client's thread."""

    @functools.wraps(method)
    async def call(self: "AsyncAdmin", /, *arguments: P.args, **named: P.kwargs) -> T:
        return await self.thread.run(lambda: method(self.admin, *arguments, **named))

    return call


class AsyncAdmin:
    """Manages a cluster. See `barnabas.client.admin.admin.Admin`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.admin = Admin(properties)
        self.thread = InOneThread("admin")

    describe_cluster = _awaited(Admin.describe_cluster)
    list_topics = _awaited(Admin.list_topics)
    describe_topics = _awaited(Admin.describe_topics)
    create_topic = _awaited(Admin.create_topic)
    delete_topics = _awaited(Admin.delete_topics)
    create_partitions = _awaited(Admin.create_partitions)
    topic_configs = _awaited(Admin.topic_configs)
    broker_configs = _awaited(Admin.broker_configs)
    alter_topic_configs = _awaited(Admin.alter_topic_configs)
    alter_broker_configs = _awaited(Admin.alter_broker_configs)
    list_groups = _awaited(Admin.list_groups)
    describe_group = _awaited(Admin.describe_group)
    group_offsets = _awaited(Admin.group_offsets)
    group_lag = _awaited(Admin.group_lag)
    alter_group_offsets = _awaited(Admin.alter_group_offsets)
    delete_group = _awaited(Admin.delete_group)
    delete_group_offsets = _awaited(Admin.delete_group_offsets)
    remove_group_members = _awaited(Admin.remove_group_members)
    list_offsets = _awaited(Admin.list_offsets)
    delete_records = _awaited(Admin.delete_records)
    elect_leaders = _awaited(Admin.elect_leaders)
    list_reassignments = _awaited(Admin.list_reassignments)
    reassign = _awaited(Admin.reassign)
    describe_log_dirs = _awaited(Admin.describe_log_dirs)
    move_replicas = _awaited(Admin.move_replicas)
    describe_producers = _awaited(Admin.describe_producers)
    list_acls = _awaited(Admin.list_acls)
    create_acls = _awaited(Admin.create_acls)
    delete_acls = _awaited(Admin.delete_acls)
    client_quotas = _awaited(Admin.client_quotas)
    alter_client_quotas = _awaited(Admin.alter_client_quotas)
    scram_users = _awaited(Admin.scram_users)
    alter_scram_users = _awaited(Admin.alter_scram_users)

    async def close(self) -> None:
        """Close all connections."""
        await self.thread.run(self.admin.close)
        self.thread.end()

    async def __aenter__(self) -> Self:
        self.admin.connection.check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
