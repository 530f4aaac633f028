"""How many rows of a source may be bad, over runs that break, without Spark."""

import json
from functools import partial
from pathlib import Path

import pytest

from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.progress.bad_limits import BadRowLimits
from barnabas.pipelines.progress.progress import Totals
from barnabas.pipelines.running.run import run_flow, run_on
from barnabas.pipelines.specification.spec import Flow, parse

FLOW = """\
name = "f"
checkpoint = "state"
[source]
bootstrap_servers = "localhost:9092"
topics = ["t"]
max_bad = "10%"
format = { type = "json", columns = { id = "bigint" } }
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""


def flow_in(folder: Path, text: str = FLOW) -> Flow:
    (folder / "state").mkdir(exist_ok=True)
    return parse(text, file=str(folder / "flow.toml"))


def totals(rows: int, bad_rows: int) -> Totals:
    figures = {"rows": rows, "bad_rows": bad_rows}
    return Totals(sources={"source": figures}, bad={"WRONG_TYPE": bad_rows}, bad_example="column id is x")


def limits_in(folder: Path, text: str = FLOW, said: list[str] | None = None) -> BadRowLimits:
    return BadRowLimits(flow_in(folder, text), (said if said is not None else []).append)


def test_a_flow_that_its_bad_rows_ended_does_not_start_until_they_are_accepted(tmp_path: Path) -> None:
    """A supervisor that starts it again gets the same reason; a higher limit or a
    person's word lets it go on."""
    running = limits_in(tmp_path)
    running.check(totals(3, 1))
    running.check(totals(200, 20))
    with pytest.raises(
        PipelineError, match=r"^21 of 200 rows of source are bad, more than max_bad = 10% \(WRONG_TYPE: 21\)"
    ):
        running.check(totals(200, 21))
    notes = Checkpoint(flow_in(tmp_path))
    notes.note_run({"rows": 200})
    notes.note_end("failed", "21 of 200 rows of source are bad")
    before = notes.last_run()
    for start in (run_flow, partial(run_on, None)):
        with pytest.raises(PipelineError, match="passed max_bad: 21 of 200 rows .* rewind .*--accept-bad-rows"):
            start(flow_in(tmp_path))
    assert notes.last_run() == before, "what `status` shows is the run, not the start that was refused"
    limits_in(tmp_path, FLOW.replace("10%", "11%")).require_start()
    limits_in(tmp_path, FLOW.replace('"10%"', '"10%"\non_max_bad = "warn"')).require_start()
    limits_in(tmp_path).forget()
    accepted = limits_in(tmp_path)
    accepted.require_start()
    accepted.check(totals(100, 10))


def test_what_ended_a_short_run_for_good_ends_its_next_start_too(tmp_path: Path) -> None:
    """Of all that there was one row in three was bad, though a flow that runs waits
    for more rows."""
    running = limits_in(tmp_path)
    running.check(totals(3, 1))
    with pytest.raises(PipelineError, match="1 of 3 rows of source are bad"):
        running.check(totals(3, 1), is_final=True)
    with pytest.raises(PipelineError, match="1 of 3 rows of source are bad"):
        limits_in(tmp_path).require_start()


def test_a_run_that_was_killed_leaves_its_counts_to_the_next_one(tmp_path: Path) -> None:
    """And one that ended well does not."""
    killed = limits_in(tmp_path)
    killed.note(totals(100, 6))
    restarted = limits_in(tmp_path)
    restarted.require_start()
    restarted.check(totals(20, 5))
    with pytest.raises(PipelineError, match="13 of 120 rows"):
        restarted.check(totals(20, 7))
    limits_in(tmp_path).forget()
    well = limits_in(tmp_path)
    well.note(totals(100, 6))
    well.forget()
    limits_in(tmp_path).check(totals(20, 7))


def test_a_flow_that_only_warns_goes_on_counting_and_says_so_once(tmp_path: Path) -> None:
    """In each run."""
    said: list[str] = []
    text = FLOW.replace('"10%"', '3\non_max_bad = "warn"')
    limits_in(tmp_path).note(totals(10, 2))
    warning = limits_in(tmp_path, text, said)
    warning.require_start()
    for _ in range(2):
        warning.check(totals(10, 2))
    assert said == [
        "warning: 4 of 20 rows of source are bad, more than max_bad = 3 rows (WRONG_TYPE: 2); for example: column id is x"
    ]


def test_no_counts_are_kept_without_bad_rows_or_limits(tmp_path: Path) -> None:
    """A damaged file is named, and not taken for no bad rows."""
    limits_in(tmp_path).note(totals(100, 0))
    limits_in(tmp_path, FLOW.replace('max_bad = "10%"\n', "")).note(totals(100, 50))
    path = tmp_path / "state" / "limits.json"
    assert not path.exists()
    path.write_text(json.dumps({"counts": {"source": 3}, "passed": {}}))
    with pytest.raises(PipelineError, match=r"limits\.json is damaged"):
        limits_in(tmp_path)
