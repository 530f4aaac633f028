"""What `pipeline verify` compares, and how it says what differs."""

import datetime
import decimal
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from barnabas.cli import pipeline_verification
from barnabas.cli.main import main
from barnabas.pipelines import verification
from barnabas.pipelines.row_comparison import EXPECTED, FOUND, RowComparison, RowDifference, text_of
from barnabas.pipelines.spec import parse
from barnabas.pipelines.verification import CheckedRange, CheckedSink, Verification

FLOW = """\
name = "f"
checkpoint = "state"
[source]
bootstrap_servers = "localhost:9092"
topics = ["a"]
format = { type = "json", columns = { id = "bigint" } }
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""
pairs = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=12)


@settings(max_examples=50, deadline=None)
@given(expected=pairs, found=pairs)
def test_differences_are_those_of_two_bags_of_rows(
    tmp_path_factory: pytest.TempPathFactory, expected: list[tuple[str, str]], found: list[tuple[str, str]]
) -> None:
    """Each key once, with the rows that only one side has, as often as it has more of them."""
    rows = RowComparison(tmp_path_factory.mktemp("rows") / "rows.db")
    rows.add(EXPECTED, expected)
    rows.add(FOUND, found)
    assert (rows.count(EXPECTED), rows.count(FOUND)) == (len(expected), len(found))
    missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    model = [
        RowDifference(key, *(sorted(row for at, row in side.elements() if at == key) for side in (missing, extra)))
        for key in sorted({key for key, _ in (missing + extra)})
    ]
    assert list(rows.differences()) == model
    rows.close()


def test_rows_are_put_by_their_keys(tmp_path: Path) -> None:
    """As a sink puts them: a row replaces that of its key, and None deletes it."""
    rows = RowComparison(tmp_path / "rows.db")
    rows.put(EXPECTED, [("a", "1"), ("b", "1"), ("a", "2")])
    rows.put(EXPECTED, [("b", None), ("c", "3")])
    rows.put(FOUND, [("a", "2"), ("d", "4")])
    assert [(each.kind, each.key) for each in rows.differences()] == [("missing", "c"), ("extra", "d")]
    rows.close()


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (decimal.Decimal("1.50"), decimal.Decimal("1.5"), True),
        (decimal.Decimal("0.00"), decimal.Decimal(0), True),
        (-0.0, 0.0, True),
        (float("nan"), float("nan"), True),
        ({"a": 1, "b": [2.5]}, {"b": [2.5], "a": 1}, True),
        (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
         datetime.datetime(2026, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))), True),
        (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2026, 1, 1), False),  # noqa: DTZ001  # a time without a zone
        (b"a", "a", False), (None, "null", False), (1, "1", False), (2**62, 2**62 + 1, False), (1, None, False),
    ],
)  # fmt: skip
def test_equal_values_have_equal_texts(one: Any, other: Any, equal: bool) -> None:
    """Whatever way an output gives them back; different values have different ones."""
    assert (text_of([one]) == text_of([other])) == equal


FOUND_ONES = Verification(
    "f",
    [CheckedRange("source", "a", 0, 3, 9, 3)],
    [
        CheckedSink("sqlite table t", True, "", 7, 1, 0, 1, [RowDifference("[1]", ["[1,2]"], []), RowDifference("[2]", ["[2,2]"], ["[2,3]"])]),
        CheckedSink("function report", reason="what a function does with rows cannot be seen"),
    ],
)  # fmt: skip


def test_differing_rows_are_listed_and_the_exit_status_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The offsets that were looked at, each output, and each row with what is expected; the same as JSON."""
    from contextlib import nullcontext

    monkeypatch.setattr(pipeline_verification, "trial_session", lambda _: nullcontext())
    monkeypatch.setattr(verification, "verify_flow", lambda *_, **__: FOUND_ONES)
    arguments = SimpleNamespace(output="text", limit=20)
    assert pipeline_verification.verify(parse(FLOW), arguments) == 1  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines() == [
        "SOURCE  TOPIC  PARTITION  FROM  TO  GONE",
        "source  a      0          3     9   3",
        "sqlite table t: 1 rows missing, 0 extra, 1 different",
        "  missing [1]: expected [1,2], found no row",
        "  different [2]: expected [2,2], found [2,3]",
        "function report: not verified: what a function does with rows cannot be seen",
    ]
    arguments.output = "json"
    assert pipeline_verification.verify(parse(FLOW), arguments) == 1  # type: ignore[arg-type]
    shown = json.loads(capsys.readouterr().out)
    assert shown["differs"]
    assert shown["ranges"] == [{"source": "source", "topic": "a", "partition": 0, "start": 3, "end": 9, "gone": 3}]
    assert shown["sinks"][0]["examples"][1] == {
        "kind": "different",
        "key": "[2]",
        "expected": ["[2,2]"],
        "found": ["[2,3]"],
    }
    assert not shown["sinks"][1]["verified"]


@pytest.mark.parametrize(
    ("begun", "reason"),
    [
        (False, "no micro-batch has reached the outputs yet: run f first"),
        (True, "a micro-batch was begun and may be in some outputs"),
    ],
)
def test_a_flow_that_cannot_be_verified_is_refused_with_the_reason(tmp_path: Path, begun: bool, reason: str) -> None:
    """Before anything is read or computed."""
    flow = parse(FLOW, file=str(tmp_path / "flow.toml"))
    for part, number in (("offsets", 0), ("commits", 0), ("offsets", 1)) if begun else ():
        file = tmp_path / "state" / "main" / part / str(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'v1\n{{}}\n{{"a":{{"0":{5 + number}}}}}')
    with pytest.raises(Exception, match=reason):
        verification._require_verifiable(flow, verification.Checkpoint(flow))


def test_verify_is_listed_with_the_actions(capsys: pytest.CaptureFixture[str]) -> None:
    """With what it does."""
    assert main(["pipeline", "--help"]) == 0
    assert "compute a stopped flow's results once more" in " ".join(capsys.readouterr().out.split())
