"""A registry of schemas with Confluent's answers to what a reader asks: ``GET /schemas/ids/N``."""

import http.server
import json
import threading
from typing import Any, Self

__all__ = ["RegistryForTests", "with_id"]


class RegistryForTests:
    """A registry on a free port that holds what it is given, and notes what it is asked; serves inside a ``with``."""

    def __init__(self) -> None:
        self.schemas: dict[int, str] = {}
        self.asked: list[str] = []
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                schema = registry.schemas.get(int(self.path.partition("?")[0].rpartition("/")[2]))
                self.send_response(404 if schema is None else 200)
                self.end_headers()
                self.wfile.write(json.dumps({"schema": schema} if schema else {"error_code": 40403}).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


def with_id(schema_id: int, value: bytes) -> bytes:
    """A value as serializers with a registry write it."""
    return b"\0" + schema_id.to_bytes(4, "big") + value
