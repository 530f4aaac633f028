"""The REST proxy before a cluster, as curl and programs use it: Confluent's documented requests of
versions 2 and 3, event streams, wrong requests, and a cluster that is away."""

import base64
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from barnabas.client import BYTES, Admin, Consumer, Producer
from barnabas.client.admin.acls import Acl
from barnabas.testing import Cluster
from barnabas.testing.rest import ClusterRest, rest_properties
from support.pages import DOCS, blocks
from support.ports import free_ports
from support.reader import Reader

JSON_TYPE = "application/json"
V2 = "application/vnd.kafka.v2+json"
TIMEOUT_S = 30.0


class Answer:
    """A status, headers, and the body as JSON where it is."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> int:
        return int(self.json["error_code"])


class Web:
    """Asks one server."""

    def __init__(self, url: str, login: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        self.url, self.host, self.port = url, parts.hostname or "", parts.port or 0
        self._login, self._tls = login, tls
        self.cluster = ""

    def connection(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT_S, context=self._tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)

    def headers(self, kind: str | None, accept: str | None = None) -> dict[str, str]:
        made = {} if kind is None else {"Content-Type": kind}
        if accept is not None:
            made["Accept"] = accept
        if self._login is not None:
            made["Authorization"] = "Basic " + base64.b64encode(self._login.encode()).decode()
        return made

    def ask(
        self, method: str, path: str, body: Any = None, *, kind: str | None = None, accept: str | None = None
    ) -> Answer:
        """Send a request; a body that is no text is sent as JSON."""
        data = body if isinstance(body, str | bytes) or body is None else json.dumps(body)
        if kind is None and data is not None:
            kind = JSON_TYPE if path.startswith("/v3") else V2
        connection = self.connection()
        try:
            connection.request(method, path, data, self.headers(kind, accept))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def v3(self, method: str, path: str, body: Any = None) -> Answer:
        if not self.cluster:
            self.cluster = self.ask("GET", "/v3/clusters").json["data"][0]["cluster_id"]
        return self.ask(method, f"/v3/clusters/{self.cluster}{path}", body)

    def produce(self, topic: str, *records: Any) -> list[dict[str, Any]]:
        """The reports of records of version 3, sent one behind the other."""
        answer = self.v3("POST", f"/topics/{topic}/records", "".join(map(json.dumps, records)))
        assert answer.status == 200, answer.body
        return [json.loads(line) for line in answer.body.splitlines()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(rest=True, registry=True, settings={"auto.create.topics.enable": "false"}) as made:
        yield made


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Web:
    return Web(cluster.rest.url)


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions, named after the test."""
    name = request.node.originalname[:200]
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topic(name, partitions=2)
    return name


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"value": {"type": "STRING", "data": value}, **more}


# Version 3


def test_curl_creates_describes_and_deletes_a_topic_as_documented(web: Web) -> None:
    """The requests of Confluent's quick start, by curl itself."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")

    def run(*arguments: str) -> str:
        done = subprocess.run([curl, "-sS", "-m", "20", *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    clusters = json.loads(run(f"{web.url}/v3/clusters"))
    assert clusters["kind"] == "KafkaClusterList"
    topics = f"{web.url}/v3/clusters/{clusters['data'][0]['cluster_id']}/topics"
    wanted = {
        "topic_name": "curled",
        "partitions_count": 3,
        "configs": [{"name": "cleanup.policy", "value": "compact"}],
    }
    made = json.loads(run("-X", "POST", "-H", "Content-Type: application/json", topics, "--data", json.dumps(wanted)))
    assert (made["kind"], made["partitions_count"], made["is_internal"]) == ("KafkaTopic", 3, False)
    assert made["metadata"]["self"] == f"{topics}/curled"
    assert "curled" in [each["topic_name"] for each in json.loads(run(topics))["data"]]
    config = json.loads(run(f"{topics}/curled/configs/cleanup.policy"))
    assert (config["value"], config["source"]) == ("compact", "DYNAMIC_TOPIC_CONFIG")
    records = '{"value":{"type":"JSON","data":{"foo":"bar"}},"key":{"type":"STRING","data":"k"}}'
    sent = json.loads(
        run("-X", "POST", "-H", "Content-Type: application/json", f"{topics}/curled/records", "-d", records)
    )
    assert (sent["error_code"], sent["value"]) == (200, {"type": "JSON", "size": 13})
    assert run("-X", "DELETE", "-w", "%{http_code}", f"{topics}/curled") == "204"


def test_records_keep_their_parts(web: Web, cluster: Cluster, topic: str) -> None:
    """Confluent's example of a record, read by a client."""
    (report,) = web.produce(
        topic,
        {
            "partition_id": 1,
            "headers": [{"name": "Header-1", "value": "SGVhZGVyLTE="}, {"name": "Header-2", "value": None}],
            "key": {"type": "BINARY", "data": "Zm9vYmFy"},
            "value": {"type": "JSON", "data": {"foo": "bar"}},
            "timestamp": "2021-02-05T19:14:42Z",
        },
    )
    assert report == {
        "error_code": 200, "cluster_id": web.cluster, "topic_name": topic, "partition_id": 1, "offset": 0,
        "timestamp": "2021-02-05T19:14:42Z", "key": {"type": "BINARY", "size": 6}, "value": {"type": "JSON", "size": 13},
    }  # fmt: skip
    (record,) = read_all(cluster, topic, 1)
    assert (record.partition, record.key, record.value) == (1, b"foobar", b'{"foo":"bar"}')
    assert record.timestamp_ms == 1612552482000
    assert [(name, value) for name, value in record.headers] == [("Header-1", b"Header-1"), ("Header-2", None)]


def read_all(cluster: Cluster, topic: str, count: int) -> list[Any]:
    """So many records of a topic."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "auto.offset.reset": "earliest",
        "group.id": f"r-{topic}",
    }
    found: list[Any] = []
    with Consumer(settings, deserializer=BYTES, key_deserializer=BYTES) as consumer:
        consumer.subscribe([topic])
        end = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < end:
            found += consumer.consume(count, 0.2)
    return found


def test_reports_come_while_the_stream_is_open_and_in_its_order(web: Web, topic: str) -> None:
    """One record at a time over one request: each report comes before the next record is sent, and
    a wrong record ends neither the stream nor the others."""
    web.v3("GET", "")
    with socket.create_connection((web.host, web.port), timeout=TIMEOUT_S) as connection:
        path = f"/v3/clusters/{web.cluster}/topics/{topic}/records"
        head = (
            f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(head.encode())
        reader = connection.makefile("rb")
        codes = []
        for number, record in enumerate([text("a"), {"value": {"type": "BINARY", "data": "!"}}, text("b")]):
            data = json.dumps(record).encode()
            for part in (data[:5], data[5:]):
                connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            if number == 0:
                while reader.readline().strip():
                    pass  # the head of the answer
            codes.append(json.loads(_chunk(reader))["error_code"])
        connection.sendall(b"0\r\n\r\n")
        assert codes == [200, 400, 200]
        assert _chunk(reader) == b""


def _chunk(reader: Any) -> bytes:
    size = int(reader.readline(), 16)
    data = reader.read(size)
    reader.readline()
    return bytes(data)


def test_a_stream_that_breaks_off_reports_what_came_before(web: Web, topic: str) -> None:
    """The last report says what is wrong with the stream."""
    path = f"/topics/{topic}/records"
    answer = web.v3("POST", path, json.dumps(text("a")) + '{"value"')
    first, last = (json.loads(line) for line in answer.body.splitlines())
    assert (first["error_code"], last["error_code"]) == (200, 400)
    assert web.v3("POST", path, "").code == 42206
    assert web.ask("POST", f"/v3/clusters/{web.cluster}{path}", "{}", kind="text/plain").status == 415


def test_a_batch_reports_successes_and_failures(web: Web, topic: str) -> None:
    """Status 207; Confluent allows ten entries."""
    entries = [
        {"id": "1", **text("x")},
        {"id": "2", "partition_id": 9, **text("y")},
        {"id": "3", "value": {"type": "X"}},
    ]
    answer = web.v3("POST", f"/topics/{topic}/records:batch", {"entries": entries})
    assert answer.status == 207
    assert [each["id"] for each in answer.json["successes"]] == ["1"]
    assert [(each["id"], each["error_code"]) for each in answer.json["failures"]] == [("2", 40402), ("3", 400)]
    many = [{"id": str(number), **text("x")} for number in range(11)]
    assert web.v3("POST", f"/topics/{topic}/records:batch", {"entries": many}).code == 42208


@pytest.mark.parametrize(
    "path",
    [
        "", "/brokers", "/brokers/0", "/brokers/0/configs", "/brokers/-/configs", "/brokers/0/configs/num.io.threads",
        "/broker-configs", "/brokers/0/partition-replicas", "/topics/-/configs", "/topics/T", "/topics/T/configs",
        "/topics/T/partitions", "/topics/T/partitions/1", "/topics/T/partitions/1/offset", "/topics/T/partitions/1/replicas",
        "/topics/T/partitions/1/replicas/0", "/topics/-/partitions/-/reassignment", "/topics/T/partitions/-/reassignment",
    ],
)  # fmt: skip
def test_each_document_knows_its_address(web: Web, cluster: Cluster, path: str) -> None:
    """What an address returns names that address, its kind, and the cluster."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topic("T", partitions=2, if_not_exists=True)
    found = web.v3("GET", path).json
    assert found["metadata"]["self"] == f"{web.url}/v3/clusters/{web.cluster}{path}"
    assert found["kind"].startswith("Kafka")
    for each in found.get("data", [found]):
        assert each["cluster_id"] == web.cluster
        assert each["metadata"]["resource_name"].startswith(f"crn:///kafka={web.cluster}")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/topics/none", None, 404, 40403),
        ("DELETE", "/topics/none", None, 404, 40403),
        ("GET", "/topics/none/configs", None, 404, 40403),
        ("POST", "/topics", None, 422, 42206),
        ("POST", "/topics", [], 400, 400),
        ("POST", "/topics", {"topic_name": 1}, 400, 400),
        ("POST", "/topics", {"topic_name": "a b"}, 400, 40002),
        ("POST", "/topics", {"topic_name": "many", "replication_factor": 2}, 400, 40002),
        ("POST", "/topics", {"topic_name": "x", "partitions_count": "1"}, 400, 400),
        ("POST", "/topics", {"topic_name": "x", "replicas_assignments": {"1": [0]}}, 400, 400),
        ("POST", "/topics", "{", 400, 400),
        ("GET", "/brokers/7", None, 404, 404),
        ("GET", "/brokers/x", None, 404, 404),
        ("GET", "/consumer-groups/none", None, 404, 40405),
        ("GET", "/acls", None, 400, 40002),
        ("DELETE", "/acls", None, 400, 400),
        ("GET", "/nothing", None, 404, 404),
        ("PUT", "/topics", {}, 405, 405),
        ("GET", "/topics/none/records", None, 404, 40403),
        ("GET", "/topics/none/records?offset=x", None, 400, 400),
        ("GET", "/topics/none/records?form=x", None, 400, 400),
    ],
)
def test_a_wrong_request_is_answered_with_its_code(
    web: Web, method: str, path: str, body: Any, status: int, code: int
) -> None:
    """A text for a person is there, too."""
    answer = web.v3(method, path, body)
    assert (answer.status, answer.code) == (status, code)
    assert answer.json["message"]


def test_another_cluster_is_not_found(web: Web) -> None:
    """The proxy has one cluster."""
    assert web.ask("GET", "/v3/clusters/other/topics").status == 404


def test_configurations_are_set_reset_and_tried(web: Web, topic: str) -> None:
    """One by one, several at once, and only to see whether it could be done."""
    path = f"/topics/{topic}/configs"

    def value(name: str) -> str:
        return str(web.v3("GET", f"{path}/{name}").json["value"])

    assert web.v3("PUT", f"{path}/retention.ms", {"value": "1000"}).status == 204
    assert value("retention.ms") == "1000"
    both = [{"name": "retention.ms", "operation": "DELETE"}, {"name": "compression.type", "value": "gzip"}]
    assert web.v3("POST", f"{path}:alter", {"data": both, "validate_only": True}).status == 204
    assert value("compression.type") == "producer"
    assert web.v3("POST", f"{path}:alter", {"data": both}).status == 204
    assert (value("retention.ms"), value("compression.type")) == ("604800000", "gzip")
    assert web.v3("DELETE", f"{path}/compression.type").status == 204
    assert value("compression.type") == "producer"
    assert web.v3("POST", f"{path}:alter", {"data": [{"name": "compression.type", "value": "x"}]}).code == 40002
    assert web.v3("PATCH", f"/topics/{topic}", {"partitions_count": 3}).json["partitions_count"] == 3


# Version 2


def test_a_consumer_of_version_2_does_as_documented(web: Web, topic: str) -> None:
    """Confluent's quick start: produce JSON, make an instance, subscribe, read, commit, delete."""
    records = {"records": [{"key": "alice", "value": {"foo": "bar"}}, {"value": [1]}, {"value": None, "partition": 1}]}
    produced = web.ask("POST", f"/topics/{topic}", records, kind="application/vnd.kafka.json.v2+json").json
    assert [each["error_code"] for each in produced["offsets"]] == [None] * 3
    assert produced["value_schema_id"] is None
    made = web.ask(
        "POST", f"/consumers/{topic}", {"name": "one", "format": "json", "auto.offset.reset": "earliest"}
    ).json
    path = f"/consumers/{topic}/instances/one"
    assert made == {"instance_id": "one", "base_uri": web.url + path}
    assert web.ask("POST", f"{path}/subscription", {"topics": [topic]}).status == 204
    assert web.ask("GET", f"{path}/subscription").json == {"topics": [topic]}
    found = read(web, path, 3, "json")
    assert sorted(json.dumps(each["value"]) for each in found) == ["[1]", "null", '{"foo": "bar"}']
    assert {each["topic"] for each in found} == {topic}
    assert web.ask("POST", f"{path}/offsets").status == 200
    partitions = {"partitions": [{"topic": topic, "partition": number} for number in (0, 1)]}
    offsets = web.ask("GET", f"{path}/offsets", partitions).json["offsets"]
    assert sum(each["offset"] for each in offsets) == 3
    lags = web.v3("GET", f"/consumer-groups/{topic}/lags").json["data"]
    assert [each["lag"] for each in lags] == [0] * len(lags)
    assert web.v3("GET", f"/consumer-groups/{topic}/lag-summary").json["total_lag"] == 0
    members = web.v3("GET", f"/consumer-groups/{topic}/consumers").json["data"]
    assert [each["client_id"] for each in members] == ["one"]
    assert web.ask("POST", f"{path}/positions/beginning", partitions).status == 204
    assert len(read(web, path, 3, "json")) == 3
    assert web.ask("DELETE", path).status == 204
    assert web.ask("GET", f"{path}/records").code == 40403


def read(web: Web, path: str, count: int, form: str) -> list[Any]:
    """So many records of an instance."""
    kind = f"application/vnd.kafka.{form}.v2+json"
    found: list[Any] = []
    end = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < end:
        answer = web.ask("GET", f"{path}/records?timeout=500", accept=kind)
        assert (answer.status, answer.headers.get_content_type()) == (200, kind), answer.body
        found += answer.json
    return found


@contextmanager
def instance(web: Web, group: str, **config: Any) -> Iterator[str]:
    """The path of a new instance."""
    made = web.ask("POST", f"/consumers/{group}", {"auto.offset.reset": "earliest", **config})
    assert made.status == 200, made.body
    path = f"/consumers/{group}/instances/{made.json['instance_id']}"
    yield path
    web.ask("DELETE", path)


def test_an_assigned_instance_seeks(web: Web, topic: str) -> None:
    """To an offset, to a time, and to the end; not in a partition that is not assigned."""
    web.produce(topic, *(text(str(number), partition_id=0) for number in range(5)))
    place = {"topic": topic, "partition": 0}
    with instance(web, f"{topic}-g") as path:
        assert web.ask("POST", f"{path}/positions", {"offsets": [{**place, "offset": 1}]}).code == 40903
        assert web.ask("POST", f"{path}/assignments", {"partitions": [place]}).status == 204
        assert web.ask("GET", f"{path}/assignments").json == {"partitions": [place]}
        assert web.ask("POST", f"{path}/subscription", {"topics": [topic]}).code == 40903
        assert [each["offset"] for each in read(web, path, 5, "binary")] == [0, 1, 2, 3, 4]
        assert web.ask("POST", f"{path}/positions", {"offsets": [{**place, "offset": 3}]}).status == 204
        assert [each["offset"] for each in read(web, path, 2, "binary")] == [3, 4]
        when = {"timestamps": [{**place, "timestamp": "2000-01-01T00:00:00Z"}]}
        assert web.ask("POST", f"{path}/positions", when).status == 204
        assert [each["offset"] for each in read(web, path, 5, "binary")] == [0, 1, 2, 3, 4]
        assert web.ask("POST", f"{path}/positions/end", {"partitions": [place]}).status == 204
        web.produce(topic, text("more", partition_id=0))
        assert [each["offset"] for each in read(web, path, 1, "binary")] == [5]
        named = {"offsets": [{**place, "offset": 3, "metadata": "m"}]}
        assert web.ask("POST", f"{path}/offsets", named).status == 200
        committed = web.ask("GET", f"{path}/offsets", {"partitions": [place]}).json
        assert committed == {"offsets": [{**place, "offset": 4, "metadata": "m"}]}


def test_a_record_that_does_not_fit_is_read_next_and_not_committed(web: Web, topic: str) -> None:
    """A commit is of what answers had; a record larger than the limit comes alone."""
    web.produce(topic, *(text("x" * 100, partition_id=0) for _ in range(3)))
    place = {"topic": topic, "partition": 0}
    with instance(web, f"{topic}-g") as path:
        web.ask("POST", f"{path}/assignments", {"partitions": [place]})
        found: list[Any] = []
        end = time.monotonic() + TIMEOUT_S
        while not found and time.monotonic() < end:
            found = web.ask("GET", f"{path}/records?max_bytes=150").json
        assert [each["offset"] for each in found] == [0]
        web.ask("POST", f"{path}/offsets")
        committed = web.ask("GET", f"{path}/offsets", {"partitions": [place]}).json["offsets"]
        assert [each["offset"] for each in committed] == [1]
        assert [each["offset"] for each in web.ask("GET", f"{path}/records?max_bytes=10").json] == [1]


def test_what_a_client_did_not_wait_for_is_read_again(web: Web, topic: str) -> None:
    """A read that waits for records goes on without its client, and what it finds is not lost."""
    with instance(web, f"{topic}-g", **{"consumer.request.timeout.ms": 20_000}) as path:
        web.ask("POST", f"{path}/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
        with socket.create_connection((web.host, web.port)) as gone:
            gone.sendall(f"GET {path}/records HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        web.produce(topic, text("x", partition_id=0))
        assert [each["offset"] for each in read(web, path, 1, "binary")] == [0]


def test_a_record_that_is_not_in_the_format_is_named_and_stepped_over(web: Web, topic: str) -> None:
    """What comes before it is returned first; nothing is lost behind it."""
    web.produce(topic, *(text(each, partition_id=0) for each in ("1", "no json", "2")))
    with instance(web, f"{topic}-g", format="json") as path:
        web.ask("POST", f"{path}/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
        assert [each["value"] for each in read(web, path, 1, "json")] == [1]
        wrong = web.ask("GET", f"{path}/records")
        assert wrong.code == 50002
        assert f"{topic}-0 offset 1" in wrong.json["message"]
        assert [each["value"] for each in read(web, path, 1, "json")] == [2]


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "code"),
    [
        ("GET", "/topics/none", None, None, 40401),
        ("GET", "/topics/T2/partitions/9", None, None, 40402),
        ("GET", "/topics/T2/partitions/x", None, None, 40402),
        ("POST", "/topics/none", {"records": [{"value": "eA=="}]}, "binary", 40401),
        ("POST", "/topics/T2", {"records": [{"value": "!"}]}, "binary", 400),
        ("POST", "/topics/T2", {"records": [{"value": "eA==", "partition": 9}]}, "binary", 40402),
        ("POST", "/topics/T2/partitions/9", {"records": [{"value": "eA=="}]}, "binary", 40402),
        ("POST", "/topics/T2", {"records": [{"value": 1}]}, "avro", 42202),
        ("POST", "/topics/T2", {"records": [{"value": 1}], "value_schema": "{"}, "avro", 42207),
        ("POST", "/topics/T2", {"records": [{"value": 1}], "value_schema_id": 999}, "avro", 42207),
        ("POST", "/topics/T2", "{}", "xml", 415),
        ("POST", "/consumers/g", {"format": "xml"}, None, 42204),
        ("POST", "/consumers/g/instances/none/subscription", {"topics": ["T2"]}, None, 40403),
        ("DELETE", "/consumers/g/instances/none", None, None, 40403),
    ],
)
def test_a_wrong_request_of_version_2_is_answered_with_its_code(
    web: Web, cluster: Cluster, method: str, path: str, body: Any, kind: str | None, code: int
) -> None:
    """Confluent's codes, where version 2 has others than version 3."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topic("T2", partitions=2, if_not_exists=True)
    answer = web.ask(method, path, body, kind=None if kind is None else f"application/vnd.kafka.{kind}.v2+json")
    assert answer.code == code
    assert answer.status == int(str(code)[:3])


def test_an_instance_is_read_in_its_format_alone(web: Web) -> None:
    """Confluent's code 40601; a name is taken once in a group."""
    with instance(web, "formats", name="i", format="json") as path:
        assert web.ask("GET", f"{path}/records", accept="application/vnd.kafka.binary.v2+json").code == 40601
        assert web.ask("GET", f"{path}/records", accept="text/html").code == 406
        assert web.ask("POST", "/consumers/formats", {"name": "i"}).code == 40902


# Schemas

AVRO = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"note","type":["null","string"]}]}'
)


def test_values_of_avro_go_through_the_registry_both_ways(web: Web, topic: str) -> None:
    """By a schema in the request, by its id, by its version, and the latest one."""
    order = {"id": 1, "note": {"string": "x"}}
    reports = web.produce(
        topic,
        {"value": {"type": "AVRO", "schema": AVRO, "data": order}},
        {"value": {"data": order}},
        {"value": {"schema_version": 1, "data": order}},
        {"value": {"schema_version": 1, "data": {"id": "x"}}},
    )
    assert [each["error_code"] for each in reports] == [200, 200, 200, 42203]
    schema_id = reports[0]["value"]["schema_id"]
    assert reports[0]["value"] == {
        "type": "AVRO", "subject": f"{topic}-value", "schema_id": schema_id, "schema_version": 1, "size": 5 + 4,
    }  # fmt: skip
    by_id = {"records": [{"value": order}], "value_schema_id": schema_id}
    produced = web.ask("POST", f"/topics/{topic}", by_id, kind="application/vnd.kafka.avro.v2+json").json
    assert produced["value_schema_id"] == schema_id
    with instance(web, f"{topic}-g", format="avro") as path:
        web.ask("POST", f"{path}/subscription", {"topics": [topic]})
        assert [each["value"] for each in read(web, path, 4, "avro")] == [order] * 4


def test_confluents_deserializers_read_what_was_produced_over_http(web: Web, cluster: Cluster, topic: str) -> None:
    """Of Avro and of JSON Schema; and the proxy reads what their serializers wrote."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    schema = '{"type":"object","properties":{"id":{"type":"integer"}}}'
    reports = web.produce(
        topic,
        {"partition_id": 0, "value": {"type": "AVRO", "schema": AVRO, "data": {"id": 1, "note": {"string": "x"}}}},
        {"partition_id": 0, "value": {"type": "JSONSCHEMA", "subject": "other", "schema": schema, "data": {"id": 2}}},
    )
    assert [each["error_code"] for each in reports] == [200, 200]
    client = SchemaRegistryClient(cluster.registry.client_properties())
    context = SerializationContext(topic, MessageField.VALUE)
    avro, plain = read_all(cluster, topic, 2)
    assert AvroDeserializer(client)(avro.value, context) == {"id": 1, "note": "x"}
    assert JSONDeserializer(schema)(plain.value, context) == {"id": 2}
    written = AvroSerializer(client, AVRO)({"id": 3, "note": None}, context)
    web.produce(topic, {"partition_id": 1, "value": {"type": "BINARY", "data": base64.b64encode(written).decode()}})
    with instance(web, f"{topic}-g", format="avro") as path:
        web.ask("POST", f"{path}/assignments", {"partitions": [{"topic": topic, "partition": 1}]})
        assert [each["value"] for each in read(web, path, 1, "avro")] == [{"id": 3, "note": None}]


def test_values_of_json_schema_are_checked(web: Web, topic: str) -> None:
    """A value that the schema does not allow is not sent."""
    schema = '{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'
    reports = web.produce(
        topic,
        {"value": {"type": "JSONSCHEMA", "schema": schema, "data": {"id": 1}}},
        {"value": {"type": "JSONSCHEMA", "schema": schema, "data": {"id": "x"}}},
    )
    assert [each["error_code"] for each in reports] == [200, 42203]
    with instance(web, f"{topic}-g", format="jsonschema") as path:
        web.ask("POST", f"{path}/subscription", {"topics": [topic]})
        assert [each["value"] for each in read(web, path, 1, "jsonschema")] == [{"id": 1}]


def test_values_of_protobuf_go_through_the_registry_both_ways(web: Web, topic: str) -> None:
    """The schema is a .proto file; values have protobuf's JSON."""
    schema = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string some_note = 2; }'
    (report,) = web.produce(
        topic, {"value": {"type": "PROTOBUF", "schema": schema, "data": {"id": "7", "someNote": "x"}}}
    )
    assert report["error_code"] == 200, report
    with instance(web, f"{topic}-g", format="protobuf") as path:
        web.ask("POST", f"{path}/subscription", {"topics": [topic]})
        assert [each["value"] for each in read(web, path, 1, "protobuf")] == [{"id": "7", "someNote": "x"}]


# Event streams


class Events:
    """An open event stream."""

    def __init__(self, web: Web, topic: str, query: str = "", last_event_id: str = "") -> None:
        web.v3("GET", "")
        self._connection = web.connection()
        headers = web.headers(None) | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        self._connection.request("GET", f"/v3/clusters/{web.cluster}/topics/{topic}/records?{query}", headers=headers)
        self.answer = self._connection.getresponse()
        assert self.answer.status == 200
        self.last_id = ""

    def lines(self) -> Iterator[str]:
        while line := self.answer.readline():
            yield line.decode().rstrip("\n")

    def records(self, count: int) -> list[Any]:
        """So many events, and the line of positions behind them."""
        found: list[Any] = []
        for line in self.lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
            elif line.startswith("id: "):
                self.last_id = line.removeprefix("id: ")
                if len(found) >= count:
                    break
        return found

    def close(self) -> None:
        self._connection.close()


def test_a_stream_has_what_was_there_and_what_comes(web: Web, topic: str) -> None:
    """From the first record on, live, and again from where it ended."""
    web.produce(topic, *(text(str(number), partition_id=number % 2) for number in range(4)))
    stream = Events(web, topic, "offset=earliest&format=string")
    assert sorted(each["value"] for each in stream.records(4)) == ["0", "1", "2", "3"]
    web.produce(topic, text("live", partition_id=1))
    (event,) = stream.records(1)
    assert (event["partition"], event["offset"], event["value"]) == (1, 2, "live")
    assert stream.last_id == "0:2,1:3"
    stream.close()
    web.produce(topic, text("missed", partition_id=0))
    again = Events(web, topic, "format=string", last_event_id=stream.last_id)
    assert [each["value"] for each in again.records(1)] == ["missed"]
    again.close()


def test_streams_share_what_is_read_and_each_has_all_of_it(web: Web, topic: str) -> None:
    """Twenty streams at the end, and others that begin at offsets of their own."""
    web.produce(topic, *(text(str(number), partition_id=0) for number in range(10)))
    live = [Events(web, topic, "format=string&partition=0") for _ in range(20)]
    for each in live:
        each.records(0)
    web.produce(topic, *(text(str(number), partition_id=0) for number in range(10, 30)))
    late = [Events(web, topic, f"format=string&partition=0&offset={start}") for start in (0, 5, 15, 29)]
    for each in live:
        assert [int(found["value"]) for found in each.records(20)] == list(range(10, 30))
    for each, start in zip(late, (0, 5, 15, 29), strict=True):
        assert [int(found["value"]) for found in each.records(30 - start)] == list(range(start, 30))
    for each in (*live, *late):
        each.close()


def test_a_stream_ends_with_its_topic(web: Web, topic: str) -> None:
    """An event says why."""
    stream = Events(web, topic)
    stream.records(0)
    assert web.v3("DELETE", f"/topics/{topic}").status == 204
    assert "event: error" in list(stream.lines())
    stream.close()


# Limits


@contextmanager
def limited(cluster: Cluster, **settings: str) -> Iterator[Web]:
    """A proxy of its own with other settings."""
    changes = {name.replace("_", "."): value for name, value in settings.items()}
    rest = ClusterRest({**rest_properties(cluster.bootstrap_servers, None, 0), **changes})
    try:
        yield Web(rest.url)
    finally:
        rest.stop()


def test_what_is_too_large_or_too_many_is_refused(cluster: Cluster, topic: str) -> None:
    """Bodies, records of a stream, instances, and event streams."""
    limits = {
        "max_request_bytes": "2000", "consumer_instances_max": "1", "event_streams_max": "1",
        "api_v3_produce_request_size_limit_max_bytes": "1000",
    }  # fmt: skip
    with limited(cluster, **limits) as web:
        large = {"topic_name": "x" * 3000}
        assert web.v3("POST", "/topics", large).status == 413
        first, last = web.produce(topic, text("a"), text("b" * 1500))
        assert (first["error_code"], last["error_code"]) == (200, 413)
        with instance(web, "limited"):
            assert web.ask("POST", "/consumers/limited", {}).status == 429
        stream = Events(web, topic)
        assert web.v3("GET", f"/topics/{topic}/records").status == 429
        stream.close()


def test_a_proxy_and_a_registry_that_are_stopped_let_the_cluster_stop() -> None:
    """A test may stop them before the cluster does."""
    with Cluster(rest=True, registry=True) as cluster:
        cluster.rest.stop()
        cluster.registry.stop()


def test_an_instance_that_is_not_used_ends_and_leaves_its_group(cluster: Cluster, topic: str) -> None:
    """Its partitions are free for others."""
    with limited(cluster, consumer_instance_timeout_ms="300") as web:
        made = web.ask("POST", "/consumers/short", {"name": "i"})
        web.ask("POST", "/consumers/short/instances/i/subscription", {"topics": [topic]})
        assert made.status == 200
        end = time.monotonic() + TIMEOUT_S
        # Asking would use it.
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            while time.monotonic() < end and admin.describe_group("short").members:
                time.sleep(0.05)
            assert not admin.describe_group("short").members
        while web.ask("POST", "/consumers/short", {"name": "i"}).status != 200:
            assert time.monotonic() < end
            time.sleep(0.5)


def test_a_stream_that_is_not_read_is_closed_and_holds_up_no_other(cluster: Cluster, topic: str) -> None:
    """What it does not read stays in the cluster: another stream has all of it."""
    limits = {"event_stream_stall_timeout_ms": "1000", "event_stream_keep_alive_ms": "200", "event_streams_max": "2"}
    with limited(cluster, **limits) as web:
        web.v3("GET", "")
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.settimeout(TIMEOUT_S)
            slow.connect((web.host, web.port))
            path = f"/v3/clusters/{web.cluster}/topics/{topic}/records?offset=earliest&format=string"
            slow.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            quick = Events(web, topic, "offset=earliest&format=string&partition=0")
            quick.records(0)
            with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
                for _ in range(400):
                    producer.send(topic, "x" * 50_000, partition=0)
            assert len(quick.records(400)) == 400
            keep_alive = next(line for line in quick.lines() if line.startswith(":"))
            assert keep_alive == ": keep-alive"
            end = time.monotonic() + TIMEOUT_S
            while web.v3("GET", "/topics/none/records").status == 429:  # while both are open
                assert time.monotonic() < end
                time.sleep(0.05)
            quick.close()
            received = 0
            try:
                while data := slow.recv(1 << 16):
                    received += len(data)
            except ConnectionError:
                pass
            assert received < 400 * 50_000


# A cluster that is away, and one that is secured


def test_a_cluster_that_is_away_is_an_error_and_comes_back(cluster: Cluster) -> None:
    """Requests end in their time; the same proxy and its open streams go on afterwards."""
    with Cluster() as other:
        with Admin({"bootstrap.servers": other.bootstrap_servers}) as admin:
            admin.create_topic("t")
        with limited(other, client_timeout_ms="1500", producer_delivery_timeout_ms="1500") as web:
            assert web.produce("t", text("a"))[0]["error_code"] == 200
            stream = Events(web, "t", "format=string")
            stream.records(0)
            other.stop_broker(0)
            assert web.v3("GET", "/topics").code == 50003
            assert web.produce("t", text("b"))[0]["error_code"] == 50003
            other.start_broker(0)
            end = time.monotonic() + TIMEOUT_S
            while web.v3("GET", "/topics").status != 200:
                assert time.monotonic() < end
            while web.produce("t", text("c"))[0]["error_code"] != 200:
                assert time.monotonic() < end
            values: list[str] = []
            while "c" not in values:  # what timed out may have arrived, too
                values += [each["value"] for each in stream.records(1)]
            stream.close()


def test_users_of_a_secured_cluster_have_their_own_rights_over_https() -> None:
    """The brokers check passwords and access control lists; no user has the proxy's own rights."""
    users = {"ann": "ann-secret", "bob": "bob-secret"}
    acls = [Acl("TOPIC", "orders", "User:ann", "ALL"), Acl("GROUP", "g", "User:ann", "ALL")]
    with Cluster(rest=True, security="SASL_SSL", users=users, acls=acls) as cluster:
        tls = ssl.create_default_context(cafile=str(Path(cluster.data_dir) / "security" / "broker.crt"))
        tls.check_hostname = False
        ann, bob, eve, nobody = (
            Web(cluster.rest.url, login, tls) for login in ("ann:ann-secret", "bob:bob-secret", "bob:wrong", None)
        )
        made = ann.v3("POST", "/topics", {"topic_name": "orders"})
        assert made.status == 201, made.body
        assert ann.produce("orders", text("x"))[0]["error_code"] == 200
        assert bob.v3("GET", "/topics/orders").status in (403, 404)
        assert bob.produce("orders", text("x"))[0]["error_code"] in (40301, 40403)
        assert "orders" not in bob.ask("GET", "/topics").json
        for each in (eve, nobody):
            refused = each.ask("GET", "/v3/clusters")
            assert (refused.status, refused.code) == (401, 401)
            assert refused.headers["WWW-Authenticate"].startswith("Basic realm=")
        with instance(ann, "g", name="i") as path:
            assert bob.ask("GET", f"{path}/records").code == 40403
            ann.ask("POST", f"{path}/subscription", {"topics": ["orders"]})
            assert len(read(ann, path, 1, "binary")) == 1


# The command and its page


def test_the_page_does_what_it_shows(tmp_path: Path) -> None:
    """rest-proxy.md: a cluster with a proxy, a record over HTTP, an instance, and the end."""
    (port,) = free_ports(1)
    reader = Reader(tmp_path, {"up --rest": f"up --rest {port}", "127.0.0.1:8082": f"127.0.0.1:{port}"})
    try:
        reader.follow(blocks(DOCS / "how-to" / "rest-proxy.md"))
    finally:
        reader.end()


def test_a_file_that_asks_for_more_protection_than_there_is_ends_the_start(tmp_path: Path) -> None:
    """The error names the property."""
    file = tmp_path / "kafka-rest.properties"
    file.write_text("bootstrap.servers=localhost:1\nlisteners=http://127.0.0.1:0\nauthentication.roles=admin\n")
    command = [sys.executable, "-m", "barnabas", "rest", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "authentication.roles" in done.stderr
