"""Counts nodes and bytes below paths that have a quota: ZooKeeper's `Quotas` and `StatsTrack`.

A quota for ``/a`` is the node ``/zookeeper/quota/a/zookeeper_limits``, made by clients:

    count=LIMIT,bytes=LIMIT[=;byteHardLimit=LIMIT][;countHardLimit=LIMIT]      -1 is no limit

Beside it ``zookeeper_stats`` holds what is used, kept by every server for itself: it changes without a transaction, a
version or a digest. With enforceQuota a write beyond a hard limit is refused, and one beyond a soft limit is logged.
Without it usage is only counted. As in ZooKeeper, usage is that of the committed tree: writes that are on their way
together may exceed a limit.
"""

import logging
import re
from collections import Counter

from barnabas.coordination.core.paths import QUOTA_PATH
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.errors import ErrorCode, KeeperError

__all__ = ["Quotas"]

logger = logging.getLogger(__name__)

_LIMITS = "zookeeper_limits"
_STATS = "zookeeper_stats"


def _numbers(node: DataNode | None) -> dict[str, int]:
    """The fields of a limits or stats node; nothing where it cannot be read."""
    data = node.data if node is not None else None
    fields = [part.split("=") for part in re.split("[,;]+", (data or b"").decode("ascii", "replace")) if part]
    try:
        return {name: int(value[0] if value and value[0] else "-1") for name, *value in fields}
    except ValueError:
        return {}


def _namespace(path: str) -> str:
    """The first part of a path."""
    return path.split("/", 2)[1]


def _set_usage(nodes: dict[str, DataNode], limited: str, count: int, data_bytes: int) -> None:
    path = f"{QUOTA_PATH}{limited}/{_STATS}"
    node = nodes.get(path)
    if node is not None:
        updated = node.copy()
        updated.data = f"count={count},bytes={data_bytes}".encode("ascii")
        nodes[path] = updated


class Quotas:
    """The paths with limits; false while there are none."""

    __slots__ = ("_exceeded", "_limited", "_refused")

    def __init__(self) -> None:
        self._limited: set[str] = set()
        self._exceeded: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

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
                used = _numbers(stats)
                _set_usage(nodes, limited, used.get("count", 0) + count_more, used.get("bytes", 0) + bytes_more)

    def check(self, nodes: dict[str, DataNode], path: str, bytes_more: int, count_more: int) -> None:
        """QUOTA_EXCEEDED for a write at ``path`` that would exceed a hard limit: ZooKeeperServer.checkQuota."""
        limited = self._limit_above(path)
        if limited is None:
            return
        limits = _numbers(nodes.get(f"{QUOTA_PATH}{limited}/{_LIMITS}"))
        used = _numbers(nodes.get(f"{QUOTA_PATH}{limited}/{_STATS}"))
        if not used:
            return
        for name, hard_name, more in (("count", "countHardLimit", count_more), ("bytes", "byteHardLimit", bytes_more)):
            hard, soft = limits.get(hard_name, -1), limits.get(name, -1)
            limit = hard if hard > -1 else soft
            wanted = used.get(name, -1) + more
            if not more or limit < 0 or wanted <= limit:
                continue
            kind = "hard" if hard > -1 else "soft"
            self._exceeded[limited] += 1
            if self._exceeded[limited].bit_count() == 1:  # the log must not grow with every write
                logger.warning("Quota exceeded: %s [current %s=%d, %s limit %d]", limited, name, wanted, kind, limit)
            if hard > -1:
                self._refused[_namespace(limited)] += 1
                raise KeeperError(ErrorCode.QUOTA_EXCEEDED, limited)

    def figures(self, nodes: dict[str, DataNode]) -> dict[str, int]:
        """Limits and usage by namespace, and how many writes were refused, by the names of ``mntr``."""
        found: Counter[str] = Counter()
        for limited in sorted(self._limited):
            namespace = _namespace(limited)
            limits = _numbers(nodes.get(f"{QUOTA_PATH}{limited}/{_LIMITS}"))
            used = _numbers(nodes.get(f"{QUOTA_PATH}{limited}/{_STATS}"))
            for name, hard_name in (("count", "countHardLimit"), ("bytes", "byteHardLimit")):
                hard = limits.get(hard_name, -1)
                limit = hard if hard > -1 else limits.get(name, -1)
                found[f"{namespace}_quota_{name}_limit_per_namespace"] += limit
                found[f"{namespace}_quota_{name}_usage_per_namespace"] += used.get(name, -1)
        for namespace, refused in self._refused.items():
            found[f"{namespace}_quota_exceeded_error_per_namespace"] = refused
        return found

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
