"""A registry of schemas with Confluent's answers to what clients ask: schemas by their ids, and ids
of schemas of a subject."""

import contextlib
import http.server
import json
import re
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any, Self

__all__ = ["RegistryForTests", "serving", "with_id"]


class RegistryForTests:
    """A registry on a free port that holds what it is given, and notes what it is asked.

    Serves inside a ``with``."""

    def __init__(self) -> None:
        self.schemas: dict[int, str] = {}
        self.more: dict[int, dict[str, Any]] = {}
        """What is said of schemas beside their texts: their types, references and rules."""
        self.asked: list[str] = []
        self.subjects: dict[str, set[int]] = {}
        self.logins: set[str] = set()
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                *_, subject, _, last = ["", "", *self.path.partition("?")[0].split("/")]
                if self.path.startswith("/subjects/"):
                    ids = sorted(registry.subjects.get(urllib.parse.unquote(subject), ()))
                    version = len(ids) if last == "latest" else int(last)
                    document = registry.document(dict(enumerate(ids, 1)).get(version))
                    if document:
                        document |= {"version": version, "subject": urllib.parse.unquote(subject)}
                else:
                    document = registry.document(int(last))
                self._answer(200 if document else 404, document or {"error_code": 40403})

            def do_POST(self) -> None:
                registry.asked.append(self.path)
                registry.logins.add(self.headers.get("Authorization", ""))
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path.startswith("/compatibility/"):
                    self._answer(200, {"is_compatible": True})
                    return
                _, _, subject, *rest = urllib.parse.unquote(self.path.partition("?")[0]).split("/")
                schema_id = registry.id_of(subject, given.pop("schema"), registers=bool(rest))
                if schema_id is None:
                    self._answer(404, {"error_code": 40401, "message": "Subject not found."})
                else:
                    registry.more.setdefault(schema_id, given)
                    version = sorted(registry.subjects[subject]).index(schema_id) + 1
                    self._answer(200, {"id": schema_id, "version": version, "subject": subject})

            def _answer(self, status: int, document: dict[str, Any]) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)

    def document(self, schema_id: int | None) -> dict[str, Any] | None:
        """What is answered for a schema."""
        if schema_id not in self.schemas:
            return None
        return {"id": schema_id, "schema": self.schemas[schema_id], **self.more.get(schema_id, {})}

    def id_of(self, subject: str, schema: str, *, registers: bool) -> int | None:
        """The schema's id; None for a subject that does not have it, and does not get it."""
        schema_id = next((number for number, known in self.schemas.items() if known == schema), None)
        if registers:
            schema_id = schema_id or max(self.schemas, default=0) + 1
            self.schemas[schema_id] = schema
            self.subjects.setdefault(subject, set()).add(schema_id)
        return schema_id if schema_id in self.subjects.get(subject, ()) else None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@contextlib.contextmanager
def serving(answer: bytes) -> Iterator[str]:
    """A server that gives these bytes to each that connects."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):  # nothing listens any more
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        # What is not read when it is closed resets the connection.
                        _read_request(connection)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(60)


def _read_request(connection: socket.socket) -> None:
    """The head of a request and its body, which may come behind it."""
    request = b""
    while b"\r\n\r\n" not in request and (data := connection.recv(65536)):
        request += data
    head, _, body = request.partition(b"\r\n\r\n")
    size = re.search(rb"(?i)content-length: *(\d+)", head)
    left = int(size[1]) - len(body) if size else 0
    while left > 0 and (data := connection.recv(65536)):
        left -= len(data)


def with_id(schema_id: int, value: bytes) -> bytes:
    """A value as serializers with a registry write it."""
    return b"\0" + schema_id.to_bytes(4, "big") + value
