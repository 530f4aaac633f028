"""Lost records are counted once each, and everything that shows the state of a flow shows them."""

import json
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from barnabas.cli import pipeline  # noqa: E402
from barnabas.pipelines.dashboard.charts import run_metrics_text  # noqa: E402
from barnabas.pipelines.lost_records import LostRecords, lost_file, note_lost  # noqa: E402
from barnabas.pipelines.offsets import Range  # noqa: E402
from barnabas.pipelines.options import SourceOptions  # noqa: E402
from barnabas.pipelines.progress import Totals  # noqa: E402
from barnabas.pipelines.range_progress import Lost  # noqa: E402
from barnabas.pipelines.ranges import read_arrow  # noqa: E402
from barnabas.pipelines.summary_text import wrong_lines  # noqa: E402
from support.scripted_broker import TOPIC, ScriptedBroker, batch  # noqa: E402

ranges = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 50), st.integers(1, 20)), max_size=20
)


@settings(max_examples=50, deadline=None)
@given(lost=ranges)
def test_a_range_that_is_found_again_counts_once(
    tmp_path_factory: pytest.TempPathFactory, lost: list[tuple[str, int, int, int]]
) -> None:
    """A micro-batch is repeated, and the query for bad rows reads the same; of two sources both count."""
    folder = tmp_path_factory.mktemp("checkpoint")
    expected: set[tuple[str, int, int]] = set()
    for source, partition, start, size in lost:
        note_lost(lost_file(folder), source, "t", partition, Lost(start, start + size))
        expected |= {(source, partition, offset) for offset in range(start, start + size)}
    with lost_file(folder).open("a") as file:
        file.write('["a", "t", 0, 1')  # a line that is being written
    found = LostRecords(folder).by_partition()
    assert sum(found.values()) == len(expected)
    assert set(found) == {f"t-{partition}" for _, partition, _ in expected}
    LostRecords(folder).begin()
    assert LostRecords(folder).by_partition() == {}


@pytest.mark.parametrize("options", [{}, {"kafka.fetch.error.backoff.ms": "50"}], ids=["own", "librdkafka"])
def test_each_reader_notes_what_is_gone(tmp_path: Path, options: dict[str, str]) -> None:
    """Where a flow says to which file; without one, in the log alone. A folder that cannot be reached costs no record."""
    schema = pa.schema([("offset", pa.int64())])
    with ScriptedBroker([batch(0, 39)]) as broker:
        broker.start = 14
        given = {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC, "failOnDataLoss": "false", **options}
        for path in (lost_file(tmp_path), lost_file(tmp_path), tmp_path / "elsewhere" / "lost", None):
            extra = {"flowSource": "s", "lostFile": str(path)} if path else {}
            parsed = SourceOptions.parse({**given, **extra}, streaming=True)
            found = list(read_arrow(parsed, schema, Range(TOPIC, 0, 4, 40)))
            assert sum(each.num_rows for each in found) == 26
    assert LostRecords(tmp_path).by_partition() == {"t-0": 10}


def test_the_figures_of_a_run_have_what_was_lost() -> None:
    """Those of the summary, of status, and the metrics."""
    totals = Totals(lost_records=1140, lost={"orders-0": 140, "orders-1": 1000})
    expected = "lost: 1,140 records were gone before they were read (orders-0: 140, orders-1: 1,000)"
    assert list(wrong_lines(totals.as_dict())) == [expected]
    assert 'barnabas_pipeline_lost_records{flow="f"} 1140\n' in run_metrics_text("f", totals.as_dict())
    many = {f"orders-{number}": 1 for number in range(30)}
    (line,) = wrong_lines({"lost": many})
    assert line.endswith("orders-9: 1 and 20 more)")


@pytest.mark.parametrize(("asked", "lost", "status"), [(True, 140, 1), (True, 0, 0), (False, 140, 0)])
def test_the_exit_status_says_that_records_were_lost_on_request(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: bool,
    lost: int,
    status: int,
) -> None:
    """The flow itself ends well."""
    path = tmp_path / "flow.toml"
    path.write_text(
        'name = "f"\ncheckpoint = "c"\n[source]\nbootstrap_servers = "localhost:1"\ntopics = ["t"]\n'
        'fail_on_data_loss = false\nformat = { type = "text" }\n[[sinks]]\ntype = "parquet"\npath = "out"\n'
    )
    summary = {"flow": "f", "status": "done", **Totals(lost_records=lost, lost={"t-0": lost} if lost else {}).as_dict()}
    monkeypatch.setattr("barnabas.pipelines.run.run_flow", lambda *_, **__: summary)
    monkeypatch.setattr(pipeline, "_require_topics", lambda _: None)
    assert pipeline.main(["run", str(path), "--once", *(["--fail-on-loss"] if asked else [])]) == status
    shown = capsys.readouterr().out
    assert ("140 lost, " in shown) is bool(lost)
    assert pipeline.main(["run", str(path), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["lost_records"] == lost
