"""What a registry is asked over HTTP, with the bounds of a client that trusts no answer.

An answer has a largest size. The login goes to the server that the address names, wherever it
redirects (`barnabas.client.registry.web`). An error says what the registry said, and shows no
password.

`RegistryRequests` has the methods that confluent-kafka's client expects of its own REST client, so
that all requests of all callers go this way.

Kafka has no counterpart; Confluent's client has RestService.
"""

import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from barnabas.base.redaction import redacted_address
from barnabas.client.errors import ConfigurationError, ConnectError
from barnabas.client.registry.web import WEB_ERRORS, basic_authorization, open_request, split_login

__all__ = ["RegistryRequests", "UnknownSchemaError"]

_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404
_LARGEST_ID = 2**31 - 1
_MOST_BYTES = 16 << 20  # of an answer: schemas have a few thousand
_TOO_MANY_REQUESTS = 429
_NO_SUCH_SCHEMA = 40403
"""The registry's own error code: another 404 is of a server that is no registry."""
_NO_SUCH_VERSION = (40401, 40402, _NO_SUCH_SCHEMA)
_LOGIN_LACKS = (401, 403)
_BY_SUBJECT = re.compile(r"/subjects/(?P<subject>[^/?]+)(?:/versions)?(?:\?|$)")
_BY_VERSION = re.compile(r"/subjects/(?P<subject>[^/?]+)/(?:versions/(?P<version>[^/?]+)|metadata)(?:\?|$)")
_BY_ID = re.compile(r"/schemas/(?:guids|ids)/(?P<id>[^/?]+)(?:\?|$)")


class UnknownSchemaError(ConfigurationError):
    """The registry answers that it has no schema with this id, or no such version."""


class RegistryRequests:
    """A registry by its address, or by several with commas between them, which are asked in turn
    while one does not answer.

    Raises `ConnectError` when none answers, `ConfigurationError` for what is refused."""

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._servers: list[tuple[str, str | None]] = []
        """Addresses, each with its header Authorization."""
        for each in url.split(","):
            address, user_in_url, password_in_url = _split(each.strip())
            login = (user_in_url, password_in_url) if username is None else (username, password)
            self._servers.append((address, _authorization(address, *login, token)))
        self._timeout_s = timeout_s
        self._tls = _tls(ca_file)

    @property
    def address(self) -> str:
        """The first address, without a login."""
        return self._servers[0][0]

    def ask(self, path: str, body: Mapping[str, Any] | None = None, *, method: str | None = None) -> dict[str, Any]:
        """The object that the registry answers; a body makes it a POST."""
        *others, last = self._servers
        for server in others:
            try:
                return self._ask(*server, path, body, method)
            except ConnectError:
                continue
        return self._ask(*last, path, body, method)

    def _ask(
        self, address: str, login: str | None, path: str, body: Mapping[str, Any] | None, method: str | None
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": _TYPE, **({"Authorization": login} if login else {})}
        request = urllib.request.Request(address + path, data, headers, method=method)  # noqa: S310  # http(s), checked
        try:
            with open_request(request, self._timeout_s, self._tls) as answer:
                return _checked(address, path, _document(address, answer.read(_MOST_BYTES + 1)))
        except urllib.error.HTTPError as error:
            said = _said(error)
            reason = _message(said) or (
                "the login is missing or wrong" if error.code in _LOGIN_LACKS else str(error.reason)
            )
            refused = f"the registry at {address} refuses {_what(path)}: {reason}"
            if error.code >= 500 or error.code == _TOO_MANY_REQUESTS:
                raise ConnectError(refused) from None
            is_of_version = _BY_VERSION.match(path) or path.startswith("/compatibility/")
            unknown = _NO_SUCH_VERSION if is_of_version else (_NO_SUCH_SCHEMA,)
            if error.code == _NOT_FOUND and _code(said) in unknown:
                raise UnknownSchemaError(refused) from None
            raise ConfigurationError(refused) from None
        except WEB_ERRORS as error:
            raise ConnectError(
                f"the registry at {address} does not answer: {str(getattr(error, 'reason', error)).strip():.200}",
                remedy="check the address, and that it runs",
            ) from None

    # What confluent_kafka's client asks

    def get(self, url: str, query: Mapping[str, Any] | None = None) -> Any:
        return self.ask(_path(url, query))

    def post(self, url: str, body: Mapping[str, Any] | None, **_: Any) -> Any:
        return self.ask(_path(url, None), body or {})

    def put(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        return self.ask(_path(url, None), body or {}, method="PUT")

    def delete(self, url: str, query: Mapping[str, Any] | None = None) -> Any:
        return self.ask(_path(url, query), method="DELETE")


def _path(url: str, query: Mapping[str, Any] | None) -> str:
    """A path as it is asked for; Python's truth is JSON's."""
    path, has_query, rest = url.lstrip("/").partition("?")
    pairs = urllib.parse.parse_qsl(rest, keep_blank_values=True) if has_query else []
    for name, value in (query or {}).items():
        pairs += [(name, each) for each in (value if isinstance(value, list) else [value])]
    texts = [(name, {"True": "true", "False": "false"}.get(str(value), str(value))) for name, value in pairs]
    return f"/{path}?{urllib.parse.urlencode(texts)}" if texts else f"/{path}"


def _split(url: str) -> tuple[str, str | None, str | None]:
    try:
        address, username, password = split_login(url)
    except ConfigurationError:
        raise ConfigurationError(
            f"{redacted_address(url)} is not a registry's address: it must be such as http://localhost:8081"
        ) from None
    return address.rstrip("/"), username, password


def _authorization(address: str, username: str | None, password: str | None, token: str | None) -> str | None:
    try:
        if token is not None:
            if username is not None:
                raise ConfigurationError("a user's name and a token are given: one of them")
            token.encode("ascii")
            if not token or not token.isprintable():
                raise ConfigurationError("the token is empty, or has characters that no header has")
            return f"Bearer {token}"
        return None if username is None else basic_authorization(username, password or "")
    except UnicodeEncodeError:
        raise ConfigurationError(f"the registry at {address}: the token is not ASCII") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"the registry at {address}: {error}") from None


def _tls(ca_file: str | None) -> ssl.SSLContext | None:
    """None for the certificates that Python trusts by itself."""
    if ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the certificates in {ca_file} cannot be used: {error}") from None


def _document(address: str, data: bytes) -> dict[str, Any]:
    """The object in an answer."""
    wrong = "is no JSON object"
    try:
        if len(data) > _MOST_BYTES:
            wrong = f"has more than {_MOST_BYTES >> 20} MiB"
        elif isinstance(found := json.loads(data), dict):
            return found
    except RecursionError:
        wrong = "is nested too deeply"
    raise ConfigurationError(f"the answer of the registry at {address} {wrong}: is it a registry?")


def _checked(address: str, path: str, found: dict[str, Any]) -> dict[str, Any]:
    """The answer, if it has what the path was asked for."""
    if (asked := _BY_ID.match(path)) and not isinstance(found.get("schema"), str):
        raise ConfigurationError(f"the registry at {address} gives no schema {asked['id']}: is it a registry?")
    if asked := _BY_SUBJECT.match(path):
        found_id = found.get("id")
        if not isinstance(found_id, int) or isinstance(found_id, bool) or not 0 <= found_id <= _LARGEST_ID:
            subject = urllib.parse.unquote(asked["subject"])
            raise ConfigurationError(f"the registry at {address} gives no id for {subject}: is it a registry?")
    if _BY_VERSION.match(path) and not (
        isinstance(found.get("schema"), str) and all(isinstance(found.get(name), int) for name in ("id", "version"))
    ):
        raise ConfigurationError(f"the registry at {address} gives no {_what(path)}: is it a registry?")
    return found


def _what(path: str) -> str:
    """What a path asks for, as errors name it."""
    if asked := _BY_ID.match(path):
        return f"schema {asked['id']}"
    if asked := _BY_SUBJECT.match(path):
        return f"the schema of {urllib.parse.unquote(asked['subject'])}"
    if asked := _BY_VERSION.match(path):
        version = asked["version"] or "with this metadata"
        return f"the version {version} of {urllib.parse.unquote(asked['subject'])}"
    return path.partition("?")[0]


def _said(error: urllib.error.HTTPError) -> str:
    try:
        with error:
            return error.read(_MOST_BYTES).decode(errors="replace")
    except WEB_ERRORS:  # the connection broke after the status
        return ""


def _code(said: str) -> int:
    """The number of a registry's error, -1 for an answer that has none."""
    try:
        return int(json.loads(said)["error_code"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1


def _message(said: str) -> str:
    """The words of a registry's error."""
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
