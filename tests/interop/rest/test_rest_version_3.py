"""The REST proxy's version 3 before a cluster, as curl and programs use it: Confluent's documented
requests, and wrong ones."""

import json
import shutil
import socket
import subprocess
from typing import Any

import pytest

from barnabas.client import Admin
from barnabas.testing import Cluster
from support.rest_web import TIMEOUT_S, Web, read_all, text


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
