"""Unlike flows on brokers of Apache Kafka's, with the results that counting in Python gives.

CI has one version; ``make trials`` has more of them, and our own broker, for which the same results
are expected: ``BARNABAS_BROKERS="3.9.1 4.3.0 barnabas"``.
"""

import collections
import contextlib
import io
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.needs import fetch_reference, needs_reference
from support.reference import apache_broker, apache_tool
from support.registry import RegistryForTests, with_id

pytestmark = [
    *(pytest.mark.spark, pytest.mark.interop, pytest.mark.java),
    *(pytest.mark.timeout(600), needs_reference),
]
pytest.importorskip("pyspark")
pq = pytest.importorskip("pyarrow.parquet")
fastavro = pytest.importorskip("fastavro")

from barnabas.pipelines.outputs.declared import SearchSink  # noqa: E402
from barnabas.pipelines.outputs.search import search_index  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402

BROKERS = os.environ.get("BARNABAS_BROKERS", "4.3.0").split()
GROUPS = {
    "3.9.1": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "4.3.0": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}
SOURCE = """\
name = "{topic}"
checkpoint = "state"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
group = "{topic}"
max_offsets_per_trigger = 400
"""


class Broker:
    """A broker, and whose it is."""

    def __init__(self, version: str, cluster: Any) -> None:
        self.version = version
        self.cluster = cluster

    @property
    def is_apache(self) -> bool:
        return self.version != "barnabas"

    def send(self, topic: str, values: list[bytes], **settings: str) -> None:
        """Records with keys, in batches that are compressed as asked."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "linger.ms": 20, **settings})
        if "transactional.id" in settings:
            producer.init_transactions(60)
            producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, value, str(number % 7))
        assert producer.flush(60) == 0
        if "transactional.id" in settings:
            (producer.commit_transaction if settings["transactional.id"] == "good" else producer.abort_transaction)(60)

    def lags(self, group: str) -> list[str]:
        """The column LAG of Apache's own tool."""
        version = self.version if self.is_apache else "3.9.1"
        servers = ("--bootstrap-server", self.cluster.bootstrap)
        shown = apache_tool(GROUPS[version], *servers, "--describe", "--group", group, version=version)
        rows = [line.split() for line in shown.stdout.splitlines() if line.startswith(group)]
        assert rows, shown.stdout + shown.stderr
        return [row[5] for row in rows]


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker of each kind that is asked for."""
    if request.param == "barnabas":
        yield Broker(request.param, request.getfixturevalue("cluster"))
        return
    fetch_reference()
    with apache_broker(tmp_path_factory.mktemp("apache") / "data", request.param) as bootstrap:
        yield Broker(request.param, request.getfixturevalue("cluster_at")(bootstrap))


def run(spark: Any, folder: Path, text: str) -> dict[str, Any]:
    return run_on(spark, spec.parse(text, file=str(folder / "flow.toml")))


def select(folder: Path, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(folder / "out.db")) as connection:
        return connection.execute(query).fetchall()


def test_windows_over_json_go_to_a_database(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Bad rows to their topic, and the group's lag, as Apache's tool shows it, to 0."""
    topic, bad = broker.cluster.topic(3), broker.cluster.topic(1)
    text = SOURCE.format(topic=topic, bootstrap=broker.cluster.bootstrap) + (
        f'bad_rows_topic = "{bad}"\n'
        'format = { type = "json", columns = { id = "bigint", at = "timestamp", carrier = "string", delay = "int" } }\n'
        '[aggregate]\ntime = "at"\nwindow = "1 hour"\nwatermark = "1 day"\ngroup_by = ["carrier"]\n'
        'compute = { flights = "count(*)", delay = "sum(delay)" }\n'
        '[[sinks]]\ntype = "sqlite"\npath = "out.db"\ntable = "t"\n'
    )
    flights = [
        {"id": n, "at": f"2013-01-01T{n % 24:02d}:10:00Z", "carrier": "ABC"[n % 3], "delay": n % 7} for n in range(1000)
    ]
    values = [json.dumps(each).encode() for each in flights]
    broker.send(topic, [*values, b'{"delay": "late"}', b"{"], **{"compression.type": "zstd"})
    summary = run(spark, tmp_path, text)
    assert (summary["rows"], summary["bad_rows"], summary["lag"]) == (1002, 2, 0)
    assert summary["batches"] >= 3
    expected = collections.Counter[tuple[str, str]]()
    delays = collections.Counter[tuple[str, str]]()
    for each in flights:
        key = (f"{str(each['at'])[:13]}:00:00.000000Z", str(each["carrier"]))
        expected[key] += 1
        delays[key] += int(str(each["delay"]))
    found = select(tmp_path, "SELECT window_start, carrier, flights, delay FROM t")
    assert sorted(found) == sorted((*key, count, delays[key]) for key, count in expected.items())
    letters = broker.cluster.read(bad)
    assert {(each.value(), dict(each.headers())["barnabas.error"]) for each in letters} == {
        (b'{"delay": "late"}', b"WRONG_TYPE"),
        (b"{", b"MALFORMED"),
    }
    assert broker.lags(topic) == ["0"] * 3


def test_avro_of_a_registry_goes_to_parquet(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Records of two schemas, the newer one with a column more."""
    topic = broker.cluster.topic(2)
    fields = [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}]
    schemas = [fastavro.parse_schema({"type": "record", "name": "O", "fields": fields[:size]}) for size in (1, 2)]
    values = []
    for number in range(600):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schemas[number % 2], {"id": number, "note": f"n{number}"})
        values.append(with_id(1 + number % 2, stream.getvalue()))
    broker.send(topic, values, **{"compression.type": "snappy"})
    with RegistryForTests() as registry:
        registry.schemas = {
            number: json.dumps({"type": "record", "name": "O", "fields": fields[:number]}) for number in (1, 2)
        }
        text = SOURCE.format(topic=topic, bootstrap=broker.cluster.bootstrap) + (
            f'format = {{ type = "avro", registry = "{registry.address}", columns = {{ id = "bigint", note = "string" }} }}\n'
            '[[sinks]]\ntype = "parquet"\npath = "lake"\n'
        )
        assert run(spark, tmp_path, text)["bad_rows"] == 0
    rows = pq.read_table(tmp_path / "lake", columns=["id", "note"]).to_pylist()
    assert sorted((row["id"], row["note"]) for row in rows) == [
        (number, f"n{number}" if number % 2 else None) for number in range(600)
    ]


def test_two_streams_are_joined_into_a_topic(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Orders with payments that came within an hour."""
    orders, payments, paid = (broker.cluster.topic(2) for _ in range(3))
    text = (
        f'name = "{paid}"\ncheckpoint = "state"\n[sources.orders]\nbootstrap_servers = "{broker.cluster.bootstrap}"\n'
        f'topics = ["{orders}"]\nwatermark = {{ time = "at", delay = "1 hour" }}\n'
        'format = { type = "csv", columns = { id = "bigint", at = "timestamp" } }\n'
        f'[sources.payments]\ntopics = ["{payments}"]\nwatermark = {{ time = "paid_at", delay = "1 hour" }}\n'
        'format = { type = "csv", columns = { order_id = "bigint", paid_at = "timestamp" } }\n'
        '[[steps]]\nname = "paid"\nsql = "select o.id, o.at, p.paid_at from orders o join payments p on p.order_id = o.id '
        'and p.paid_at between o.at and o.at + interval 1 hour"\n'
        f'[[sinks]]\ntype = "topic"\ntopic = "{paid}"\nkey = ["id"]\n'
    )
    broker.send(orders, [b"%d,2026-01-01T%02d:00:00Z" % (n, n % 20) for n in range(300)], **{"compression.type": "lz4"})
    late = [b"%d,2026-01-01T%02d:%02d:00Z" % (n, n % 20 + n % 2 * 2, n % 60) for n in range(0, 300, 3)]
    broker.send(payments, late)
    run(spark, tmp_path, text)
    found = {json.loads(each.key())["id"]: json.loads(each.value()) for each in broker.cluster.read(paid)}
    assert sorted(found) == list(range(0, 300, 6))
    assert all(row["paid_at"] == f"2026-01-01T{n % 20:02d}:{n % 60:02d}:00.000000Z" for n, row in found.items())


def test_lines_of_a_log_go_to_an_index_and_others_to_dead_letters(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Of transactions those that were committed; their markers take offsets, but are no rows."""
    topic, bad = broker.cluster.topic(1), broker.cluster.topic(1)
    text = SOURCE.format(topic=topic, bootstrap=broker.cluster.bootstrap) + (
        f'bad_rows_topic = "{bad}"\nformat = {{ type = "web_log" }}\n'
        '[[sinks]]\ntype = "search"\npath = "out.db"\ntable = "t"\ntext = ["path"]\n'
    )
    line = '10.0.0.%d - - [10/Oct/2026:13:55:36 +0000] "GET /%s HTTP/1.1" 200 %d'
    committed = [(line % (n % 200, "gate/list" if n % 2 else "home", n)).encode() for n in range(300)]
    if broker.is_apache:
        broker.send(topic, [(line % (1, "aborted", 1)).encode()] * 50, **{"transactional.id": "bad"})
        broker.send(topic, committed, **{"transactional.id": "good", "compression.type": "gzip"})
    else:
        broker.send(topic, committed, **{"compression.type": "gzip"})
    broker.send(topic, [b"no line"])
    summary = run(spark, tmp_path, text)
    assert (summary["rows"], summary["bad"], summary["lag"]) == (301, {"MALFORMED": 1}, 0)
    sizes = [row[0] for row in select(tmp_path, "SELECT size FROM t ORDER BY size")]
    assert sizes == list(range(300))
    index = SearchSink(str(tmp_path / "out.db"), "t", ("path",), spec.POSITION)
    assert len(search_index(index, "list", limit=500)) == 150
    assert search_index(index, "aborted") == []
    assert [each.value() for each in broker.cluster.read(bad)] == [b"no line"]
    (end,) = broker.cluster.committed(topic, topic, 1)
    assert end == (353 if broker.is_apache else 301)
