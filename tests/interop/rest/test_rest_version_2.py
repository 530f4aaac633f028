"""The REST proxy's version 2 before a cluster: Confluent's documented requests of consumers, and
wrong ones."""

import json
import socket
import time
from typing import Any

import pytest

from barnabas.client import Admin
from barnabas.testing import Cluster
from support.rest_web import TIMEOUT_S, Web, instance, read, text


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
