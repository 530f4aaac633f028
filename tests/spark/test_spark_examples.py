"""The examples of examples/pipelines, each as it stands in its file, fed by `feed.py` and
run on one Spark session.

Those about flights are run by `test_spark_pages.py`, with the commands of their page.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
duckdb = pytest.importorskip("duckdb")
pytest.importorskip("deltalake")
pytest.importorskip("plotly")

from barnabas.pipelines.dashboard.server import Dashboard  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from support.needs import ROOT  # noqa: E402

EXAMPLES = ROOT / "examples" / "pipelines"
LIMITS = {
    "weather": 400,
    "web-logs": 60,
    "user-activity": 120,
    "cluster-metrics": 40,
    "audit-trail": 9,
}


def feed(cluster: Any, kind: str) -> str:
    """The topic with the kind's data; made once for all tests."""
    topic = f"{kind}-{LIMITS[kind]}"
    if topic not in cluster.topics():
        command = [sys.executable, str(EXAMPLES / "feed.py"), kind, "--bootstrap-server", cluster.bootstrap]
        subprocess.run([*command, "--topic", topic, "--limit", str(LIMITS[kind])], check=True, timeout=200)
    return topic


def load(cluster: Any, folder: Path, name: str, topic: str) -> spec.Flow:
    """The example with another cluster and topic, and its state in the test's folder."""
    copy = folder / f"{name}.toml"
    copy.write_text((EXAMPLES / f"{name}.toml").read_text())
    return spec.load(copy, [f"source.bootstrap_servers={cluster.bootstrap}", f"source.topics={json.dumps([topic])}"])


def run(cluster: Any, spark: Any, folder: Path, name: str, topic: str) -> tuple[spec.Flow, dict[str, Any]]:
    from barnabas.pipelines.running.run import run_on

    flow = load(cluster, folder, name, topic)
    summary = run_on(spark, flow)
    assert summary["bad_rows"] == 0
    return flow, summary


def figures(flow: spec.Flow) -> list[dict[str, list[Any]]]:
    """The series of the flow's charts, as the dashboard draws them."""
    charts = json.loads(Dashboard(flow).state().figures)["charts"]
    return [{trace.get("name", ""): trace["y"] for trace in chart["figure"]["data"]} for chart in charts]


def test_weather_is_imported_into_parquet_files(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """A folder for each airport."""
    run(cluster, spark, tmp_path, "batch-import", feed(cluster, "weather"))
    with duckdb.connect() as connection:
        files = f"'{tmp_path}/state/weather/*/*.parquet'"
        found = connection.execute(f"SELECT origin, count(*), max(temp_c) < 50 FROM {files} GROUP BY 1").fetchall()
    assert {row[0] for row in found} == {"EWR", "JFK", "LGA"}
    assert sum(row[1] for row in found) == 400
    assert all(row[2] for row in found)


def test_requests_of_a_web_server_are_counted_by_page(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """Errors are those of the page that does not exist."""
    flow, _ = run(cluster, spark, tmp_path, "web-logs", feed(cluster, "web-logs"))
    (chart,) = figures(flow)
    assert sum(chart["requests"]) == 60
    assert 0 < sum(chart["errors"]) < 60
    assert sum(1 for errors in chart["errors"] if errors) == 1


def test_users_and_their_views_are_counted_by_hour(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """Every view once."""
    flow, _ = run(cluster, spark, tmp_path, "user-activity", feed(cluster, "user-activity"))
    (chart,) = figures(flow)
    assert sum(chart["views"]) == 120


def test_the_cells_of_the_notebook_read_a_topic_as_a_table_and_as_a_stream(
    cluster: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cell in its order; a kernel of Jupyter executes them in `test_notebook_kernel.py`."""
    session = SimpleNamespace(spark=spark, close=lambda: None)
    monkeypatch.setattr("barnabas.pipelines.session.open_session", lambda _: session)
    monkeypatch.setenv("BOOTSTRAP_SERVERS", cluster.bootstrap)
    monkeypatch.setenv("TOPIC", feed(cluster, "user-activity"))
    monkeypatch.setenv("FLOW", str(EXAMPLES / "user-activity.toml"))
    names: dict[str, Any] = {}
    cells = json.loads((EXAMPLES / "topics.ipynb").read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["records"].count() == 120
    assert sum(row["count"] for row in spark.table("pages").collect()) == 120


def test_writes_to_the_coordination_service_leave_a_trail(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """Operation, znode and result of each, in order."""
    run(cluster, spark, tmp_path, "audit-trail", feed(cluster, "audit-trail"))
    with duckdb.connect() as connection:
        files = f"'{tmp_path}/state/audit-trail-files/*.parquet'"
        query = f'SELECT operation, znode, result FROM {files} WHERE "at" IS NOT NULL AND znode LIKE \'/gate%\' ORDER BY "at", znode'
        found = connection.execute(query).fetchall()
    assert {each[0] for each in found} == {"create", "setData", "delete"}
    assert {each[1] for each in found} == {"/gate-0", "/gate-1", "/gate-2"}
    assert {each[2] for each in found} == {"success"}
    assert len(found) == 9


def test_the_clusters_own_figures_and_logs_are_kept(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """Records by topic in DuckDB, and log lines that can be searched."""
    from barnabas.pipelines.outputs.declared import SearchSink
    from barnabas.pipelines.outputs.search import search_index

    flow, _ = run(cluster, spark, tmp_path, "cluster-metrics", feed(cluster, "cluster-metrics"))
    (chart,) = figures(flow)
    assert chart
    assert all(value >= 0 for values in chart.values() for value in values)

    topic = cluster.topic(1)
    listed = subprocess.run(
        [sys.executable, "-m", "barnabas", "status", "--output", "json"], capture_output=True, check=True
    )
    folder = next(
        each["data_dir"] for each in json.loads(listed.stdout) if each["bootstrap_servers"] == cluster.bootstrap
    )
    logs = subprocess.run(
        [sys.executable, "-m", "barnabas", "logs", "--data-dir", folder, "-n", "1000"], capture_output=True, check=True
    )
    cluster.produce(topic, [(None, line) for line in logs.stdout.splitlines()])
    flow, _ = run(cluster, spark, tmp_path, "log-aggregation", topic)
    (sink,) = flow.sinks
    assert isinstance(sink, SearchSink)
    hits = search_index(sink, "controller epoch")
    assert any("[controller], in [epoch] 1" in hit.snippet for hit in hits)
    assert {hit.row["level"] for hit in hits} <= {"INFO", "WARNING", "ERROR"}
    assert all(hit.row["server"] and hit.row["at"] for hit in hits)
