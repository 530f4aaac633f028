"""Asks a server for its metrics page, over HTTP, until a deadline.

Kafka has no counterpart: Prometheus is what asks.
"""

import http.client
import io

from barnabas.base.errors import CorruptDataError
from barnabas.client.errors import ConnectError
from barnabas.client.network.deadline import Deadline
from barnabas.client.network.sockets import open_socket, receive_all, send_all
from barnabas.net.prometheus_text import MetricsPage, parse_metrics

__all__ = ["read_metrics_page"]

_MAX_PAGE_BYTES = 64 * 1024 * 1024


class _Received:
    """The bytes of an answer in the place of its socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._data)


def read_metrics_page(address: tuple[str, int], deadline: Deadline, path: str = "/metrics") -> MetricsPage:
    """What the server shows there.

    Raises `ConnectError` where no server answers, and for an answer that is no page of metrics."""
    name = f"{address[0]}:{address[1]}"
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{address[1]}\r\nConnection: close\r\nAccept: text/plain\r\n\r\n"
    try:
        with open_socket(address, deadline) as asking:
            send_all(asking, request.encode("utf-8", "surrogateescape"), deadline)
            data = bytes(receive_all(asking, _MAX_PAGE_BYTES, deadline))
    except TimeoutError:
        raise ConnectError(f"{name} did not show its metrics within {deadline}") from None
    except OSError as error:
        raise ConnectError(f"{name} does not show its metrics: {error.strerror or error}") from None
    if len(data) > _MAX_PAGE_BYTES:
        raise ConnectError(f"{name}{path} has more than {_MAX_PAGE_BYTES} bytes: it is no page of metrics")
    return _page(data, f"{name}{path}")


def _page(data: bytes, name: str) -> MetricsPage:
    try:
        response = http.client.HTTPResponse(_Received(data))  # type: ignore[arg-type]  # it uses makefile only
        response.begin()
        body = response.read()
    except http.client.HTTPException as error:
        raise ConnectError(f"{name} does not answer as a server of HTTP: {error!r}") from None
    if response.status != http.client.OK:
        raise ConnectError(f"{name} answers with HTTP status {response.status}, not with metrics")
    try:
        return parse_metrics(body.decode())
    except (UnicodeDecodeError, CorruptDataError) as error:
        raise ConnectError(f"{name} is no page of metrics: {error}") from None
