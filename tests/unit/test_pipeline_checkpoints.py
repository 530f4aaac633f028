"""What a checkpoint says of a flow, what of a flow may change on it, and how it is rewound.

Without Spark."""

import fcntl
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("confluent_kafka")

from barnabas.base.ids import TopicPartition
from barnabas.cli.main import main
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.checkpoints.rereading import what_repeats
from barnabas.pipelines.checkpoints.topic_ids import TopicIds
from barnabas.pipelines.errors import DataLossError, PipelineError
from barnabas.pipelines.specification.spec import Flow, parse

FLOW = """\
name = "f"
checkpoint = "state"
[source]
bootstrap_servers = "localhost:9092"
topics = ["a", "b"]
format = { type = "json", columns = { id = "bigint", at = "timestamp", kind = "string" } }
[transform]
where = "id > 0"
[aggregate]
group_by = ["kind"]
time = "at"
window = "1 hour"
watermark = "1 day"
compute = { n = "count(*)" }
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""


def flow_in(folder: Path, *changes: tuple[str, str]) -> Flow:
    text = FLOW
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return parse(text, file=str(folder / "flow.toml"))


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder with a checkpoint of two micro-batches, of which one has reached the sinks."""
    for number, ends in enumerate(('{"a":{"0":5},"b":{"0":7}}', '{"a":{"0":9},"b":{"0":9}}')):
        offsets = tmp_path / "state" / "main" / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{ends}')
    (tmp_path / "state" / "main" / "commits").mkdir()
    (tmp_path / "state" / "main" / "commits" / "0").write_text("v1\n{}")
    Checkpoint(flow_in(tmp_path)).note_flow()
    return tmp_path


def test_the_position_is_the_end_of_the_last_batch_that_reached_the_sinks(begun: Path) -> None:
    """A batch that was only planned does not count."""
    checkpoint = Checkpoint(flow_in(begun))
    assert checkpoint.position() == [{TopicPartition("a", 0): 5, TopicPartition("b", 0): 7}]
    assert (checkpoint.batches(), checkpoint.has_begun) == (1, True)
    assert Checkpoint(flow_in(begun, ('"state"', '"other"'))).position() == [{}]


@pytest.mark.parametrize(
    ("old", "new", "field", "fits"),
    [
        ('window = "1 hour"', 'window = "2 hours"', "aggregate.window", False),
        ('group_by = ["kind"]', 'group_by = ["id"]', "aggregate.group_by", False),
        ('"count(*)"', '"sum(id)"', "aggregate.compute", False),
        ('topics = ["a", "b"]', 'topics = ["a"]', "source.topics", False),
        ('topics = ["a", "b"]', 'topics = ["a"]\nfail_on_data_loss = false', "source.topics", True),
        ('topics = ["a", "b"]', 'topics = ["a", "b", "c"]', "source.topics", True),
        ('"localhost:9092"', '"localhost:9093"', "source.bootstrap_servers", True),
        ('table = "t"', 'table = "u"', "sinks", True),
        ("[transform]", "[resources]\nshuffle_partitions = 5\n[transform]", "resources.shuffle_partitions", True),
        ("[source]", "[sources.x]", "sources", False),
    ],
)
def test_a_change_of_state_or_positions_does_not_fit_and_others_are_reported(
    begun: Path, old: str, new: str, field: str, fits: bool
) -> None:
    """Before the flow is run."""
    changes = Checkpoint(flow_in(begun, (old, new))).changes()
    assert [(each.field, each.fits) for each in changes] == [(field, fits)]


@pytest.mark.parametrize(
    ("old", "new"), [("id > 0", "id > 5"), ('watermark = "1 day"', 'watermark = "2 days"'), ("flow", "flow")]
)
def test_filters_and_delays_may_change(begun: Path, old: str, new: str) -> None:
    """They leave nothing in the state."""
    changes = [] if old == new else [(old, new)]
    assert Checkpoint(flow_in(begun, *changes)).changes() == []


def test_a_sink_must_hold_the_batches_that_it_was_given(begun: Path) -> None:
    """From the first run that had it on; one that is new holds none yet, and after a
    rewind all begin again."""
    (begun / "state" / "main" / "metadata").write_text('{"id": "query"}')
    flow, other = flow_in(begun), flow_in(begun, ('table = "t"', 'table = "u"'))
    (begun / "state" / "flow.json").unlink()
    assert Checkpoint(flow).required_batches(flow.sinks[0]) is None, "a checkpoint that does not know since when"
    Checkpoint(flow).note_flow()
    assert Checkpoint(flow).required_batches(flow.sinks[0]) is None
    (begun / "state" / "main" / "commits" / "1").write_text("v1\n{}")
    assert Checkpoint(flow).required_batches(flow.sinks[0]) == ("query", 1)
    Checkpoint(flow).note_flow()
    assert Checkpoint(flow).required_batches(flow.sinks[0]) == ("query", 1)
    assert Checkpoint(other).required_batches(other.sinks[0]) is None
    Checkpoint(other).note_flow()
    assert Checkpoint(flow).required_batches(flow.sinks[0]) is None, "the last run was without it"
    Checkpoint(flow).rewind([{}])
    assert Checkpoint(other).required_batches(other.sinks[0]) is None


def test_state_of_other_operations_is_refused_and_the_difference_is_shown(begun: Path) -> None:
    """Texts of another version of Spark's say nothing."""
    checkpoint = Checkpoint(flow_in(begun))
    assert checkpoint.state_problem(["Aggregate [city]"], "4.3.0") == "", "a checkpoint that does not know"
    checkpoint.note_flow((), ["Aggregate [country]", "x" * 200 + "a"], "4.3.0")
    checkpoint.require_state(["Aggregate [country]", "x" * 200 + "a"], "4.3.0")
    assert checkpoint.state_problem([], "4.2.1") == ""
    with pytest.raises(
        PipelineError, match=r"made by Aggregate \[country\], and the flow has Aggregate \[city\] now: undo"
    ):
        checkpoint.require_state(["Aggregate [city]", "x" * 200 + "a"], "4.3.0")
    assert checkpoint.state_problem(["Aggregate [country]"], "4.3.0").endswith("xxx..., and the flow has nothing now")
    long = checkpoint.state_problem(["Aggregate [country]", "x" * 200 + "b"], "4.3.0")
    assert f"...{'x' * 80}a, and the flow has ...{'x' * 80}b now" in long


def test_a_rewind_keeps_what_was_and_sets_the_beginning(begun: Path) -> None:
    """The next run plans its first batch from there."""
    checkpoint = Checkpoint(flow_in(begun))
    kept = checkpoint.rewind([{TopicPartition("a", 0): 2, TopicPartition("b", 0): 0}])
    assert json.loads((begun / "state" / "start.json").read_text()) == {"a": {"0": 2}, "b": {"0": 0}}
    assert (kept / "main" / "offsets" / "1").exists()
    assert not checkpoint.has_begun
    assert checkpoint.position() == [{}]
    assert checkpoint.starts() == [{TopicPartition("a", 0): 2, TopicPartition("b", 0): 0}]
    assert checkpoint.reached() == [{TopicPartition("a", 0): 5, TopicPartition("b", 0): 7}], "what the sinks hold"
    checkpoint.rewind([{TopicPartition("a", 0): 9}])
    assert checkpoint.reached() == [{TopicPartition("a", 0): 5, TopicPartition("b", 0): 7}], "as before both"


def test_a_reset_forgets_all_but_the_lock(begun: Path) -> None:
    """The folder is that of a new flow; what is not of a flow's own run stays, as a sink's file."""
    state = begun / "state"
    names = [".lock", "out.db", "before-noon", "main.toml", "bad-rows.csv"]
    for name in names:
        (state / name).touch()
    (state / "other-flow" / "main").mkdir(parents=True)
    (state / "bad-rows").mkdir()
    (state / "bad-rows" / ".lock").touch()
    names.append("bad-rows")  # another flow's checkpoint of this name
    for name in ("run.json", "start-a.json", "admitted-source.json", "topics.json", "model.json", "limits.json"):
        (state / name).touch()
    (state / "bad-rows-a").mkdir()
    checkpoint = Checkpoint(flow_in(begun))
    kept = [checkpoint.rewind([{}]), checkpoint.rewind([{}])]
    assert all((state / name).exists() for name in [*names, "other-flow/main"])
    assert (kept[0] / "bad-rows-a").is_dir()
    assert kept[0] != kept[1], "two rewinds within a second"
    checkpoint.reset()
    assert sorted(each.name for each in state.iterdir()) == sorted([*names, "other-flow"])
    assert (state / "other-flow" / "main").is_dir()


def test_the_end_of_a_run_is_kept_with_its_reason(begun: Path) -> None:
    """For those who come in the morning; a run that was killed has no end."""
    checkpoint = Checkpoint(flow_in(begun))
    checkpoint.note_run({"rows": 3})
    first = checkpoint.last_run()
    assert first["started"].endswith("Z")
    assert "ended" not in first
    Checkpoint(flow_in(begun)).note_run({"rows": 4})
    assert checkpoint.last_run()["started"] == first["started"], "the same run"
    checkpoint.note_end("failed", "the disk is full")
    last = checkpoint.last_run()
    assert (last["rows"], last["status"], last["reason"]) == (4, "failed", "the disk is full")
    checkpoint.note_run({})
    assert not {"ended", "reason", "rows"} & set(checkpoint.last_run())


COMMANDS = (["reset"], ["rewind", "--to", '{"a": {"0": 1}}'])


def test_figures_that_come_after_the_end_do_not_hide_it(begun: Path) -> None:
    """Spark's listener is called in a thread of its own; the next run begins with no figures."""
    checkpoint = Checkpoint(flow_in(begun))
    checkpoint.note_run({})
    checkpoint.note_end("done")
    checkpoint.note_run({"rows": 3})
    assert checkpoint.last_run()["status"] == "done"
    assert "rows" not in checkpoint.last_run()
    checkpoint.note_run({})
    checkpoint.note_run({"rows": 4})
    assert checkpoint.last_run()["rows"] == 4
    assert "status" not in checkpoint.last_run()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each[0])
def test_as_json_a_reset_and_a_rewind_are_done_when_they_say_so(
    begun: Path, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One value on standard output, and one that failed prints none."""
    start = {TopicPartition("a", 0): 1}
    monkeypatch.setattr("barnabas.cli.pipelines.operations._target", lambda *_: start)
    monkeypatch.setattr("barnabas.pipelines.cluster.kafka_cluster._REQUEST_TIMEOUT_S", 0.1)  # no broker is there
    monkeypatch.setattr("barnabas.pipelines.checks.trial._TIMEOUT_MS", 100)
    (begun / "flow.toml").write_text(FLOW)
    words = ["pipeline", command[0], str(begun / "flow.toml"), *command[1:], "--output", "json"]
    assert main(words) == 2
    shown = json.loads(capsys.readouterr().out)
    assert (shown["flow"], shown["done"]) == ("f", False)
    assert Checkpoint(flow_in(begun)).has_begun
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, command[0], lambda *_: Path("/nowhere").read_text())
        assert main([*words, "--yes"]) == 1
        assert capsys.readouterr().out == ""
    assert main([*words, "--yes"]) == 0
    assert json.loads(capsys.readouterr().out)["done"]
    assert not Checkpoint(flow_in(begun)).has_begun


def test_status_shows_how_the_last_run_ended_also_if_it_could_not_say_so(
    begun: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed with kill -9, while it runs, and with a reason of its own; for people and as JSON."""
    (begun / "flow.toml").write_text(FLOW)
    monkeypatch.setattr("barnabas.cli.pipelines.operations._lags", lambda *_: [])

    def status() -> tuple[str, dict[str, Any]]:
        words = ["pipeline", "status", str(begun / "flow.toml")]
        assert main(words) == 0
        text = capsys.readouterr().out
        assert main([*words, "--output", "json"]) == 0
        return text, json.loads(capsys.readouterr().out)["last_run"]

    program = "import os, sys; from barnabas.pipelines.checkpoints.checkpoint import Checkpoint; "
    program += "from barnabas.pipelines.specification import spec; "
    program += "Checkpoint(spec.load(sys.argv[1])).note_run({}); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", program, str(begun / "flow.toml")], check=False)
    assert killed.returncode == -signal.SIGKILL
    text, last = status()
    assert f"last run: began {last['started']}, lost: its process ended without noting why" in text
    assert (last["ended"], last["status"]) == (None, "lost")
    with (begun / "state" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text, last = status()
    assert text.startswith(f"f: runs as process {last['pid']} since {last['started']}\n")
    assert (last["ended"], last["status"], last["reason"]) == (None, "running", None)
    Checkpoint(flow_in(begun)).note_end("failed", "the disk is full")
    text, last = status()
    assert f", failed {last['ended']}: the disk is full" in text
    assert (last["status"], last["reason"]) == ("failed", "the disk is full")


def test_a_flow_runs_while_its_checkpoint_is_locked(begun: Path) -> None:
    """The lock ends with its process, whatever run.json says."""
    checkpoint = Checkpoint(flow_in(begun))
    checkpoint.note_run({"rows": 3})
    assert not checkpoint.is_running()
    assert not checkpoint.stop()
    with (begun / "state" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert checkpoint.is_running()
    assert not checkpoint.is_running()
    assert checkpoint.last_run()["rows"] == 3


HOLDER = """\
import fcntl, os, sys, time
folder = sys.argv[1]
lock = open(folder + "/.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)
"""


def test_stop_signals_the_process_that_holds_the_checkpoint_and_no_other(begun: Path) -> None:
    """run.json may still name the process of the run before, and its number may be
    another program's by now."""
    checkpoint = Checkpoint(flow_in(begun))
    command = [sys.executable, "-c", HOLDER, str(begun / "state")]
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger,
        subprocess.Popen(command, stdout=subprocess.PIPE) as holder,
    ):
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"locked\n"
            checkpoint.note_run({"pid": stranger.pid})
            with pytest.raises(PipelineError, match="not as the process of this machine that .*run.json names"):
                checkpoint.stop(0.3)
            assert stranger.poll() is None
            checkpoint.note_run({"pid": holder.pid})
            assert checkpoint.stop(60)
            assert holder.wait(60) == -signal.SIGTERM
        finally:
            holder.kill()
            stranger.kill()


def test_what_repeats_is_said_for_each_sink(begun: Path) -> None:
    """Windows that are cut in two, topics that take records again, functions that
    are called again."""
    text = FLOW + '[[sinks]]\ntype = "topic"\ntopic = "o"\n'
    first, second = what_repeats(parse(text))
    assert first.startswith("sqlite table t keeps one row for each window_start, window_end, kind")
    assert "A window that began before the new position gets figures of the repeated records only" in first
    assert second.startswith("topic o takes the results again, with the same keys")
    letters = text.replace("topics =", 'bad_rows_topic = "bad"\ntopics =')
    assert [each[:30] for each in what_repeats(parse(letters))[2:]] == [
        "topic bad takes the bad rows o",
        "records that `pipeline replay`",
    ]


def test_another_name_does_not_fit_tables_but_fits_topics(begun: Path) -> None:
    """Tables keep their micro-batches under the flow's name."""
    renamed = flow_in(begun, ('name = "f"', 'name = "g"'))
    (change,) = Checkpoint(renamed).changes()
    assert (change.field, change.fits) == ("name", False)
    assert change.message.startswith("was f; tables know")
    sink = 'type = "sqlite"\npath = "out.db"\ntable = "t"'
    topics_only = flow_in(begun, ('name = "f"', 'name = "g"'), (sink, 'type = "topic"\ntopic = "o"'))
    assert all(change.fits for change in Checkpoint(topics_only).changes())


def test_positions_belong_to_sources_and_not_to_lines(tmp_path: Path) -> None:
    """The lines of Spark's checkpoint follow its plan; where that is not known, topics tell."""
    text = FLOW.replace("[source]\n", "[sources.first]\n").replace('topics = ["a", "b"]', 'topics = ["a"]')
    more = '[sources.second]\ntopics = ["b"]\nformat = { type = "text" }\n[[steps]]\nname = "s"\nfrom = "first"\n'
    text = text.replace("[transform]\n", f"{more}[transform]\n")
    flow = parse(text, file=str(tmp_path / "flow.toml"))
    main = tmp_path / "state" / "main"
    for name, content in (
        ("offsets/0", 'v1\n{}\n{"b":{"0":7}}\n{"a":{"0":5}}\n{"a":{"0":4}}'),
        ("commits/0", "v1\n{}"),
    ):
        (main / name).parent.mkdir(parents=True)
        (main / name).write_text(content)
    checkpoint = Checkpoint(flow)
    expected: list[Any] = [{TopicPartition("a", 0): 4}, {TopicPartition("b", 0): 7}]
    assert checkpoint.position() == expected
    checkpoint.note_flow(["second", "first", "first"])
    assert checkpoint.position() == expected
    checkpoint.note_flow(["first", "second", "second"])
    assert checkpoint.position()[0] == {TopicPartition("b", 0): 7}, "the order counts"


def test_a_rewind_says_that_a_parquet_folder_must_be_moved() -> None:
    """It cannot replace rows, and refuses to add them again."""
    text = FLOW[: FLOW.index("[aggregate]")] + '[[sinks]]\ntype = "parquet"\npath = "lake"\n'
    (repeated,) = what_repeats(parse(text))
    assert "move its folder away before the next run" in repeated


class Cluster:
    """Answers with ids of topics."""

    def __init__(self, **ids: str) -> None:
        self._ids = ids

    def topic_ids(self, topics: list[str]) -> dict[str, str]:
        return {topic: self._ids[topic] for topic in topics if topic in self._ids}


def test_a_topic_that_was_made_again_between_two_runs_is_noticed(tmp_path: Path) -> None:
    """By its id; a topic that comes later is none of them, and brokers without ids
    give nothing to compare."""
    flow = flow_in(tmp_path)
    (source,) = flow.sources
    said: list[str] = []

    def is_other(source: Any, **now: str) -> bool:
        return TopicIds(tmp_path).require_same(source, cast(Any, Cluster(**now)), flow, said.append)

    ids = TopicIds(tmp_path)
    assert not ids.require_same(source, cast(Any, Cluster(a="1")), flow, said.append)
    ids.save()
    assert not is_other(source, a="1", b="2")
    assert not is_other(source)
    with pytest.raises(DataLossError, match="topic a was deleted and made again.*rewind .* --to earliest --yes"):
        is_other(source, a="9")
    assert said == []
    assert is_other(replace(source, fail_on_data_loss=False), a="9")
    assert [each[:30] for each in said] == ["warning: topic a was deleted a"]


def test_positions_in_a_topic_that_was_made_again_are_moved_once(tmp_path: Path) -> None:
    """By the first micro-batch that a query plans then, whenever the flow is killed; further
    queries move theirs themselves."""
    flow = flow_in(tmp_path)
    source = replace(flow.source, fail_on_data_loss=False)

    def plan(query: str, batch: int) -> None:
        folder = tmp_path / query / "offsets"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(batch)).touch()

    def start(topic_id: str) -> TopicIds:
        ids = TopicIds(tmp_path)
        ids.require_same(source, cast(Any, Cluster(a=topic_id)), flow, lambda _: None)
        ids.save()
        return ids

    assert start("1").to_begin(source, "main") == []
    plan("main", 0)
    plan("main", 11)
    assert start("2").to_begin(source, "main") == ["a"]
    assert start("2").to_begin(source, "bad-rows") == ["a"]  # killed before it had planned
    plan("main", 12)
    assert start("2").to_begin(source, "main") == []
    assert start("2").to_begin(source, "bad-rows") == ["a"]
    assert start("3").to_begin(source, "main") == ["a"]


def test_a_topic_that_was_made_again_replaces_no_rows_in_silence(tmp_path: Path) -> None:
    """Rows that are known by their position in a topic: the new topic has the same ones."""
    text = FLOW[: FLOW.index("[aggregate]")] + '[[sinks]]\ntype = "sqlite"\npath = "o.db"\ntable = "rows"\n'
    flow = parse(text)
    ids = TopicIds(tmp_path)
    ids.require_same(flow.source, cast(Any, Cluster(a="1")), flow, lambda _: None)
    with pytest.raises(
        DataLossError, match="Rows of the topic before are replaced in sqlite table rows: the key is a position"
    ):
        ids.require_same(flow.source, cast(Any, Cluster(a="2")), flow, lambda _: None)
