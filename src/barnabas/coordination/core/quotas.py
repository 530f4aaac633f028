"""Counts nodes and bytes below paths that have a quota, and refuses writes beyond hard limits:
ZooKeeper's `Quotas` and `StatsTrack`.

A quota for ``/a`` is the node ``/zookeeper/quota/a/zookeeper_limits``, made by clients:

    count=LIMIT,bytes=LIMIT[=;byteHardLimit=LIMIT][;countHardLimit=LIMIT]      -1 is no limit

Beside it ``zookeeper_stats`` holds what is used, kept by every server for itself: it changes
without a transaction, a version or a digest. With enforceQuota a write beyond a hard limit is
refused, and one beyond a soft limit is logged. Without it usage is only counted. As in ZooKeeper:

- Usage is counted in the committed tree: writes that are on their way together, and the parts of a
  multi, may exceed a limit.
- Limits that cannot be read refuse each creation and setData below them with MARSHALLING_ERROR. So
  does usage that cannot be read, where a limit needs it.
- A limit that is exceeded already also refuses a setData that shrinks the data but
  stays above the limit.

Usage that cannot be read is not changed by later writes; a ZooKeeper server stops there.
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
_SEPARATORS = re.compile("[,;]+")
_NUMBER = re.compile(r"[+-]?\d+")
_MAX_LONG = (1 << 63) - 1
_MAX_BYTES = 1024
"""Every write below a limit reads these nodes, and any client may write other fields into them."""


def _split(text: str, separator: re.Pattern[str] | str) -> list[str]:
    """Split as Java's String.split: without the empty parts at the end."""
    parts = separator.split(text) if isinstance(separator, re.Pattern) else text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _long(text: str) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else _MAX_LONG + 1
    if not -_MAX_LONG - 1 <= number <= _MAX_LONG:
        raise ValueError(f"{text!r} is not a number of 64 bits")
    return number


def _parse(data: bytes | None) -> dict[str, int]:
    """The fields of a limits or stats node.

    Raises `ValueError` where StatsTrack cannot read it, and for too much data."""
    if data is None:
        raise ValueError("there is no data")
    if len(data) > _MAX_BYTES:
        raise ValueError(f"there are more than {_MAX_BYTES} bytes")
    found: dict[str, int] = {}
    for pair in _split(data.decode("utf-8", "replace"), _SEPARATORS):
        name, *values = _split(pair, "=") or [""]
        if not values:
            raise ValueError(f"{pair!r} has no value")
        found[name] = _long(values[0]) if values[0] else -1
    return found


def _parse_or_empty(node: DataNode | None) -> dict[str, int]:
    """The fields of a node that may be missing or unreadable, for figures that are only shown."""
    try:
        return _parse(node.data) if node is not None else {}
    except ValueError:
        return {}


def _parse_or_refuse(node: DataNode, path: str) -> dict[str, int]:
    try:
        return _parse(node.data)
    except ValueError:
        raise KeeperError(ErrorCode.MARSHALLING_ERROR, path) from None


def _wrapped(number: int) -> int:
    """A sum as a Java long."""
    return (number + _MAX_LONG + 1 & (1 << 64) - 1) - _MAX_LONG - 1


def _format(fields: dict[str, int]) -> bytes:
    """The data of a stats node: count and bytes, then other fields in the order of their names."""
    text = f"count={fields.get('count', -1)},bytes={fields.get('bytes', -1)}"
    others = sorted(fields.keys() - {"count", "bytes"})
    if others:
        text += "=" + "".join(f";{name}={fields[name]}" for name in others)
    return text.encode("utf-8")


def _namespace(path: str) -> str:
    """The first part of a path."""
    return path.split("/", 2)[1]


def _set_usage(nodes: dict[str, DataNode], limited: str, fields: dict[str, int]) -> int:
    """Write what is used; how many more bytes this takes."""
    path = f"{QUOTA_PATH}{limited}/{_STATS}"
    node = nodes.get(path)
    if node is None:
        return 0
    updated = node.copy()
    data = updated.data = _format(fields)
    nodes[path] = updated
    return len(data) - len(node.data or b"")


def _effective_limit(limits: dict[str, int], name: str, hard_name: str) -> tuple[str, int]:
    """The hard limit where there is one, else the soft one; negative if there is neither."""
    hard = limits.get(hard_name, -1)
    return ("hard", hard) if hard > -1 else ("soft", limits.get(name, -1))


class Quotas:
    """The paths with limits."""

    __slots__ = ("_exceeded", "_refused", "limited")

    def __init__(self) -> None:
        self.limited: set[str] = set()
        self._exceeded: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def _limit_above(self, path: str) -> str | None:
        """The nearest path with a quota, at or above ``path``."""
        while path:
            if path in self.limited:
                return path
            path = path[: path.rfind("/")]
        return None

    def changed(self, nodes: dict[str, DataNode], path: str, bytes_more: int, count_more: int) -> int:
        """Count a node that was created, changed or deleted.

        Returns how many more bytes the usage takes."""
        limited = self._limit_above(path)
        stats = nodes.get(f"{QUOTA_PATH}{limited}/{_STATS}") if limited is not None else None
        if limited is None or stats is None:
            return 0
        try:
            used = _parse(stats.data)
        except ValueError:
            return 0  # an administrator has to write it again; until then limits refuse writes
        used["count"] = _wrapped(used.get("count", -1) + count_more)
        used["bytes"] = _wrapped(used.get("bytes", -1) + bytes_more)
        return _set_usage(nodes, limited, used)

    def check(self, nodes: dict[str, DataNode], path: str, bytes_more: int, count_more: int) -> None:
        """QUOTA_EXCEEDED for a write at ``path`` that would exceed a hard limit:
        ZooKeeperServer.checkQuota."""
        limited = self._limit_above(path)
        node = nodes.get(f"{QUOTA_PATH}{limited}/{_LIMITS}") if limited is not None else None
        if limited is None or node is None:
            return
        limits = _parse_or_refuse(node, path)
        checks = []
        for name, hard_name, more in (("count", "countHardLimit", count_more), ("bytes", "byteHardLimit", bytes_more)):
            kind, limit = _effective_limit(limits, name, hard_name)
            if more and limit > -1:
                checks.append((name, kind, limit, more))
        stats = nodes.get(f"{QUOTA_PATH}{limited}/{_STATS}")
        if not checks or stats is None:
            return
        used = _parse_or_refuse(stats, path)
        for name, kind, limit, more in checks:
            wanted = _wrapped(used.get(name, -1) + more)
            if wanted <= limit:
                continue
            self._exceeded[limited] += 1
            if self._exceeded[limited].bit_count() == 1:  # the log must not grow with every write
                logger.warning("Quota exceeded: %s [current %s=%d, %s limit %d]", limited, name, wanted, kind, limit)
            if kind == "hard":
                self._refused[_namespace(limited)] += 1
                raise KeeperError(ErrorCode.QUOTA_EXCEEDED, limited)

    def figures(self, nodes: dict[str, DataNode]) -> dict[str, int]:
        """Limits and usage by namespace, and how many writes were refused, by the
        names of ``mntr``."""
        found: Counter[str] = Counter()
        for limited in sorted(self.limited):
            namespace = _namespace(limited)
            limits = _parse_or_empty(nodes.get(f"{QUOTA_PATH}{limited}/{_LIMITS}"))
            used = _parse_or_empty(nodes.get(f"{QUOTA_PATH}{limited}/{_STATS}"))
            for name, hard_name in (("count", "countHardLimit"), ("bytes", "byteHardLimit")):
                _, limit = _effective_limit(limits, name, hard_name)
                found[f"{namespace}_quota_{name}_limit_per_namespace"] += limit
                found[f"{namespace}_quota_{name}_usage_per_namespace"] += used.get(name, -1)
        for namespace, refused in self._refused.items():
            found[f"{namespace}_quota_exceeded_error_per_namespace"] = refused
        return found

    def created(self, nodes: dict[str, DataNode], children: dict[str, dict[str, None]], parent: str, name: str) -> int:
        """Note a node that was created below ``/zookeeper/quota``.

        Returns how many more bytes the usage takes."""
        limited = parent[len(QUOTA_PATH) :]
        if not limited.startswith("/"):  # the root has no quota
            return 0
        if name == _LIMITS:
            self.limited.add(limited)
        return self._count(nodes, children, limited) if name == _STATS else 0

    def deleted(self, parent: str, name: str) -> None:
        """Note a node that was deleted."""
        if name == _LIMITS and parent.startswith(QUOTA_PATH):
            self.limited.discard(parent[len(QUOTA_PATH) :])

    def loaded(self, nodes: dict[str, DataNode], children: dict[str, dict[str, None]]) -> int:
        """Count everything again, after a snapshot was read.

        Returns how many more bytes the usage takes."""
        return sum([self._count(nodes, children, limited) for limited in self.limited])

    def _count(self, nodes: dict[str, DataNode], children: dict[str, dict[str, None]], limited: str) -> int:
        waiting = [limited] if limited in nodes else []
        count = data_bytes = 0
        while waiting:
            path = waiting.pop()
            count += 1
            data_bytes += len(nodes[path].data or b"")
            waiting.extend(f"{path}/{name}" for name in children.get(path, ()))
        return _set_usage(nodes, limited, {"count": count, "bytes": data_bytes})
