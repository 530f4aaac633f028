"""Requests over HTTP that carry credentials: to the server that an address names, and to no other.

``urllib`` by itself sends the header Authorization on to whatever server a redirect names, and
takes the user of an address such as ``http://ann:secret@host`` for a part of the host's name.

Kafka has no counterpart.
"""

import base64
import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from barnabas.base.redaction import redacted_address
from barnabas.client.errors import ConfigurationError

__all__ = ["WEB_ERRORS", "basic_authorization", "open_request", "split_login"]

WEB_ERRORS = (OSError, ValueError, TypeError, http.client.HTTPException)
"""What a request raises when there is no answer, or one that makes no sense."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows redirects of GET and HEAD within one scheme, host and port; others are errors."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.get_method() not in ("GET", "HEAD") or _origin(newurl) != _origin(req.full_url):
            reason = f"it redirects to {redacted_address(newurl)}: redirects are not followed to there"
            raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SameOrigin)


def open_request(request: urllib.request.Request, timeout_s: float, tls: ssl.SSLContext | None = None) -> Any:
    """Like ``urllib.request.urlopen``, without redirects to other servers.

    ``tls`` has the certificates that are trusted; None for those that Python trusts."""
    opener = _OPENER
    if tls is not None:
        opener = urllib.request.build_opener(_SameOrigin, urllib.request.HTTPSHandler(context=tls))
    return opener.open(request, timeout=timeout_s)


def split_login(url: str) -> tuple[str, str | None, str | None]:
    """An address of http or https without its user, its user, and its password.

    Raises `ConfigurationError` for another one. The error does not quote the address,
    which may hold a password.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        is_address = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
        # If a password contains / ? or #, what follows looks like the path, and what
        # precedes it like the host.
        is_address = is_address and "@" not in f"{parts.path}{parts.query}{parts.fragment}"
    except ValueError:
        is_address = False
    if not is_address:
        raise ConfigurationError("it is not an address of HTTP")
    place = parts.netloc.rpartition("@")[2]
    username, password = (
        None if text is None else urllib.parse.unquote(text) for text in (parts.username, parts.password)
    )
    return urllib.parse.urlunsplit(parts._replace(netloc=place)), username, password


def basic_authorization(username: str, password: str) -> str:
    """The value of the header Authorization.

    Raises `ConfigurationError` for text that UTF-8 cannot hold."""
    try:
        return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
    except UnicodeEncodeError:
        raise ConfigurationError("the user's name or the password holds half a character (a lone surrogate)") from None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
