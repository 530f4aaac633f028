"""The part of HTTP/1.1 that servers speak to operators: from the bytes of a request's head to its
fields, answers to bytes.

In ZooKeeper: Jetty.
"""

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

__all__ = [
    "BadRequestError",
    "HttpRequest",
    "HttpResponse",
    "encode_head",
    "encode_http_response",
    "is_expected_host",
    "is_of_this_site",
    "parse_head",
]

_MAX_PARAMETERS = 50


class HttpResponse(NamedTuple):
    """What goes over HTTP."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The head of a request; names of headers are in lower case."""

    method: str
    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks, each with its length."""
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    @property
    def body_bytes(self) -> int:
        """How long the body is, as far as the head says it; 0 if it does not."""
        length = self.headers.get("content-length", "")
        return int(length) if length.isdecimal() and len(length) < 19 and not self.is_chunked else 0

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for an interim answer before it sends the body."""
        return self.headers.get("expect", "").lower() == "100-continue"


class BadRequestError(Exception):
    """The client gets an answer with a status, and the end of the connection."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(status, text)
        self.response = HttpResponse(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def parse_head(data: bytes) -> HttpRequest:
    """Read the head of a request. Raises `BadRequestError`."""
    first, *lines = data.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "this is not a request of HTTP/1.1")
    if words[0] not in ("GET", "POST"):
        raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and POST are offered")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    try:
        target = urlsplit(words[1])
        parameters = dict(parse_qsl(target.query, max_num_fields=_MAX_PARAMETERS))
    except ValueError:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "this is not a URL") from None
    return HttpRequest(words[0], target.path, parameters, headers)


def is_expected_host(header: str | None, names: Collection[str]) -> bool:
    """Whether a browser that sends this header Host has asked for this server.

    A page of another site can make a browser take this server for its own: it lets its name
    lead to this machine's address (DNS rebinding). Then the browser sends that name. Addresses
    cannot be led elsewhere.
    """
    if header is None:
        return False
    host = header.strip().lower()
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host.rstrip(".") in {"localhost", *(each.lower().rstrip(".") for each in names)}
    return True


def is_of_this_site(request: HttpRequest) -> bool:
    """Whether no page of another site has made a browser send this request: a browser names that
    site in the header Origin."""
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == request.headers.get("host", "").lower()


def encode_head(
    content_type: str,
    size_bytes: int,
    headers: tuple[tuple[str, str], ...] = (),
    status: int = HTTPStatus.OK,
) -> bytes:
    """The head of an answer, after whose body the connection ends."""
    lines = (
        f"HTTP/1.1 {status:d} {HTTPStatus(status).phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {size_bytes}",
        *(f"{name}: {value}" for name, value in headers),
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def encode_http_response(answer: HttpResponse) -> bytes:
    """A whole answer."""
    return encode_head(answer.content_type, len(answer.body), answer.headers, answer.status) + answer.body
