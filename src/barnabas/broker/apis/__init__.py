"""The APIs of a broker: one module per API key, each ending in
``API = ApiHandler(...)`` (Kafka's `KafkaApis`).

`MODULES` lists them once; the dispatch table and the response of ApiVersions are both made from it,
so an API that is not here is neither served nor advertised. Handlers translate: they turn a message
into a question to a subsystem, and its answer into a response.
"""

from importlib import import_module
from typing import Any

from barnabas.broker.apis.api_handler import ApiHandler

__all__ = ["MODULES", "load_handlers"]

MODULES = (
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "allocate_producer_ids",
    "alter_configs",
    "alter_partition",
    "alter_partition_reassignments",
    "alter_replica_log_dirs",
    "alter_user_scram_credentials",
    "api_versions",
    "controlled_shutdown",
    "create_acls",
    "create_partitions",
    "create_topics",
    "delete_acls",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_acls",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_transactions",
    "describe_user_scram_credentials",
    "elect_leaders",
    "end_txn",
    "fetch",
    "find_coordinator",
    "heartbeat",
    "incremental_alter_configs",
    "init_producer_id",
    "join_group",
    "leader_and_isr",
    "leave_group",
    "list_groups",
    "list_offsets",
    "list_partition_reassignments",
    "list_transactions",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "sasl_authenticate",
    "sasl_handshake",
    "stop_replica",
    "sync_group",
    "txn_offset_commit",
    "update_features",
    "update_metadata",
    "write_txn_markers",
)
"""Modules of this package with an ``API``, in alphabetical order."""


def load_handlers(modules: tuple[str, ...] = MODULES) -> dict[int, ApiHandler[Any]]:
    """Import the modules; their handlers by API key, in the order of the keys."""
    handlers = [import_module(f"{__name__}.{name}").API for name in modules]
    table = {int(handler.key): handler for handler in sorted(handlers, key=lambda handler: handler.key)}
    if len(table) != len(handlers):
        raise RuntimeError("two modules serve one API key")
    return table
