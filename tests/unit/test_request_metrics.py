"""What a server measures of its requests: percentiles, and bytes by namespace."""

import math

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.statistics import Distribution
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.opcodes import OpCode

times_ms = st.lists(st.one_of(st.integers(-5, 1100), st.integers(0, 10_000_000)))


@given(times_ms)
def test_figures_of_times_are_those_of_the_sorted_list(measured: list[int]) -> None:
    """Exact below 1,024 ms; above, at most 0.2 % too low.

    Minimum and maximum are exact; times below zero are none."""
    distribution = Distribution()
    for value in measured:
        distribution.add(value)
    valid = sorted(value for value in measured if value >= 0)
    figures = distribution.values("t")
    assert (figures["cnt_t"], figures["sum_t"]) == (len(valid), sum(valid))
    for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
        expected = valid[max(math.ceil(part * len(valid)), 1) - 1] if valid else 0
        found = figures[f"{name}_t"]
        assert found == expected if expected < 1024 else expected * 0.998 <= found <= expected
    assert (figures["min_t"], figures["max_t"]) == ((valid[0], valid[-1]) if valid else (0, 0))


def test_bytes_are_counted_for_the_first_part_of_a_path() -> None:
    """Path and data, and for reads the stat too; the root has no namespace, and
    neither has an empty path."""
    metrics = RequestMetrics()
    node = DataNode.system("/app/x", 0)
    metrics.written(Change(OpCode.CREATE, "/app/x", node=node))
    part = Change(OpCode.DELETE, "/app/x")
    metrics.written(Change(OpCode.MULTI, parts=[part, Change(OpCode.CHECK, "/app")]))
    metrics.deleted(["/e"])
    metrics.configured(100)
    metrics.read("/app", 10)
    for path in ("/", ""):
        metrics.read(path, 1)
    written, read = (metrics.by_namespace()[f"{kind}_per_namespace"] for kind in ("write", "read"))
    data_bytes = len(node.data or b"")
    assert {name: (each.count, each.total) for name, each in written.items()} == {
        "app": (2, 12 + data_bytes),
        "e": (1, 2),
        "zookeeper": (1, len("/zookeeper/config") + 100),
    }
    assert {name: (each.count, each.total) for name, each in read.items()} == {"app": (1, 4 + 10 + 68)}


def test_clients_cannot_make_namespaces_without_end() -> None:
    """Behind the thousandth, new ones are not counted, and known ones still are."""
    metrics = RequestMetrics()
    for number in range(3000):
        metrics.read(f"/n{number}/x", 0)
    metrics.read("/n1", 0)
    found = metrics.by_namespace()["read_per_namespace"]
    assert len(found) == 1000
    assert found["n1"].count == 2
