"""A small server that plays OpenSearch's part: it keeps documents as they come, and
can refuse them first."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """Keeps documents by id, and gives the answers of ``troubles`` first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.documents: dict[str, Any] = {}
        self.troubles: list[int] = []
        self.refused_once: set[str] = set()
        self.authorizations: set[str | None] = set()
        self.redirects_to = ""
        self.uuid = "first"
        self.meta: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return f"http://user:p%40ss@127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        self.server.authorizations.add(self.headers["Authorization"])
        self._answer(302 if self.server.redirects_to else 404, {})

    def do_GET(self) -> None:
        found = {"mappings": {"_meta": self.server.meta}, "settings": {"index": {"uuid": self.server.uuid}}}
        self._answer(200, {"i": found})

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.meta = body.get("_meta", self.server.meta)
        self._answer(200, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.authorizations.add(self.headers["Authorization"])
        if self.server.troubles:
            self._answer(self.server.troubles.pop(0), {"error": {"reason": "not now"}})
            return
        lines = [json.loads(line) for line in body.splitlines()]
        items = []
        while lines:
            ((kind, action),) = lines.pop(0).items()
            name = action["_id"]
            if kind == "delete":
                is_there = self.server.documents.pop(name, None) is not None
                items.append({"delete": {"status": 200 if is_there else 404}})
                continue
            document = lines.pop(0)
            if name in self.server.refused_once:
                self.server.refused_once.discard(name)
                items.append({"index": {"status": 429, "error": {"reason": "queue is full"}}})
            else:
                self.server.documents[name] = document
                items.append({"index": {"status": 200}})
        self._answer(
            200, {"errors": any(each["status"] > 299 for item in items for each in item.values()), "items": items}
        )

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", self.server.redirects_to)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Silence."""


@contextmanager
def running_stand_in() -> Iterator[Server]:
    """The server, until the end of the block."""
    running = Server()
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield running
    finally:
        running.shutdown()
        thread.join()
        running.server_close()
