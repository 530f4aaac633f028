"""What a server measures of its requests through all its roles, by the names of ``mntr``.

What is counted by namespace (the first part of a path) is bounded by the number of namespaces,
because clients choose them.

In ZooKeeper: the part of ServerMetrics that FinalRequestProcessor and DataTree fill, and
AvgMinMaxCounterSet.
"""

from collections.abc import Iterable

from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.metric_table import CoordinationMetrics
from barnabas.coordination.core.paths import CONFIG_PATH
from barnabas.coordination.core.statistics import Distribution, Summary
from barnabas.wire.jute.opcodes import OpCode

__all__ = ["RequestMetrics"]

_MAX_NAMESPACES = 1000
_STAT_BYTES = 68
"""What ZooKeeper adds for the stat to the bytes of each read."""
_WITH_DATA = frozenset(
    (OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_TTL, OpCode.CREATE_CONTAINER, OpCode.SET_DATA, OpCode.RECONFIG)
)
_MULTI = int(OpCode.MULTI)
_DELETES = frozenset((OpCode.DELETE, OpCode.DELETE_CONTAINER))


def _add(traffic: dict[str, Summary], path: str, size_bytes: int) -> None:
    """Count an access to a path; one to the root belongs to no namespace."""
    end = path.find("/", 1)
    namespace = path[1:end] if end > 0 else path[1:]
    summary = traffic.get(namespace)
    if summary is None:
        if not namespace or len(traffic) >= _MAX_NAMESPACES:
            return
        summary = traffic[namespace] = Summary()
    summary.add(size_bytes)


class RequestMetrics:
    """See the module. A server has one, which the processors of its roles share."""

    __slots__ = (
        "changes",
        "connect_requests",
        "event_bytes",
        "immediate_reads",
        "propagation_latency",
        "read_latency",
        "reads",
        "received_bytes",
        "reply_bytes",
        "update_latency",
        "writes",
    )

    def __init__(self) -> None:
        self.read_latency = Distribution()
        self.update_latency = Distribution()
        self.propagation_latency = Distribution()
        """From the decision of a transaction to its place in this server's tree."""
        self.immediate_reads = 0
        """Reads that waited for nothing, which are not in `read_latency` yet."""
        self.reads: dict[str, Summary] = {}
        self.writes: dict[str, Summary] = {}
        self.received_bytes = 0
        self.reply_bytes = 0
        self.event_bytes = 0
        self.changes = 0
        """Nodes that decided transactions change: ZooKeeper's change records."""
        self.connect_requests = 0

    def read(self, path: str, data_bytes: int) -> None:
        """Count a read of a node that exists; it returns ``data_bytes`` beside its stat.

        The code of `_add` and `Summary.add` stands here once more, because every read comes here.
        """
        end = path.find("/", 1)
        summary = self.reads.get(path[1:end] if end > 0 else path[1:])
        size_bytes = len(path) + data_bytes + _STAT_BYTES
        if summary is None:
            _add(self.reads, path, size_bytes)
            return
        summary.count += 1
        summary.total += size_bytes
        if size_bytes > summary.greatest:
            summary.greatest = size_bytes
        elif size_bytes < summary.least:
            summary.least = size_bytes

    def written(self, change: Change) -> None:
        """Count what a transaction has written, as `read` counts a read: its paths, and data
        where there is any."""
        kind, path, node = change.type, change.path, change.node
        if change.err:
            return
        if node is not None and kind in _WITH_DATA:
            data = node.data
            size_bytes = len(path) + len(data) if data else len(path)
        elif kind in _DELETES:
            size_bytes = len(path)
        else:
            for part in change.parts if kind == _MULTI else ():
                self.written(part)
            return
        end = path.find("/", 1)
        summary = self.writes.get(path[1:end] if end > 0 else path[1:])
        if summary is None:
            if len(self.writes) < _MAX_NAMESPACES:
                _add(self.writes, path, size_bytes)
            return
        summary.count += 1
        summary.total += size_bytes
        if size_bytes > summary.greatest:
            summary.greatest = size_bytes
        elif size_bytes < summary.least:
            summary.least = size_bytes

    def configured(self, size_bytes: int) -> None:
        """Count the configuration of the ensemble, which a member writes when it begins to
        serve."""
        _add(self.writes, CONFIG_PATH, len(CONFIG_PATH) + size_bytes)

    def deleted(self, paths: Iterable[str]) -> None:
        """Count the ephemeral nodes of a closed session."""
        for path in paths:
            _add(self.writes, path, len(path))

    def counters(self, staged_changes: int) -> dict[str, int]:
        """The counters under their names in ServerMetrics.

        ``staged_changes`` are decided and not committed."""
        return {
            "bytes_received_count": self.received_bytes,
            "response_bytes": self.reply_bytes,
            "watch_bytes": self.event_bytes,
            "connection_request_count": self.connect_requests,
            "outstanding_changes_queued": self.changes,
            "outstanding_changes_removed": self.changes - staged_changes,
        }

    def distributions(self) -> dict[str, Distribution]:
        """Times in ms, by the names of ServerMetrics."""
        self.read_latency.add_zeros(self.immediate_reads)
        self.immediate_reads = 0
        return {
            CoordinationMetrics.READ_LATENCY.name: self.read_latency,
            CoordinationMetrics.UPDATE_LATENCY.name: self.update_latency,
            "propagation_latency": self.propagation_latency,
        }

    def by_namespace(self) -> dict[str, dict[str, Summary]]:
        """Bytes read and written, by the names of ServerMetrics and by namespace."""
        return {"read_per_namespace": self.reads, "write_per_namespace": self.writes}
