"""A rewind and a reset: ways out of what is wrong, so they work on damaged checkpoints and full
disks, and replace no row by an older one."""

import errno
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from barnabas.base.files import OsFiles  # noqa: E402
from barnabas.base.ids import TopicPartition  # noqa: E402
from barnabas.cli.main import main  # noqa: E402
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint  # noqa: E402
from barnabas.pipelines.errors import PipelineError  # noqa: E402
from barnabas.pipelines.frames.ordering import RowVersions, last_record, newer_rows  # noqa: E402
from barnabas.pipelines.specification.spec import SpecError, parse  # noqa: E402

FLOW = """\
name = "f"
checkpoint = "state"
[source]
bootstrap_servers = "localhost:9092"
topics = ["a"]
format = { type = "json", columns = { id = "bigint", version = "int" } }
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""
KEYED = FLOW + 'key = ["id"]\n'
ORDERED = KEYED + 'order_by = "version"\n'


class Cluster:
    """What a rewind asks of a cluster: a topic with this many partitions and ten
    records in each."""

    def __init__(self, partitions: int, topic_id: str) -> None:
        self.topic_id = topic_id
        self._partitions = [TopicPartition("a", number) for number in range(partitions)]

    def partitions(self) -> list[TopicPartition]:
        return self._partitions

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, self.topic_id)

    def at_marks(self, marks: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {name: 0 if mark == -2 else 10 for name, mark in marks.items()}

    def resolve(self, partitions: Sequence[TopicPartition], bound: Any) -> dict[TopicPartition, int]:
        return {name: max(0, bound.offsets.get(name, 0)) for name in partitions}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster of a flow that began with one partition."""
    found = Cluster(1, "1")
    monkeypatch.setattr("barnabas.pipelines.checks.trial.source_cluster", lambda _: found)
    return found


def begin(folder: Path, text: str) -> Path:
    """A checkpoint with one micro-batch.

    Returns the flow's file, whose name needs quotes in a shell."""
    file = folder / "my flow.toml"
    file.write_text(text)
    state = folder / "state"
    for part, content in {
        "main/offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"a":{"0":5}}', "main/commits/0": "v1", "start.json": '{"a":{"0":0}}',
        "flow.json": "{}", "topics.json": '{"source": {"a": "1"}}', "bad-rows/offsets/0": "v1", "limits.json": "{}",
    }.items():  # fmt: skip
        (state / part).parent.mkdir(parents=True, exist_ok=True)
        (state / part).write_text(content)
    return file


def files(folder: Path) -> dict[str, bytes]:
    """What is in a folder."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


REWIND = ["rewind", "--to", "earliest"]


@pytest.mark.parametrize(("text", "refused"), [(FLOW, False), (KEYED, True), (ORDERED, False)])
@pytest.mark.parametrize("action", [REWIND, ["reset"]], ids=lambda each: each[0])
def test_records_are_not_read_again_out_of_order_after_partitions_were_added(
    tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str], action: list[str], text: str, refused: bool
) -> None:
    """Where the last row of a key counts and no column orders them; an option by
    name goes on all the same."""
    file = begin(tmp_path, text)
    command = ["pipeline", action[0], str(file), *action[1:], "--yes"]
    cluster.__init__(3, "1")  # type: ignore[misc]
    before = files(tmp_path)
    assert main(command) == (1 if refused else 0)
    if not refused:
        return
    error = capsys.readouterr().err
    assert "a-1, a-2 were added" in error
    assert "sqlite table t" in error
    assert 'order_by = "COLUMN"' in error
    assert files(tmp_path) | {"state/.lock": b""} == before | {"state/.lock": b""}
    assert main([*command, "--any-order"]) == 0
    if action[0] == "rewind":  # the partitions are still such that the topic did not have
        assert main(command) == 1


@pytest.mark.parametrize("action", [REWIND, ["reset"]], ids=lambda each: each[0])
def test_a_topic_that_was_made_again_replaces_rows_only_where_that_is_said(
    tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str], action: list[str]
) -> None:
    """Rows that are known by their position are those of the topic before."""
    file = begin(tmp_path, FLOW)
    command = ["pipeline", action[0], str(file), *action[1:], "--yes"]
    cluster.topic_id = "2"
    assert main(command) == 1
    assert "--replace-rows" in capsys.readouterr().err
    assert main([*command, "--replace-rows"]) == 0


def test_a_rewind_keeps_the_ids_of_the_topics_that_it_has_positions_in(tmp_path: Path, cluster: Cluster) -> None:
    """So a topic that is made again after a rewind and before the next run is noticed."""
    file = begin(tmp_path, KEYED)
    cluster.topic_id = "2"
    assert main(["pipeline", "rewind", str(file), "--to", "latest", "--yes"]) == 0
    assert json.loads((tmp_path / "state" / "topics.json").read_text()) == {"source": {"a": "2"}}


@pytest.mark.parametrize("part", ["main/offsets/0", "start.json", "topics.json", "flow.json", "limits.json"])
def test_a_damaged_checkpoint_is_left_by_a_rewind(
    tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    """What the errors of runs advise; offsets must name all partitions then, for the
    others have no known place."""
    del cluster
    file = begin(tmp_path, FLOW)
    (tmp_path / "state" / part).write_text("v1\n{\n{ damaged")
    assert main(["pipeline", "rewind", str(file), "--to", '{"a": {"0": 3}}', "--yes"]) == 0
    assert ("is damaged" in capsys.readouterr().err) == (part in ("main/offsets/0", "topics.json"))
    assert Checkpoint(parse(FLOW, file=str(file))).starts() == [{TopicPartition("a", 0): 3}]


def test_offsets_for_a_damaged_checkpoint_must_name_all_partitions(
    tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others would begin at their first record in silence."""
    cluster.__init__(2, "1")  # type: ignore[misc]
    file = begin(tmp_path, FLOW)
    (tmp_path / "state" / "main" / "offsets" / "0").write_text("v1")
    (tmp_path / "state" / "main" / "offsets" / "0").write_text("v1\n{\n{ damaged")
    assert main(["pipeline", "rewind", str(file), "--to", '{"a": {"0": 3}}', "--yes"]) == 1
    assert "--to names no offset of a-1" in capsys.readouterr().err


def test_a_rewind_on_a_full_disk_changes_nothing(
    tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is written before anything is moved."""
    del cluster
    file = begin(tmp_path, FLOW)
    before = files(tmp_path)
    writes = itertools.count()
    write = OsFiles.write_atomically

    def fails_second(self: OsFiles, path: str, content: bytes) -> None:
        if next(writes):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        write(self, path, content)

    monkeypatch.setattr(OsFiles, "write_atomically", fails_second)
    assert main(["pipeline", "rewind", str(file), "--to", "earliest", "--yes"]) == 1
    assert "cannot be changed: No space left on device" in capsys.readouterr().err
    assert files(tmp_path) == before | {"state/.lock": b""}


@pytest.mark.parametrize("moves", range(8))
def test_a_rewind_that_is_killed_has_happened_or_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """Never does a run begin where the flow began at first."""
    file = begin(tmp_path, FLOW)
    checkpoint = Checkpoint(parse(FLOW, file=str(file)))
    left = itertools.count(moves, -1)

    class KilledError(BaseException):
        pass

    for name in ("rename", "replace"):
        move = getattr(Path, name)

        def moved(self: Path, target: Path, move: Any = move) -> Path:
            if not next(left):
                raise KilledError
            return Path(move(self, target))

        monkeypatch.setattr(Path, name, moved)
    try:
        checkpoint.rewind([{TopicPartition("a", 0): 4}], "{}")
    except KilledError:
        assert moves < 6
    assert checkpoint.starts()[0][TopicPartition("a", 0)] in (5, 4)


def test_a_reset_leaves_what_says_how_new_the_rows_of_sinks_are(tmp_path: Path) -> None:
    """The rows stay, too."""
    file = begin(tmp_path, ORDERED)
    (tmp_path / "state" / "versions.db").touch()
    Checkpoint(parse(ORDERED, file=str(file))).reset()
    assert sorted(each.name for each in (tmp_path / "state").iterdir()) == [".lock", "versions.db"]


def test_advice_is_a_command_line_that_a_shell_takes(tmp_path: Path) -> None:
    """The file's name has a blank."""
    places = parse(FLOW, file=str(tmp_path / "my flow.toml")).places
    assert places.command("rewind") == f"barnabas pipeline rewind '{tmp_path}/my flow.toml'"


@pytest.mark.parametrize("text", [FLOW + 'order_by = "version"\n', KEYED + "order_by = 3\n"])
def test_an_order_needs_a_key_and_a_column(text: str) -> None:
    """Rows that are keyed by their position are one for each key."""
    with pytest.raises(SpecError, match="order_by"):
        parse(text)


changes = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 5))), max_size=40
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(rows=changes, cuts=st.lists(st.integers(0, 40), max_size=6), again=st.booleans())
def test_the_newest_version_of_each_key_is_kept_however_rows_are_cut_into_micro_batches(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int | None]], cuts: list[int], again: bool
) -> None:
    """As in a plain loop over all rows in which a row replaces one that is not newer; a batch that
    runs again changes nothing."""
    expected: dict[str, tuple[int | None, int]] = {}
    for number, (key, version) in enumerate(rows):
        if key not in expected or (-1 if version is None else version) >= (
            -1 if expected[key][0] is None else expected[key][0] or 0
        ):
            expected[key] = (version, number)
    versions = RowVersions(tmp_path_factory.mktemp("v") / "versions.db")
    table: dict[str, tuple[int | None, int]] = {}
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for first, last in itertools.pairwise(bounds):
        latest: dict[str, tuple[int | None, int]] = {}
        for number in range(first, last):  # what `latest_per_key` does
            key, version = rows[number]
            held = latest.get(key, (None, -1))[0]
            if key not in latest or (-1 if version is None else version) >= (-1 if held is None else held):
                latest[key] = (version, number)
        batch = pa.table(
            {"key": list(latest), "version": pa.array([each[0] for each in latest.values()], pa.int64()),
             "number": pa.array([each[1] for each in latest.values()], pa.int64())}
        )  # fmt: skip
        for _ in range(2 if again else 1):
            newer = newer_rows(batch, ["key"], "version", lambda found: versions.advance("t", found))
            table |= {row["key"]: (row["version"], row["number"]) for row in newer.to_pylist()}
    versions.close()
    assert table == expected


def test_versions_are_kept_exactly_over_runs_and_for_each_sink(tmp_path: Path) -> None:
    """Whole numbers beyond 2**53, decimals, and another sink with the same keys."""
    large = 2**62
    for sink in ("a", "b"):
        versions = RowVersions(tmp_path / "versions.db")
        assert versions.advance(sink, {"k": large, "x": 1.5, "n": None}) == {"k", "x", "n"}
        versions.close()
        versions = RowVersions(tmp_path / "versions.db")
        assert versions.advance(sink, {"k": large - 1, "x": 1.4999, "n": None}) == {"n"}
        assert versions.advance(sink, {"k": large, "x": float("inf"), "n": 0}) == {"k", "x", "n"}
        versions.close()
    (tmp_path / "bad.db").write_text("no database, but a text that is long enough to be read as one" * 20)
    with pytest.raises(PipelineError, match="order_by"):
        RowVersions(tmp_path / "bad.db")


def test_of_a_key_in_several_partitions_the_record_with_the_latest_time_counts() -> None:
    """A record without a time is older than any with one; of equal times the one of the
    highest partition counts."""

    def record(partition: int, time: int | None) -> dict[str, Any]:
        return {"partition": partition, "timestamp": time}

    assert last_record([record(0, 5), record(3, 4)])["partition"] == 0
    assert last_record([record(0, 5), record(3, 5)])["partition"] == 3
    assert last_record([record(0, 5), record(3, None)])["partition"] == 0
    assert last_record([record(0, None), record(3, None)])["partition"] == 3
