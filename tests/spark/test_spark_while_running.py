"""What happens beside a flow while it runs: a newer schema is registered, its dashboard is looked
at, state is out of time."""

import contextlib
import io
import json
import re
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pytest.importorskip("pyspark")
pytest.importorskip("plotly")
fastavro = pytest.importorskip("fastavro")

from barnabas.pipelines.flows import declare, foreach_batch, sqlite, topic  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from support.dashboards import served_dashboard  # noqa: E402
from support.registry import RegistryForTests, with_id  # noqa: E402
from support.waiting import eventually  # noqa: E402

SCHEMA: dict[str, Any] = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
NEWER = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "note", "type": "string"}]}


def test_a_flow_takes_a_schema_that_is_registered_while_it_runs_and_its_dashboard_follows(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    """Three micro-batches of one run: the second is of a schema that did not exist in the
    first, the third of none."""
    name, seen = cluster.topic(1), []

    def avro(schema: dict[str, Any], **values: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), values)
        return stream.getvalue()

    def get(path: str) -> str:
        with urllib.request.urlopen(server.url + path, timeout=30) as response:
            return str(response.read().decode())

    def look(rows: Any, number: int) -> None:
        registry.schemas[2] = json.dumps(NEWER)
        wanted = min(number + 1, 2)  # the third record is a bad row
        shown = eventually(lambda: (found := json.loads(get("figures.json")))["rows"] == {"1": wanted} and found)
        counted = re.compile(rf'barnabas_pipeline_rows{{flow="{name}"}} {number}\n')
        if number:  # the figures of a micro-batch come after it
            eventually(lambda: counted.search(get("metrics")))
        table = shown["charts"][0]["figure"]["data"][0]
        seen.append((number, rows.count(), len(table["cells"]["values"][0])))

    with RegistryForTests() as registry:
        registry.schemas = {1: json.dumps(SCHEMA)}
        how = {"type": "avro", "registry": registry.address, "columns": {"id": "bigint", "note": "string"}}
        flow = declare(
            name,
            checkpoint=str(tmp_path / "state"),
            source=topic(name, bootstrap_servers=cluster.bootstrap, max_offsets_per_trigger=1, format=how),
            sinks=[sqlite(str(tmp_path / "out.db"), "t", key=["id"]), foreach_batch(look, key=["id"])],
            charts=[{"title": "rows", "type": "table"}],
        )
        values = [with_id(1, avro(SCHEMA, id=1)), with_id(2, avro(NEWER, id=2, note="new")), with_id(3, b"")]
        cluster.produce(name, [(None, each) for each in values])
        with served_dashboard(flow) as server:
            summary = run_on(spark, flow)
            eventually(lambda: 'bad_rows{flow="' + name + '"} 1\n' in get("metrics"))
    assert seen[:2] == [(0, 1, 1), (1, 1, 2)]
    assert summary["bad_examples"] == {"MALFORMED": f"the registry has no schema 3 ({name}-0-2)"}
    with contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        assert connection.execute("SELECT id, note FROM t ORDER BY id").fetchall() == [(1, None), (2, "new")]


TIMED = '''\
import pandas as pd
from pyspark.sql.streaming.state import GroupStateTimeout

from barnabas.pipelines.flows import declare, fields, sqlite, topic


def remember(key, frames, state):
    if state.hasTimedOut:
        (count,) = state.get
        state.remove()
        yield pd.DataFrame({"sensor": [key[0]], "n": [count]})
        return
    state.update((sum(map(len, frames)),))
    state.setTimeoutDuration(200)


def quiet(source):
    """A row for each sensor of which nothing has come for a fifth of a second."""
    schema, timeout = "sensor string, n bigint", GroupStateTimeout.ProcessingTimeTimeout
    return source.groupBy("sensor").applyInPandasWithState(remember, schema, "n bigint", "append", timeout)


flow = declare(
    "NAME",
    checkpoint="state",
    source=topic("NAME", bootstrap_servers="SERVERS", format=fields("json", sensor="string", n="int")),
    steps=[quiet],
    trigger={"interval": "1 second"},
    sinks=[sqlite("out.db", "quiet", key=["sensor"])],
)
'''


def test_state_is_out_of_time_by_the_clock_without_new_records(cluster: Any, tmp_path: Path) -> None:
    """In a flow that goes on until it is stopped; all of its records are there before it starts."""
    name, path = cluster.topic(1), tmp_path / "flow.py"
    path.write_text(TIMED.replace("NAME", name).replace("SERVERS", cluster.bootstrap))
    cluster.produce(name, [(None, b'{"sensor": "hall", "n": %d}' % n) for n in range(2)])
    command = [sys.executable, "-m", "barnabas", "pipeline"]
    running = subprocess.Popen([*command, "run", str(path)], stderr=subprocess.PIPE, text=True)

    def quiet() -> list[Any]:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as connection:
            return connection.execute("SELECT sensor, n FROM quiet").fetchall()
        return []

    try:
        assert eventually(quiet, timeout_s=300, what="a time-out") == [("hall", 2)]
        assert subprocess.run([*command, "stop", str(path)], timeout=120, check=False).returncode == 0
        _, errors = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 0, errors
