"""Counts nodes and bytes below paths that have a quota: ZooKeeper's Quotas and StatsTrack.

A quota for ``/a`` is the node ``/zookeeper/quota/a/zookeeper_limits``, made by clients; beside it
``zookeeper_stats`` holds what is used, kept by every server for itself: it changes without a transaction, a version or
a digest. Limits are soft, as in ZooKeeper without enforceQuota: usage is counted, and limits are not enforced.
"""

from barnabas.coordination.core.paths import QUOTA_PATH
from barnabas.coordination.core.znode import DataNode

__all__ = ["Quotas"]

_LIMITS = "zookeeper_limits"
_STATS = "zookeeper_stats"


def _usage(data: bytes | None) -> tuple[int, int]:
    """Count and bytes in a stats node; zero where it cannot be read."""
    fields = dict(part.partition("=")[::2] for part in (data or b"").decode("ascii", "replace").split(","))
    try:
        return int(fields.get("count", "0")), int(fields.get("bytes", "0"))
    except ValueError:
        return 0, 0


def _set_usage(nodes: dict[str, DataNode], limited: str, count: int, data_bytes: int) -> None:
    path = f"{QUOTA_PATH}{limited}/{_STATS}"
    node = nodes.get(path)
    if node is not None:
        updated = node.copy()
        updated.data = f"count={count},bytes={data_bytes}".encode("ascii")
        nodes[path] = updated


class Quotas:
    """The paths with limits; false while there are none."""

    __slots__ = ("_limited",)

    def __init__(self) -> None:
        self._limited: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._limited)

    def _limit_above(self, path: str) -> str | None:
        """The nearest path with a quota, at or above ``path``."""
        while path:
            if path in self._limited:
                return path
            path = path[: path.rfind("/")]
        return None

    def changed(self, nodes: dict[str, DataNode], path: str, bytes_more: int, count_more: int) -> None:
        """Count a node that was created, changed or deleted."""
        limited = self._limit_above(path)
        if limited is not None:
            stats = nodes.get(f"{QUOTA_PATH}{limited}/{_STATS}")
            if stats is not None:
                count, data_bytes = _usage(stats.data)
                _set_usage(nodes, limited, count + count_more, data_bytes + bytes_more)

    def created(self, nodes: dict[str, DataNode], children: dict[str, dict[str, None]], parent: str, name: str) -> None:
        """Note a node that was created below ``/zookeeper/quota``."""
        limited = parent[len(QUOTA_PATH) :]
        if name == _LIMITS and limited:
            self._limited.add(limited)
        elif name == _STATS and limited:
            self._count(nodes, children, limited)

    def deleted(self, parent: str, name: str) -> None:
        """Note a node that was deleted."""
        if name == _LIMITS and parent.startswith(QUOTA_PATH):
            self._limited.discard(parent[len(QUOTA_PATH) :])

    def loaded(self, nodes: dict[str, DataNode], children: dict[str, dict[str, None]]) -> None:
        """Count everything again, after a snapshot was read."""
        for limited in self._limited:
            self._count(nodes, children, limited)

    def _count(self, nodes: dict[str, DataNode], children: dict[str, dict[str, None]], limited: str) -> None:
        waiting = [limited] if limited in nodes else []
        count = data_bytes = 0
        while waiting:
            path = waiting.pop()
            count += 1
            data_bytes += len(nodes[path].data or b"")
            waiting.extend(f"{path}/{name}" for name in children.get(path, ()))
        _set_usage(nodes, limited, count, data_bytes)
