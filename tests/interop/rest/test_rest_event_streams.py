"""Topics as event streams of the REST proxy."""

import socket
import time

from barnabas.client import Producer
from barnabas.testing import Cluster
from support.rest_web import TIMEOUT_S, Events, Web, limited, text


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
