"""The methods of `Admin`, each with something to do: the rights that each needs are recorded."""

import inspect
from collections.abc import Callable, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin
from barnabas.client.admin import Acl, AclFilter
from barnabas.client.admin.log_dirs import Replica
from barnabas.client.admin.scram_users import ScramPassword
from barnabas.testing import Cluster
from support.command_rights import Call, existing_topic, group_with_offset, no_topic

__all__ = ["CALLS", "methods_in_table", "public_methods"]

PARTITION = TopicPartition("orders", 0)
_NOT_IN_TABLE = frozenset(
    ("close", "client_quotas", "alter_client_quotas", "abort_transaction", "remove_group_members")
)
"""Not of a cluster, not of these brokers, or only where a transaction hangs or members live."""
_Prepare = Callable[[Cluster, Admin], object]


def _call(
    method: str, *arguments: object, prepare: _Prepare | None = None, varies: bool = False, shown: str = ""
) -> Call:
    def call(properties: Mapping[str, str]) -> object:
        with Admin(properties) as admin:
            return getattr(admin, method)(*arguments)

    return Call(
        shown or f"{method}({', '.join(map(repr, arguments))})", call, prepare, (lambda _: None) if varies else str
    )


def _ungrown(cluster: Cluster, admin: Admin) -> None:
    no_topic("grown")(cluster, admin)
    admin.create_topic("grown", partitions=1, replication_factor=1)


def _log_dir(cluster: Cluster) -> str:
    return str(cluster.data_dir / "kafka-logs-0")


def _moved() -> Call:
    """Moved to where it is; the folder is the cluster's own."""

    folders = []

    def prepare(cluster: Cluster, _: Admin) -> None:
        folders[:] = [_log_dir(cluster)]

    def call(properties: Mapping[str, str]) -> object:
        with Admin(properties) as admin:
            return admin.move_replicas({Replica(0, "orders", 0): folders[0]})

    return Call("move_replicas({...})", call, prepare)


CALLS = (
    _call("describe_cluster", varies=True),
    _call("list_topics"),
    _call("describe_topics", ["orders"]),
    _call("create_topic", "new", prepare=no_topic("new")),
    _call("delete_topics", ["gone"], prepare=existing_topic("gone")),
    _call("create_partitions", "grown", 2, prepare=_ungrown),
    _call("topic_configs", "orders"),
    _call("broker_configs", 0, varies=True),
    _call("alter_topic_configs", "orders", {"retention.ms": "1000000"}),
    _call("alter_broker_configs", 0, {"log.cleaner.threads": "1"}),
    _call("list_groups", prepare=group_with_offset("cooks")),
    _call("describe_group", "cooks", prepare=group_with_offset("cooks")),
    _call("group_offsets", "cooks", prepare=group_with_offset("cooks")),
    _call("group_lag", "cooks", prepare=group_with_offset("cooks")),
    _call("alter_group_offsets", "cooks", {PARTITION: 2}, shown='alter_group_offsets("cooks", {orders-0: 2})'),
    _call("delete_group", "cooks", prepare=group_with_offset("cooks")),
    _call(
        *("delete_group_offsets", "cooks", [PARTITION]),
        prepare=group_with_offset("cooks"),
        shown='delete_group_offsets("cooks", [orders-0])',
    ),
    _call("list_offsets", {PARTITION: -1}, shown="list_offsets({orders-0: -1})"),
    _call("delete_records", {PARTITION: 0}, shown="delete_records({orders-0: 0})"),
    _call("elect_leaders", [PARTITION], shown="elect_leaders([orders-0])", varies=True),
    _call("list_reassignments"),
    _call("reassign", {PARTITION: [0]}, shown="reassign({orders-0: [0]})"),
    _call("describe_log_dirs", 0, varies=True),
    _moved(),
    _call("describe_producers", "orders", 0),
    _call("list_transactions", varies=True),
    _call("describe_transactions", ["till"], varies=True),
    _call("fence_producers", ["till"], varies=True),
    _call("force_terminate_transaction", "till"),
    _call("describe_features"),
    _call("update_features", {}, shown="update_features({...})"),
    _call("list_acls"),
    _call("create_acls", [Acl("TOPIC", "x", "User:eve", "READ")], shown="create_acls([...])"),
    _call("delete_acls", AclFilter(principal="User:eve"), shown="delete_acls(...)", varies=True),
    _call("scram_users", varies=True),
    _call("alter_scram_users", [ScramPassword("eve", "SCRAM-SHA-256", "secret")], shown="alter_scram_users([...])"),
)


def methods_in_table() -> set[str]:
    """The methods whose rights are known, or that need none."""
    return {call.shown.partition("(")[0] for call in CALLS} | _NOT_IN_TABLE


def public_methods() -> set[str]:
    """All of `Admin`."""
    return {name for name, _ in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")}
