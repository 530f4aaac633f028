"""Tests of flows that are data: rows that are given, and rows that are expected, in
a file beside the flow.

``orders.toml`` has its tests in ``orders.test.toml``, or ``orders.test.json`` with the same names:

    [[tests]]
    name = "revenue is summed by country"
    expect = [{ country = "DE", revenue = 12 }]
    bad = 1                        # how many rows are bad; not checked without it
    late = 0                       # how many rows are late; not checked without it
    [[tests.given]]                # each is one run; the next continues from there
    source = [{ country = "de", price = 5 }, { country = "de", price = 7 }, "no JSON"]
"""

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.pipelines.specification.spec import Flow, SpecError

__all__ = ["CaseResult", "FlowCase", "cases_file", "load_cases", "run_cases"]

_FIELDS = ("name", "given", "expect", "bad", "late")


@dataclass(frozen=True, slots=True)
class FlowCase:
    """One test."""

    name: str
    given: tuple[dict[str, list[Any]], ...]
    """For each run the rows of each source and table."""
    expected: list[dict[str, Any]]
    bad: int | None
    late: int | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of a test: nothing, or what differs."""

    name: str
    problem: str


def cases_file(flow_file: Path) -> Path:
    """The file with the flow's tests: ``NAME.test.toml`` or ``NAME.test.json``.

    Raises `SpecError` if there is none."""
    found = [flow_file.with_name(f"{flow_file.stem}.test.{ending}") for ending in ("toml", "json")]
    for each in found:
        if each.exists():
            return each
    raise SpecError(
        f"{flow_file} has no tests: write them to {found[0].name} beside it, or name their file with --cases"
    )


def load_cases(file: Path, flow: Flow) -> list[FlowCase]:
    """The tests in a file. Raises `SpecError` with the field that is wrong."""
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise SpecError(f"{file}: {error}") from error
    tests = content.get("tests") if isinstance(content, dict) else None
    if not _is_list_of(tests, dict) or not tests:
        raise SpecError(f"{file}: has no tests: each begins with [[tests]]")
    known = [source.name for source in flow.sources] + [lookup.name for lookup in flow.lookups]
    return [_case(f"{file}: tests[{number}]", number, test, known) for number, test in enumerate(tests)]


def _case(place: str, number: int, test: dict[str, Any], known: Sequence[str]) -> FlowCase:
    for field in test:
        if field not in _FIELDS:
            hint = did_you_mean(field, _FIELDS) or f"; it knows {', '.join(_FIELDS)}"
            raise SpecError(f"{place}.{field}: is not a field of a test{hint}")
    given: Any = test.get("given")
    given = [given] if isinstance(given, dict) else given
    if not _is_list_of(given, dict) or not given:
        raise SpecError(f"{place}.given: is missing: rows for each source, as [[tests.given]]")
    for rows_by_name in given:
        for name, rows in rows_by_name.items():
            if name not in known:
                hint = did_you_mean(name, known) or f"; the flow has {', '.join(known)}"
                raise SpecError(f"{place}.given.{name}: is no source or table{hint}")
            if not isinstance(rows, list) or not all(isinstance(row, dict | str) for row in rows):
                raise SpecError(f"{place}.given.{name}: is a list of rows, each a table or a record's text")
    expected: Any = test.get("expect")
    if not _is_list_of(expected, dict):
        raise SpecError(f"{place}.expect: is a list of rows; an empty one if nothing comes out")
    for field in ("bad", "late"):
        count = test.get(field)
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            raise SpecError(f"{place}.{field}: is a number of rows, not {count!r}")
    name = test.get("name", f"tests[{number}]")
    if not isinstance(name, str):
        raise SpecError(f"{place}.name: is a text")
    return FlowCase(name, tuple(given), [_in_utc(row) for row in expected], test.get("bad"), test.get("late"))


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _in_utc(row: dict[str, Any]) -> dict[str, Any]:
    """Times as results have them."""
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
        for name, value in row.items()
    }


def run_cases(
    flow: Flow, cases: Sequence[FlowCase], spark: Any, bootstrap_servers: str, folder: Path
) -> Iterator[CaseResult]:
    """Runs the tests, one when the next result is asked for."""
    for case in cases:
        yield _run(flow, case, spark, bootstrap_servers, folder)


def _run(flow: Flow, case: FlowCase, spark: Any, bootstrap_servers: str, folder: Path) -> CaseResult:
    from barnabas.testing.flows import FlowUnderTest  # needs the extra `pipelines`

    under_test = FlowUnderTest(flow, spark, bootstrap_servers, folder)
    bad_rows = late_rows = 0
    result: Any = None
    try:
        for rows_by_name in case.given:
            main = rows_by_name.get(flow.source.name, [])
            others = {name: rows for name, rows in rows_by_name.items() if name != flow.source.name}
            result = under_test.given(main, **others).run()
            bad_rows += result.summary["bad_rows"]
            late_rows += result.summary["late_rows"]
        _compare(case, result, bad_rows, late_rows)
    except AssertionError as error:
        return CaseResult(case.name, str(error))
    except (BarnabasError, TypeError) as error:
        return CaseResult(case.name, f"the flow ended with an error: {error}")
    return CaseResult(case.name, "")


def _compare(case: FlowCase, result: Any, bad_rows: int, late_rows: int) -> None:
    reasons = "".join(f"\n  bad: {each}" for each in result.bad)
    if not case.expected and result.rows:
        shown = "".join(f"\n  + {row}" for row in result.rows)
        raise AssertionError(f"no rows were expected, and there are {len(result.rows)}:{shown}")
    result.assert_rows(case.expected)
    if case.bad is not None and case.bad != bad_rows:
        raise AssertionError(f"{case.bad} bad rows were expected, and there are {bad_rows}{reasons}")
    if case.late is not None and case.late != late_rows:
        raise AssertionError(f"{case.late} late rows were expected, and there are {late_rows}")
