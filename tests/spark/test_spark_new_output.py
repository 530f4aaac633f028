"""A kind of output that is one module and one registration, on Spark: check, dry
run, run and verification."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pytest.importorskip("pyspark")

from barnabas.pipelines.checks.analysis import find_problems  # noqa: E402
from barnabas.pipelines.checks.trial import try_flow  # noqa: E402
from barnabas.pipelines.dashboard.results import ResultReader  # noqa: E402
from barnabas.pipelines.outputs.registry import register_output, unregister_output  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.pipelines.verification.verification import verify_flow  # noqa: E402
from support.lines_output import LINES  # noqa: E402

FLOW = """\
name = "{topic}"
checkpoint = "state"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
format = {{ type = "json", columns = {{ id = "int", n = "int" }} }}
[[sinks]]
type = "lines"
path = "out.lines"
key = ["id"]
delete_when = "n < 0"
"""


def test_a_new_kind_of_output_goes_through_check_dry_run_run_and_verification(
    cluster: Any, spark: Any, tmp_path: Path
) -> None:
    """Rows replace those of their key, and delete them, in two runs; a wrong key and
    a lost file are noticed."""
    register_output(LINES)
    try:
        topic = cluster.topic(1)
        flow = spec.parse(FLOW.format(topic=topic, bootstrap=cluster.bootstrap), file=str(tmp_path / "flow.toml"))
        wrong = spec.parse(FLOW.format(topic=topic, bootstrap="b:1").replace('["id"]', '["no"]'))
        assert [each.field for each in find_problems(spark, wrong)] == ["sinks[0].key"]
        assert find_problems(spark, flow) == []
        cluster.produce(topic, [(None, b'{"id": 1, "n": 1}'), (None, b'{"id": 2, "n": 2}')])
        name = f"sink lines table {tmp_path}/out.lines"
        planned = {each.what: (each.state, each.message) for each in try_flow(spark, flow)}
        assert planned[name] == ("ok", f"{tmp_path}/out.lines will be made")
        run_on(spark, flow)
        cluster.produce(
            topic, [(None, b'{"id": 1, "n": 7}'), (None, b'{"id": 2, "n": -1}'), (None, b'{"id": 3, "n": 3}')]
        )
        run_on(spark, flow)
        rows = ResultReader(flow.sinks[0]).read().select(["id", "n"]).to_pylist()
        assert sorted(rows, key=lambda row: row["id"]) == [{"id": 1, "n": 7}, {"id": 3, "n": 3}]
        found = verify_flow(spark, flow, limit=5, say=lambda _: None)
        assert [(each.verified, each.rows, each.missing, each.extra, each.different) for each in found.sinks] == [
            (True, 2, 0, 0, 0)
        ]
        (tmp_path / "out.lines").unlink()
        lost = {each.what: each for each in try_flow(spark, flow)}[name]
        assert (lost.state, "nothing that this flow wrote" in lost.message) == ("error", True)
    finally:
        unregister_output(LINES)
