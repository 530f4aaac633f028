"""Lost records are counted once each, and everything that shows the state of a flow shows them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from barnabas.base.ids import TopicPartition  # noqa: E402
from barnabas.cli.pipelines import pipeline  # noqa: E402
from barnabas.pipelines.cluster.log_ends import LogEnds  # noqa: E402
from barnabas.pipelines.cluster.offsets import Range  # noqa: E402
from barnabas.pipelines.cluster.options import SourceOptions  # noqa: E402
from barnabas.pipelines.connector.lost_records import LostRecords, loses_uncounted, lost_file, note_lost  # noqa: E402
from barnabas.pipelines.connector.range_progress import Lost  # noqa: E402
from barnabas.pipelines.connector.ranges import read_arrow  # noqa: E402
from barnabas.pipelines.dashboard.charts import run_metrics_text  # noqa: E402
from barnabas.pipelines.errors import PipelineError, reason_of, with_advice  # noqa: E402
from barnabas.pipelines.flow_file.fields import SpecError  # noqa: E402
from barnabas.pipelines.progress.progress import Totals  # noqa: E402
from barnabas.pipelines.progress.summary_text import wrong_lines  # noqa: E402
from barnabas.pipelines.specification.spec import load  # noqa: E402
from support.scripted_broker import TOPIC, ScriptedBroker, batch  # noqa: E402

ranges = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 50), st.integers(1, 20)), max_size=20
)


@settings(max_examples=50, deadline=None)
@given(lost=ranges)
def test_a_range_that_is_found_again_counts_once(
    tmp_path_factory: pytest.TempPathFactory, lost: list[tuple[str, int, int, int]]
) -> None:
    """A micro-batch is repeated, and the query for bad rows reads the same; of two
    sources both count."""
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
    """Where a flow says to which file; without one, in the log alone."""
    schema = pa.schema([("offset", pa.int64())])
    with ScriptedBroker([batch(0, 39)]) as broker:
        broker.start = 14
        given = {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC, "failOnDataLoss": "false", **options}
        for path in (lost_file(tmp_path), lost_file(tmp_path), None):
            extra = {"flowSource": "s", "lostFile": str(path)} if path else {}
            parsed = SourceOptions.parse({**given, **extra}, streaming=True)
            found = list(read_arrow(parsed, schema, Range(TOPIC, 0, 4, 40)))
            assert sum(each.num_rows for each in found) == 26
    assert LostRecords(tmp_path).by_partition() == {"t-0": 10}


@pytest.mark.parametrize("options", [{}, {"kafka.fetch.error.backoff.ms": "50"}], ids=["own", "librdkafka"])
@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("/dev/full", "No space left on device"),
        ("/nowhere/lost.jsonl", "No such file or directory: the checkpoint must be in a folder that all workers can"),
    ],
    ids=["full", "out of reach"],
)
def test_a_reader_that_cannot_note_what_is_gone_ends_with_the_reason(
    tmp_path: Path, options: dict[str, str], place: str, reason: str
) -> None:
    """A disk is full, or the folder out of reach: a loss that is not counted would be silent.

    Then the disk's advice follows."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with ScriptedBroker([batch(0, 39)]) as broker:
        broker.start = 14
        given = {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC, "failOnDataLoss": "false", **options}
        parsed = SourceOptions.parse({**given, "flowSource": "s", "lostFile": place}, streaming=True)
        words = re.escape(f"t-0: records 4 to 13 are gone, and cannot be counted: {place}: {reason}")
        with pytest.raises(PipelineError, match=words) as failure:
            list(read_arrow(parsed, pa.schema([("offset", pa.int64())]), Range(TOPIC, 0, 4, 40)))
    advised = with_advice(reason_of(failure.value, failure.value), tmp_path)
    assert ("the checkpoint (" in str(advised)) is (place == "/dev/full")


def test_a_line_that_a_full_disk_has_cut_off_hides_no_other_line(tmp_path: Path) -> None:
    """The writer of the cut line has ended with an error; lines of others follow it."""
    lost_file(tmp_path).write_text('["s", "t", 0, 4, 1')
    note_lost(lost_file(tmp_path), "s", "t", 0, Lost(4, 14))
    assert LostRecords(tmp_path).by_partition() == {"t-0": 10}


def test_a_file_that_cannot_be_read_is_no_loss_of_zero(tmp_path: Path) -> None:
    """A folder is in its place: the error is raised."""
    lost_file(tmp_path).mkdir()
    with pytest.raises(OSError, match=r"lost\.jsonl"):
        LostRecords(tmp_path).by_partition()


noted = st.lists(
    st.one_of(
        st.just("made again"),
        st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 30), st.integers(1, 15)),
    ),
    max_size=20,
)


@settings(max_examples=50, deadline=None)
@given(events=noted)
def test_offsets_of_a_topic_that_was_made_again_are_other_records(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any]
) -> None:
    """A record is an offset of one topic: what was planned of the topic before counts with
    what was lost of that one."""
    folder = tmp_path_factory.mktemp("checkpoint")
    expected: set[tuple[int, int, int]] = set()
    topic_number = 0
    for event in events:
        if event == "made again":
            LostRecords(folder).begin_topic("s", "t")
            topic_number += 1
            continue
        of_old_topic, partition, start, size = event
        note_lost(lost_file(folder), "s", "t", partition, Lost(start, start + size), of_old_topic=of_old_topic)
        expected |= {(topic_number - of_old_topic, partition, offset) for offset in range(start, start + size)}
    assert sum(LostRecords(folder).by_partition().values()) == len(expected)


steps = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None)
@given(steps=steps)
def test_records_that_were_seen_and_are_gone_before_they_are_read_are_found(steps: list[tuple[int, int]]) -> None:
    """Whenever a log's end falls back: what lay behind it and was not read."""
    name, ends = TopicPartition("t", 0), LogEnds()
    seen: set[int] = set()
    for position, end in steps:
        fallen = ends.fallen({name: position}, {name: end})
        found = [each for part in ends.take({name: position}, {name: end}) for each in range(part.start, part.end)]
        assert found == sorted(offset for offset in seen if offset >= max(position, end))
        assert bool(fallen) is (end < max([position, *(offset + 1 for offset in seen)]))
        seen = set(range(end))


def test_records_of_a_deleted_topic_that_were_seen_are_found() -> None:
    """Of the topics that are still there nothing is gone."""
    names, ends = [TopicPartition("a", 0), TopicPartition("b", 0)], LogEnds()
    assert ends.take(dict.fromkeys(names, 0), dict.fromkeys(names, 9)) == []
    assert ends.take_topic("a", dict.fromkeys(names, 4)) == [Range("a", 0, 4, 9)]
    assert ends.take({names[1]: 4}, {names[1]: 9}) == []


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
    monkeypatch.setattr("barnabas.pipelines.running.run.run_flow", lambda *_, **__: summary)
    monkeypatch.setattr(pipeline, "_require_topics", lambda _: None)
    assert pipeline.main(["run", str(path), "--once", *(["--fail-on-loss"] if asked else [])]) == status
    shown = capsys.readouterr().out
    assert ("140 lost, " in shown) is bool(lost)
    assert pipeline.main(["run", str(path), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["lost_records"] == lost


def test_with_sparks_own_connector_the_number_of_lost_records_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It counts none.

    So the summary does not say 0, and an exit status cannot be asked for; where none
    may be lost, it can."""
    path = tmp_path / "flow.toml"
    for lax in (True, False):
        path.write_text(
            'name = "f"\ncheckpoint = "c"\n[source]\nbootstrap_servers = "localhost:1"\ntopics = ["t"]\n'
            f"fail_on_data_loss = {str(not lax).lower()}\n"
            'format = { type = "text" }\n[[sinks]]\ntype = "parquet"\npath = "out"\n[resources]\nconnector = "kafka"\n'
        )
        assert loses_uncounted(load(path)) is lax
    totals = Totals(lost_records=None)
    summary = {"flow": "f", "status": "done", **totals.as_dict()}
    monkeypatch.setattr("barnabas.pipelines.running.run.run_flow", lambda *_, **__: summary)
    monkeypatch.setattr(pipeline, "_require_topics", lambda _: None)
    assert pipeline.main(["run", str(path), "--fail-on-loss"]) == 0
    assert ", 0 late, lost unknown, lag" in capsys.readouterr().out
    path.write_text(path.read_text().replace("fail_on_data_loss = true", "fail_on_data_loss = false"))
    with pytest.raises(SpecError, match=r"flow.toml:\d+: resources.connector: --fail-on-loss needs the number"):
        pipeline.main(["run", str(path), "--fail-on-loss"])
    assert "lost_records" not in run_metrics_text("f", totals.as_dict())
