"""Spark's own Kafka connector beside ours on one Spark: each reads what the other wrote,
and a flow runs through it.

Its jars are in no package; `other_pyspark.py connector`, a trial, brings them.
"""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.connector import connector_jars

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.timeout(600)]
pytest.importorskip("pyspark")

# Jars are given to a session when it starts, so this one is of its own.
PROGRAM = """\
import json, sys
from barnabas.pipelines.specification import spec
from barnabas.pipelines.running.run import run_on
from barnabas.pipelines.spark.session import open_session

jars, servers, ours, theirs, flow, *_ = sys.argv[1:]
session = open_session("connector", cores=2, conf={"spark.jars": jars, "spark.sql.shuffle.partitions": "2"})
spark = session.spark
rows = spark.sql('''
    select cast(if(id % 7 = 0, null, concat('k', id)) as binary) key, cast(if(id % 5 = 0, null, concat('v', id)) as binary) value,
           if(id % 3 = 0, array(struct('h' as key, cast(concat('x', id) as binary) as value)), null) headers,
           cast(id % 3 as int) partition
    from range(600)''')
COLUMNS = "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"

def read(format, topic):
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
    found = spark.read.format(format).options(**options).load().select(*COLUMNS)
    return sorted(map(str, found.collect())), found.dtypes

equal = {}
for writer, topic in (("barnabas", ours), ("kafka", theirs)):
    rows.write.format(writer).mode("append").option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    by = {reader: read(reader, topic) for reader in ("barnabas", "kafka")}
    equal[writer] = [len(by["kafka"][0]), by["kafka"] == by["barnabas"]]
summary = run_on(spark, spec.load(flow))
again = run_on(spark, spec.load(flow, ["resources.connector=barnabas"]))
session.close()
print(json.dumps({"equal": equal, "flow": [summary["rows"], summary["bad_rows"], summary["lag"]], "again": again["rows"]}))
"""
FLOW = """\
name = "{topic}"
checkpoint = "state"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
group = "{topic}"
bad_rows_topic = "{bad}"
max_offsets_per_trigger = 200
format = {{ type = "json", columns = {{ id = "int", kind = "string" }} }}
[aggregate]
group_by = ["kind"]
compute = {{ n = "count(*)" }}
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
[[sinks]]
type = "topic"
topic = "{target}"
[resources]
connector = "kafka"
"""


def test_the_connector_and_ours_read_what_the_other_wrote_and_a_flow_runs_through_it(
    cluster: Any, tmp_path: Path
) -> None:
    """Every column is equal. The flow's checkpoint goes on through ours, and adds nothing."""
    ours, theirs, source = (cluster.topic(3) for _ in range(3))
    bad, target = cluster.topic(1), cluster.topic(1)
    values = [json.dumps({"id": n, "kind": "abc"[n % 3]}).encode() for n in range(500)]
    cluster.produce(source, [(None, each) for each in [*values, b"no JSON"]])
    flow = tmp_path / "flow.toml"
    flow.write_text(FLOW.format(topic=source, bootstrap=cluster.bootstrap, bad=bad, target=target))
    jars = ",".join(map(str, connector_jars()))
    command = [sys.executable, "-c", PROGRAM, jars, cluster.bootstrap, ours, theirs, str(flow)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=560, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["equal"] == {"barnabas": [600, True], "kafka": [600, True]}
    assert (found["flow"], found["again"]) == ([501, 1, 0], 0)
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        assert connection.execute("SELECT kind, n FROM t ORDER BY kind").fetchall() == [
            ("a", 167),
            ("b", 167),
            ("c", 166),
        ]
    last = {each.key(): json.loads(each.value())["n"] for each in cluster.read(target)}
    assert last == {b'{"kind":"a"}': 167, b'{"kind":"b"}': 167, b'{"kind":"c"}': 166}
    assert [each.value() for each in cluster.read(bad)] == [b"no JSON"]
    assert sum(cluster.committed(source, source, 3)) == 501
