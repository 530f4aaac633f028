"""``barnabas pipeline new`` and ``barnabas pipeline test``: templates hold what they promise, and
tests find what differs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from barnabas.pipelines.checks.analysis import find_problems  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.pipelines.specification.templates import (  # noqa: E402
    cases_template,
    flow_template,
    template_formats,
    template_sinks,
)
from barnabas.testing.flow_cases import CaseResult, load_cases, run_cases  # noqa: E402

FAILING = """
[[tests]]
name = "wrong"
given = { source = ["1,2026-01-01T10:00:00Z,a,5.5"] }
expect = [{ id = 2 }]
[[tests]]
name = "right"
given = { source = ["1,2026-01-01T10:00:00Z,a,5.5"] }
expect = [{ id = 1, at = 2026-01-01T11:00:00+01:00 }]
[[tests]]
name = "surplus"
given = { source = ["1,2026-01-01T10:00:00Z,a,5.5"] }
expect = []
"""


def template(kind: str, sink: str = "sqlite") -> spec.Flow:
    return spec.parse(flow_template("shop", "shop.toml", "shop.test.toml", kind, sink, "localhost:9092", "t"))


@pytest.fixture
def results(spark: Any, cluster: Any, tmp_path: Path) -> Any:
    """Runs a flow's tests."""

    def run(flow: spec.Flow, cases: str) -> list[CaseResult]:
        file = tmp_path / "cases.toml"
        file.write_text(cases)
        return list(run_cases(flow, load_cases(file, flow), spark, cluster.bootstrap, tmp_path))

    return run


@pytest.mark.parametrize("kind", template_formats())
def test_the_test_of_a_template_passes(results: Any, kind: str) -> None:
    """So what a person starts from works."""
    assert [each.problem for each in results(template(kind), cases_template("shop.toml", kind))] == [""]


def test_spark_finds_no_problem_in_templates(spark: Any) -> None:
    """For every sink; formats have run in the test before."""
    problems = {sink: find_problems(spark, template("json", sink)) for sink in template_sinks()}
    assert all(not found for found in problems.values()), problems


def test_what_differs_is_printed_and_the_exit_code_says_so(tmp_path: Path, cluster: Any) -> None:
    """Rows that were expected and rows that came; times are compared as instants."""
    command = [sys.executable, "-m", "barnabas", "pipeline"]
    file = tmp_path / "shop.toml"
    subprocess.run([*command, "new", str(file), "--from", "csv"], check=True, timeout=120)
    (tmp_path / "shop.test.toml").write_text(FAILING)
    ended = subprocess.run(
        [*command, "test", str(file), "--bootstrap-servers", cluster.bootstrap, "--output", "json"],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert ended.returncode == 1, ended.stderr
    found = json.loads(ended.stdout)
    assert [(each["name"], each["passed"]) for each in found["tests"]] == [
        ("wrong", False),
        ("right", True),
        ("surplus", False),
    ]
    assert found["tests"][0]["problem"].splitlines()[1:] == ["  - id=2", "  + id=1"]
    assert found["tests"][2]["problem"].startswith("no rows were expected, and there are 1")
