"""A client of the REST proxy as programs are: requests, consumer instances and event streams; and a
proxy with limits of its own. Tests that import it are skipped without aiohttp."""

import base64
import http.client
import json
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from barnabas.client import BYTES, Consumer
from barnabas.testing import Cluster
from barnabas.testing.rest import ClusterRest, rest_properties

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


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"value": {"type": "STRING", "data": value}, **more}


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


@contextmanager
def instance(web: Web, group: str, **config: Any) -> Iterator[str]:
    """The path of a new instance."""
    made = web.ask("POST", f"/consumers/{group}", {"auto.offset.reset": "earliest", **config})
    assert made.status == 200, made.body
    path = f"/consumers/{group}/instances/{made.json['instance_id']}"
    yield path
    web.ask("DELETE", path)


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


@contextmanager
def limited(cluster: Cluster, **settings: str) -> Iterator[Web]:
    """A proxy of its own with other settings."""
    changes = {name.replace("_", "."): value for name, value in settings.items()}
    rest = ClusterRest({**rest_properties(cluster.bootstrap_servers, None, 0), **changes})
    try:
        yield Web(rest.url)
    finally:
        rest.stop()
