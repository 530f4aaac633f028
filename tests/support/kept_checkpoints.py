"""Two flows whose checkpoints and outputs, as an earlier version left them, are in
``tests/support/kept/pipelines``.

A version that moves modules or changes files must go on from them. To keep those of the
present version, too: ``python tests/support/kept_checkpoints.py BOOTSTRAP FOLDER``, on a
cluster without the topics.
"""

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "kept" / "pipelines"
COUNTS = """\
name = "counts"
checkpoint = "counts"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["kept-counts"]
bad_rows_topic = "kept-bad"
[source.format]
type = "json"
columns = {{ id = "bigint", kind = "string", at = "timestamp" }}
required = ["id"]
[aggregate]
group_by = ["kind"]
compute = {{ n = "count(*)" }}
[resources]
shuffle_partitions = 1
[[sinks]]
type = "sqlite"
path = "counts.db"
table = "counts"
[[sinks]]
type = "topic"
topic = "kept-results"
"""
LATEST = """\
name = "latest"
checkpoint = "latest"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["kept-latest"]
bad_rows_topic = "kept-bad"
max_bad = "50%"
on_max_bad = "quarantine"
fail_on_data_loss = false
[source.format]
type = "csv"
columns = {{ id = "bigint", kind = "string", at = "timestamp" }}
[resources]
shuffle_partitions = 1
[[sinks]]
type = "sqlite"
path = "latest.db"
table = "latest"
key = ["id"]
order_by = "at"
[[sinks]]
type = "delta"
path = "latest-delta"
key = ["id"]
partition_by = ["kind"]
order_by = "at"
"""
FLOWS = {"counts": COUNTS, "latest": LATEST}
FIRST: dict[str, list[bytes]] = {
    "kept-counts": [
        *(json.dumps({"id": n, "kind": "ab"[n % 2], "at": f"2026-01-01T00:00:0{n}Z"}).encode() for n in range(5)),
        b"no JSON",
    ],
    "kept-latest": [b"1,a,2026-01-01T00:00:05Z", b"2,b,2026-01-01T00:00:01Z", b"3,b,2026-01-01T00:00:02Z", b"no line"],
}
"""The records that the kept checkpoints have read."""
TOPICS = (*FIRST, "kept-bad", "kept-results")
_FOLDER = "/kept"
"""The folder in which they were made: names of outputs hold it."""


def unpack(folder: Path) -> None:
    """Copies the kept checkpoints and outputs, as if they had been made in the folder."""
    shutil.copytree(KEPT, folder, dirs_exist_ok=True)
    for name in ("flow.json", "keys.json"):
        path = folder / "latest" / name
        path.write_text(path.read_text().replace(_FOLDER, str(folder)))
    with closing(sqlite3.connect(folder / "latest" / "versions.db")) as connection, connection:
        connection.execute("UPDATE versions SET sink = replace(sink, ?, ?)", (_FOLDER, str(folder)))


def kept_flows(bootstrap: str, folder: Path) -> dict[str, Any]:
    """The flows of the kept checkpoints, which `unpack` has put into the folder."""
    from barnabas.pipelines.specification import spec

    return {
        name: spec.parse(text.format(bootstrap=bootstrap), file=str(folder / f"{name}.toml"))
        for name, text in FLOWS.items()
    }


def make(spark: Any, bootstrap: str, folder: Path) -> None:
    """Runs the flows over the first records, which are in the topics."""
    from barnabas.pipelines.running.run import run_on

    for flow in kept_flows(bootstrap, folder).values():
        run_on(spark, flow)


def _main(bootstrap: str, folder: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    from barnabas.pipelines.session import open_session

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(each, 1, 1) for each in TOPICS]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic, values in FIRST.items():
        for value in values:
            producer.produce(topic, value)
    producer.flush(60)
    session = open_session("kept", cores=1)
    try:
        make(session.spark, bootstrap, folder)
    finally:
        session.close()
    for each in folder.rglob("*.lock"):
        each.unlink()
    for each in folder.rglob("before-*"):
        shutil.rmtree(each)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
