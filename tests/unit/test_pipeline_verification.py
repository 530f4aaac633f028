"""What `pipeline verify` compares, and how it says what differs."""

import datetime
import decimal
import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.cli.main import main
from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.cli.pipelines import verification as pipeline_verification
from barnabas.pipelines.connector.data_source import SCHEMA_WITH_HEADERS
from barnabas.pipelines.frames.ordering import last_record
from barnabas.pipelines.outputs.sqlite_table import SqliteTable
from barnabas.pipelines.specification.spec import parse
from barnabas.pipelines.verification import verification
from barnabas.pipelines.verification.row_comparison import (
    EXPECTED,
    FOUND,
    LastRecords,
    RowComparison,
    RowDifference,
    TopicRecord,
    text_of,
)
from barnabas.pipelines.verification.verification import CheckedRange, CheckedSink, Verification

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


def test_rows_are_written_many_at_a_time_and_nothing_waits_for_the_disk(tmp_path: Path) -> None:
    """A transaction for each row would take a second for a hundred rows on a slow disk; the
    file is deleted afterwards."""
    rows = RowComparison(tmp_path / "rows.db")
    connection = rows._connection
    rows.add(FOUND, ((str(number), str(connection.in_transaction)) for number in range(3)))
    assert not connection.in_transaction
    assert {row for (row,) in connection.execute("SELECT row FROM found")} == {"True"}
    pragmas = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert pragmas == ["off", 0]
    rows.close()


def test_rows_before_one_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    """And others can be written afterwards."""

    def broken() -> Any:
        yield "a", "1"
        raise ValueError("damaged")

    rows = RowComparison(tmp_path / "rows.db")
    with pytest.raises(ValueError, match="damaged"):
        rows.add(FOUND, broken())
    rows.add(FOUND, [("b", "2")])
    assert rows.count(FOUND) == 2
    rows.close()


def test_records_are_compared_byte_by_byte_and_no_key_is_not_an_empty_one(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 differ from the text that shows them; null differs from the
    empty key and from the text."""
    rows = RowComparison(tmp_path / "rows.db")
    rows.put(EXPECTED, [(b"k", b"\xff"), (b"", b"1"), (b"same", b"\xfe"), (b"emptied", b"1")])
    rows.put(FOUND, [(b"k", b"\\xff"), (None, b"1"), (b"same", b"\xfe"), (b"emptied", b"")])
    assert list(rows.differences()) == [
        RowDifference("null", [], ["1"]),
        RowDifference('""', ["1"], []),
        RowDifference("emptied", ["1"], ['""']),
        RowDifference("k", ["\\xff"], ["\\xff"]),
    ]
    rows.put(FOUND, [(None, None), (b"k", None)])
    assert [each.kind for each in rows.differences()] == ["missing", "different", "missing"]
    rows.close()


topic_records = st.lists(
    st.builds(
        TopicRecord, st.sampled_from([b"a", b"", b"\xff", None]), st.integers(0, 2),
        st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.sampled_from([b"", b"x", b"y"])),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(batches=st.lists(topic_records, max_size=3))
def test_of_a_key_in_several_partitions_the_record_that_ordering_names_counts(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[TopicRecord]]
) -> None:
    """Whatever partition is read last; one without a value deletes its key, and records
    without a key all count."""
    last = LastRecords(tmp_path_factory.mktemp("records") / "records.db")
    model: dict[bytes, dict[int, TopicRecord]] = {}
    expected: list[tuple[bytes | None, bytes]] = []
    for batch in batches:
        last.take(batch)
        for each in batch:
            if each.key is not None:
                model.setdefault(each.key, {})[each.partition] = each
            elif each.value is not None:
                expected.append((None, each.value))
    for key, records in model.items():
        candidates = [{**each._asdict(), "timestamp": each.time} for each in records.values()]
        if (value := last_record(candidates)["value"]) is not None:
            expected.append((key, value))
    assert Counter(last.rows()) == Counter(expected)
    last.close()


def test_records_of_other_flows_are_left_out_and_times_beyond_pythons_are_read() -> None:
    """The header of a record names its flow."""
    schema = to_arrow_schema(SCHEMA_WITH_HEADERS, timezone="UTC")
    headers = [[{"key": "barnabas.flow", "value": name}] for name in (b"f", b"g")]
    batch = pa.RecordBatch.from_pylist(
        [
            {"key": None, "value": b"\xff", "partition": 1, "timestamp": 2**62, "headers": headers[0]},
            {"key": b"k", "value": b"v", "partition": 1, "timestamp": 1, "headers": headers[1]},
            {"key": b"k", "value": None, "partition": 2, "timestamp": None, "headers": None},
            {"key": b"", "value": None, "partition": 0, "timestamp": None, "headers": headers[0]},
        ],
        schema,
    )
    assert list(verification._records_of("f", batch)) == [(None, 1, 2**62, b"\xff"), (b"", 0, None, None)]


def test_a_number_that_is_none_is_the_same_key_in_a_table_of_sqlite_and_in_its_copy(tmp_path: Path) -> None:
    """Both keep it as the text NaN."""
    flow = parse(FLOW.replace('id = "bigint"', 'id = "double"') + 'key = ["id"]', file=str(tmp_path / "flow.toml"))
    checked = verification._Checked(0, flow.sinks[0], flow, tmp_path / "copies")
    (tmp_path / "copies").mkdir()
    copy = checked.copy(verification.Checkpoint(flow))
    for sink, number in ((flow.sinks[0], 1.5), (copy, 2.5)):
        table = SqliteTable(sink, {"id": "double"})  # type: ignore[arg-type]
        table.apply(pa.table({"id": [float("nan"), number]}), "f", "q", 0)
        table.close()
    checked.compare("", 5)
    assert checked.found.verified
    assert [each.key for each in checked.found.examples] == ["[1.5]", "[2.5]"]


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
    """The offsets that were looked at, each output, and each row with what is
    expected; the same as JSON."""
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
    assert (shown["differs"], shown["complete"]) == (True, False)
    assert shown["ranges"] == [{"source": "source", "topic": "a", "partition": 0, "start": 3, "end": 9, "gone": 3}]
    assert shown["sinks"][0]["examples"][1] == {
        "kind": "different",
        "key": "[2]",
        "expected": ["[2,2]"],
        "found": ["[2,3]"],
    }
    assert not shown["sinks"][1]["verified"]


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (CheckedSink("delta", True, "", 3), 0),
        (CheckedSink("function report", reason="what a function does with rows cannot be seen"), INCOMPLETE),
        (
            CheckedSink("delta", True, "3 records are gone: rows that only the output has are not counted", 3),
            INCOMPLETE,
        ),
        (CheckedSink("delta", reason="it cannot be read: damaged", missing=3), 1),
    ],
)
def test_what_could_not_be_verified_is_not_reported_as_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], second: CheckedSink, status: int
) -> None:
    """A script sees by the exit status whether all outputs are right, whether one is wrong, and
    whether that is not known."""
    monkeypatch.setattr(pipeline_verification, "trial_session", lambda _: nullcontext())
    found = replace(FOUND_ONES, sinks=[CheckedSink("sqlite table t", True, "", 7), second])
    monkeypatch.setattr(verification, "verify_flow", lambda *_, **__: found)
    arguments = SimpleNamespace(output="json", limit=20)
    assert pipeline_verification.verify(parse(FLOW), arguments) == status  # type: ignore[arg-type]
    shown = json.loads(capsys.readouterr().out)
    assert (shown["differs"], shown["complete"]) == (status == 1, status == 0)


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
