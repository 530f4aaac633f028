"""Asks a server of HTTP for a page, until a deadline.

Kafka has no counterpart: operators use curl.
"""

import http.client
import io
from typing import NamedTuple

from barnabas.client.errors import ConnectError
from barnabas.client.network.deadline import Deadline
from barnabas.client.network.sockets import open_socket, receive_all, send_all

__all__ = ["HttpPage", "read_http_page"]

_MAX_PAGE_BYTES = 64 * 1024 * 1024


class HttpPage(NamedTuple):
    """A page, and when its server made it: the header ``Date``, None where there is none."""

    body: bytes
    date: str | None


class _Received:
    """The bytes of an answer in the place of its socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._data)


def read_http_page(
    address: tuple[str, int], path: str, deadline: Deadline, *, what: str, accept: str = "text/plain"
) -> HttpPage:
    """What the server shows there with status 200; ``what`` names it in errors, as ``metrics``.

    Raises `ConnectError` for everything else."""
    name = f"{address[0]}:{address[1]}"
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{address[1]}\r\nConnection: close\r\nAccept: {accept}\r\n\r\n"
    try:
        with open_socket(address, deadline) as asking:
            send_all(asking, request.encode("utf-8", "surrogateescape"), deadline)
            data = bytes(receive_all(asking, _MAX_PAGE_BYTES, deadline))
    except TimeoutError:
        raise ConnectError(f"{name} did not show its {what} within {deadline}") from None
    except OSError as error:
        raise ConnectError(f"{name} does not show its {what}: {error.strerror or error}") from None
    if len(data) > _MAX_PAGE_BYTES:
        raise ConnectError(f"{name}{path} has more than {_MAX_PAGE_BYTES} bytes: it is no page of {what}")
    try:
        response = http.client.HTTPResponse(_Received(data))  # type: ignore[arg-type]  # it uses makefile only
        response.begin()
        body = response.read()
    except http.client.HTTPException as error:
        raise ConnectError(f"{name}{path} does not answer as a server of HTTP: {error!r}") from None
    if response.status != http.client.OK:
        raise ConnectError(f"{name}{path} answers with HTTP status {response.status}, not with {what}")
    return HttpPage(body, response.getheader("Date"))
