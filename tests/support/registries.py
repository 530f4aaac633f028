"""Instances of the schema registry as processes, and a small client that shows statuses and
codes."""

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from support.ports import free_ports
from support.servers import Server

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class Reply(NamedTuple):
    """An answer: its status and its document; the status is 0 where none came."""

    status: int
    body: Any

    @property
    def code(self) -> int:
        """The code of an error; 0 for none."""
        return self.body.get("error_code", 0) if isinstance(self.body, dict) else 0


def ask(url: str, method: str = "GET", body: object = None, *, timeout_s: float = 60, **headers: str) -> Reply:
    """Send a request. A ``body`` of bytes is sent as it is."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, {"Content-Type": CONTENT_TYPE, **given}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return Reply(response.status, _document(response.read()))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, _document(error.read()))
    except (OSError, ValueError):
        return Reply(0, None)


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode() or None


def register(url: str, subject: str, schema: object, *, timeout_s: float = 60, **more: object) -> Reply:
    """Register a schema, which is a document of Avro."""
    path = f"{url}/subjects/{urllib.parse.quote(subject, safe='')}/versions"
    return ask(path, "POST", {"schema": json.dumps(schema), **more}, timeout_s=timeout_s)


def avro_record(name: str) -> dict[str, object]:
    """A schema that differs from those of other names."""
    return {"type": "record", "name": name, "fields": []}


class RegistryProcess(Server):
    """An instance that can be killed, paused, and started again at its port."""

    def __init__(self, directory: Path, name: str, bootstrap: str, **properties: str) -> None:
        port = free_ports(1)[0]
        path = directory / f"{name}.properties"
        texts = {
            "listeners": f"http://127.0.0.1:{port}",
            "kafkastore.bootstrap.servers": bootstrap,
            "kafkastore.topic.replication.factor": "1",
            **{key.replace("_", "."): value for key, value in properties.items()},
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in texts.items()))
        super().__init__(["registry", str(path)], directory / f"{name}.log", port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        """Whether it answers, and writes or knows who does."""
        return ask(f"{self.url}/", timeout_s=2).status == 200
