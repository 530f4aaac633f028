"""A format that is one module and one registration, on Spark: the flow of its
template, and the test beside it."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pytest.importorskip("pyspark")

from barnabas.pipelines.checks.analysis import find_problems  # noqa: E402
from barnabas.pipelines.formats.declared import register_format, unregister_format  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.pipelines.specification.templates import cases_template, flow_template  # noqa: E402
from barnabas.testing.flow_cases import load_cases, run_cases  # noqa: E402
from barnabas.testing.flows import FlowUnderTest  # noqa: E402
from support.pairs_format import PAIRS  # noqa: E402


def test_a_flow_of_a_new_format_is_checked_and_run(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """Its template passes its own test, and a value that does not fit is a bad row
    with the format's reason."""
    register_format(PAIRS)
    try:
        text = flow_template("f", "f.toml", "f-test.toml", "pairs", "sqlite", "localhost:9092", "t")
        flow = spec.parse(text, file=str(tmp_path / "f.toml"))
        assert find_problems(spark, flow) == []
        (tmp_path / "cases.toml").write_text(cases_template("f.toml", "pairs"))
        cases = load_cases(tmp_path / "cases.toml", flow)
        assert [each.problem for each in run_cases(flow, cases, spark, cluster.bootstrap, tmp_path)] == [""]
        under_test = FlowUnderTest(flow, spark, cluster.bootstrap, tmp_path)
        result = under_test.given([{"a": 3, "b": 4}, "no pairs"]).run()
        assert [(row["a"], row["c"]) for row in result.rows] == [(3, 7)]
        assert result.summary["bad_rows"] == 1
        assert result.summary["bad_example"].startswith("the value is no line of name:value pairs (")
    finally:
        unregister_format(PAIRS)
