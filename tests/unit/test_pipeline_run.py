"""What surrounds a flow: its lock, its totals, its command line; without Spark."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.installation import install_command
from barnabas.cli.pipelines.operations import lag_text, reason_lines
from barnabas.cli.pipelines.pipeline import main
from barnabas.pipelines.cluster.offsets import Offsets
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.flow_file.masters import require_master
from barnabas.pipelines.packages import MissingExtraError, require_extra
from barnabas.pipelines.progress.progress import CatchUp, GroupCommitter, Progress, Totals
from barnabas.pipelines.running.guards import locked_checkpoint
from support.ports import free_ports

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "flights.toml"


def report(batch: int, rows: int, end: int, latest: int, *, bad: int = 0, late: int = 0) -> dict[str, Any]:
    """A progress report, of its many fields those that count."""
    return {
        "batchId": batch,
        "numInputRows": rows,
        "observedMetrics": {"barnabas.source": {"rows": rows, "bad_rows": bad}},
        "stateOperators": [{"numRowsDroppedByWatermark": late}],
        "sources": [{"endOffset": json.dumps({"t": {"0": end}}), "latestOffset": {"t": {"0": latest}}}],
    }


def test_one_checkpoint_is_for_one_process(tmp_path: Path) -> None:
    """The second is refused; after the first has ended the checkpoint is free."""
    with (
        locked_checkpoint(tmp_path / "c"),
        pytest.raises(PipelineError, match="another process runs the flow"),
        locked_checkpoint(tmp_path / "c"),
    ):
        pass
    with locked_checkpoint(tmp_path / "c"):
        pass


def test_totals_add_up_each_batch_once() -> None:
    """A report that comes twice, from the listener and at the end, counts once; one without
    records has late rows, too."""
    shown: list[int] = []

    def show(totals: Totals) -> None:
        shown.append(totals.rows)

    progress = Progress([], show)
    progress.update(report(0, 10, 10, 25, bad=1))
    progress.update(report(1, 10, 20, 25, late=2))
    progress.update(report(0, 10, 10, 25, bad=1))
    progress.update(report(1, 10, 20, 25, late=2))
    progress.update(report(2, 0, 20, 25, late=3))
    progress.update(report(2, 0, 20, 25, late=3))
    totals = progress.totals
    assert (totals.batches, totals.rows, totals.bad_rows, totals.late_rows) == (2, 20, 1, 5)
    assert totals.lag == 5
    assert totals.offsets == {"t": {"0": 20}}
    assert shown[-1] == 20


def test_each_column_with_wrong_values_keeps_its_first_example() -> None:
    """Half the rows have swapped columns: the most frequent fault must not hide
    behind the example of another."""
    progress = Progress([], lambda _: None)
    for batch, example in enumerate((None, "column price is de (t-0-7)", "column price is nl (t-0-9)")):
        each = report(batch, 10, 10 * (batch + 1), 30, bad=1)
        figures = next(iter(each["observedMetrics"].values()))
        figures |= {"column:price": 5, "example:column price": example, "example:MALFORMED": None}
        progress.update(each)
    assert progress.totals.bad_examples == {"column price": "column price is de (t-0-7)"}
    assert progress.totals.bad == {"column price": 15}


def test_a_flow_with_nothing_to_read_does_not_stand_still() -> None:
    """Spark reports no progress while it is idle: its last success is then."""
    shown: list[float | None] = []
    progress = Progress([], lambda totals: shown.append(totals.last_success_s))
    progress.update({**report(0, 3, 3, 3), "timestamp": "2026-01-01T00:00:00.000Z"})
    progress.note_idle("2026-01-01T00:20:00.000Z")
    assert shown[1] == (shown[0] or 0) + 1200


def test_the_lag_is_unknown_until_spark_has_looked_at_the_topics() -> None:
    """The first report after a restart has no ends of the topics: that is no lag of 0."""
    progress = Progress([], lambda _: None)
    first = report(0, 0, 10, 25)
    del first["sources"][0]["latestOffset"]
    progress.update(first)
    assert progress.totals.lag is None
    progress.update(report(1, 10, 20, 25))
    assert progress.totals.lag == 5


def test_a_group_gets_the_position_of_the_checkpoint_at_the_start() -> None:
    """The driver before may have been killed between a micro-batch and its commit; of two
    sources the one behind counts."""
    committed: list[Offsets] = []

    class Committer(GroupCommitter):
        def __init__(self) -> None:
            """Without a broker."""

        def commit(self, offsets: Offsets) -> None:
            committed.append(offsets)

    progress = Progress([Committer()], lambda _: None)
    progress.resume([{}, {}])
    assert committed == []
    progress.resume([{TopicPartition("t", 0): 5, TopicPartition("t", 1): 2}, {TopicPartition("t", 0): 3}])
    assert committed == [{TopicPartition("t", 0): 3, TopicPartition("t", 1): 2}]


def test_a_topic_name_in_two_clusters_is_two_topics() -> None:
    """Each cluster's group gets its own position, and the lag is the sum of both."""
    committed: list[tuple[str, Offsets]] = []

    class Committer(GroupCommitter):
        def __init__(self, cluster: str) -> None:
            """Without a broker."""
            self.cluster = cluster

        def commit(self, offsets: Offsets) -> None:
            committed.append((self.cluster, offsets))

    progress = Progress([Committer("east"), Committer("west")], lambda _: None)
    name = TopicPartition("t", 0)
    progress.resume([{name: 5}, {name: 90}], ["east", "west"])
    assert committed == [("east", {name: 5}), ("west", {name: 90})]
    progress.clusters = ["west", "east"]  # the query reads them in this order
    both = report(0, 10, 95, 100)
    both["sources"] += report(0, 10, 6, 20)["sources"]
    progress.update(both)
    assert committed[2:] == [("east", {name: 6}), ("west", {name: 95})]
    assert progress.totals.lag == (100 - 95) + (20 - 6)


def test_check_shows_where_results_go(capsys: pytest.CaptureFixture[str]) -> None:
    """Without Spark, in a moment; for people and for programs."""
    assert main(["check", str(EXAMPLE), "--without-spark"]) == 0
    shown = capsys.readouterr().out
    assert "one row for each window_start, window_end, carrier" in shown
    assert "not checked without Spark" in shown
    assert main(["check", str(EXAMPLE), "--without-spark", "--output", "json", "--set", "sinks[1].topic=other"]) == 0
    assert json.loads(capsys.readouterr().out)["sinks"] == ["sqlite table flights_by_carrier", "topic other"]


def test_a_missing_file_is_named() -> None:
    """By its name."""
    with pytest.raises(BarnabasError, match=r"cannot read nowhere\.toml"):
        main(["check", "nowhere.toml"])


def test_a_missing_extra_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=re.escape(install_command("pipelines"))):
        require_extra()


@pytest.mark.parametrize("version", ["4.1.4", "4.20.0", "5.0.0"])
def test_another_pyspark_is_refused_with_the_versions_that_fit(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Its data sources differ; a flow would fail in the midst of its start."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    with pytest.raises(MissingExtraError, match=rf"run on PySpark 4\.2 and 4\.3; {version} is installed"):
        require_extra()


def test_no_master_at_the_url_is_reported_at_once() -> None:
    """Spark would try for a minute, then speak of a stopped context."""
    (port,) = free_ports(1)
    with pytest.raises(BarnabasError, match=rf"no Spark master answers at spark://127\.0\.0\.1:{port} \(.*refused"):
        require_master(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize("master", ["spark1:7077", "http://spark1:8080", "local[x]"])
def test_a_master_in_no_form_of_sparks_is_refused(master: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the forms that there are."""
    assert main(["check", str(EXAMPLE), "--without-spark", "--set", f"resources.master={master}"]) == 1
    assert re.match(r'--set: resources\.master: is .*, but must be like "spark://host:7077"', capsys.readouterr().err)


def test_a_flow_whose_brokers_do_not_answer_ends_before_spark_starts(tmp_path: Path, capsys: Any) -> None:
    """Spark takes many seconds; the error takes none."""
    (port,) = free_ports(1)
    options = [f"source.bootstrap_servers=127.0.0.1:{port}", f"checkpoint={tmp_path}/state"]
    argv = ["run", str(EXAMPLE), *(text for option in options for text in ("--set", option))]
    with pytest.raises(BarnabasError, match=f"127.0.0.1:{port} refused the connection: is a broker running there"):
        main(argv)
    assert "starting Spark" not in capsys.readouterr().err


def test_the_time_to_catch_up_follows_from_the_last_minute() -> None:
    """What was read less what was added; None for a flow that falls behind, 0 for
    one that is done."""
    catch_up = CatchUp()
    assert catch_up.seconds(0.0, 0, 1000) is None
    # 20 records a second nearer, 800 are left.
    assert catch_up.seconds(10.0, 300, 1100) == pytest.approx(40.0)
    assert catch_up.seconds(20.0, 310, 2000) is None
    assert catch_up.seconds(30.0, 2000, 2000) == 0.0
    assert catch_up.seconds(200.0, 2000, 2100) is None  # the minute has none but the newest points


def test_a_run_knows_its_time_to_catch_up_after_its_first_micro_batch() -> None:
    """From where the batch began, and how long it took."""
    now = [100.0]
    progress = Progress([], lambda _: None, clock=lambda: now[0])
    first = report(0, 10, 10, 40)
    first["sources"][0]["startOffset"] = {"t": {"0": 0}}
    progress.update({**first, "batchDuration": 5000})
    assert progress.totals.catch_up_s == pytest.approx(15.0)
    assert lag_text(progress.totals.lag, progress.totals.catch_up_s) == "30 (read in 15 s)"
    assert (lag_text(None, None), lag_text(0, 0.0), lag_text(5000, 3700)) == (
        "unknown",
        "0",
        "5,000 (read in 1 h 1 min)",
    )


def test_a_flow_on_spark_connect_is_refused_with_what_to_name_instead(capsys: pytest.CaptureFixture[str]) -> None:
    """Its checks and sinks need a driver of their own."""
    assert main(["check", str(EXAMPLE), "--without-spark", "--set", "resources.master=sc://spark1:15002"]) == 1
    assert re.search(r"master: .*does not run over Spark Connect.*spark://host:7077", capsys.readouterr().err)


def test_a_connection_that_breaks_in_a_run_is_no_fault_of_the_checkpoint(tmp_path: Path) -> None:
    """The JVM was killed, for one."""
    message = r"^the connection to Spark's JVM broke .* it goes on from its checkpoint$"
    with pytest.raises(PipelineError, match=message), locked_checkpoint(tmp_path / "state"):
        raise ConnectionRefusedError(111, "Connection refused")


def test_reasons_that_are_not_listed_are_counted() -> None:
    """A list that is cut says so, and how all can be had."""
    assert list(reason_lines({"rare": 1, "often": 1200})) == ["1,200: often", "1: rare"]
    lines = list(reason_lines({f"column {number}": 100 - number for number in range(13)}))
    assert lines[9:] == ["91: column 9", "267: 3 other reasons (all of them: --output json)"]
