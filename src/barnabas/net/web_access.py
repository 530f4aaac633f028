"""Where a web server listens, with TLS or without, and who may use it: for the schema registry and
the REST proxy.

The properties are Confluent's: ``listeners`` are addresses of http and https, ``ssl.*`` are the
certificates of https, ``authentication.method`` is NONE, BASIC or BEARER. Users and tokens are in
properties files here (``authentication.users.file``, ``authentication.tokens.file``); Confluent's
are in Java's login modules. A property that protects and that is not supported is an error, so
that no server is less protected than its file says.

Kafka has no counterpart; ZooKeeper has the listeners of Jetty in its AdminServer.
"""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.settings import Kind, Setting, Values, at_least, one_of
from barnabas.net.ssl_contexts import TLS_PROTOCOLS, SslSettings, server_context
from barnabas.security.key_stores import KeyStore, check_store_type

__all__ = [
    "WEB_SETTINGS",
    "UnauthorizedError",
    "WebAccess",
    "WebListener",
    "basic_login",
    "check_unsupported_protection",
    "parse_listeners",
    "read_web_access",
    "web_tls",
]

WEB_SETTINGS = (
    Setting("ssl.keystore.location", Kind.STRING, "", "The certificate and key of https: PEM, PKCS12 or JKS"),
    Setting("ssl.keystore.password", Kind.PASSWORD, "", "The password of this store"),
    Setting("ssl.keystore.type", Kind.STRING, "", "PEM, PKCS12 or JKS; by default what the file says"),
    Setting("ssl.key.password", Kind.PASSWORD, "", "The password of the key, if it is another one"),
    Setting("ssl.truststore.location", Kind.STRING, "", "What verifies clients' certificates"),
    Setting("ssl.truststore.password", Kind.PASSWORD, "", "The password of this store"),
    Setting("ssl.truststore.type", Kind.STRING, "", "PEM, PKCS12 or JKS; by default what the file says"),
    Setting("ssl.client.auth", Kind.BOOLEAN, "false", "Whether clients must show a certificate (the old name)"),
    Setting(
        "ssl.client.authentication",
        Kind.STRING,
        "",
        "NONE, REQUESTED or REQUIRED: whether clients show a certificate",
        one_of("", "NONE", "REQUESTED", "REQUIRED"),
    ),
    Setting(
        "ssl.enabled.protocols",
        Kind.LIST,
        ",".join(TLS_PROTOCOLS),
        "The versions of TLS that https offers",
        one_of(*TLS_PROTOCOLS),
    ),
    Setting(
        "authentication.method",
        Kind.STRING,
        "NONE",
        "How clients authenticate: NONE, BASIC or BEARER",
        one_of("NONE", "BASIC", "BEARER"),
    ),
    Setting("authentication.realm", Kind.STRING, "Barnabas", "The realm in the answer 401"),
    Setting("authentication.users.file", Kind.STRING, "", "With BASIC: a properties file of users and their passwords"),
    Setting("authentication.tokens.file", Kind.STRING, "", "With BEARER: a properties file of users and their tokens"),
    Setting("server.connection.limit", Kind.INT, "5000", "The most connections at once; 0: no limit", at_least(0)),
    Setting(
        "idle.timeout.ms",
        Kind.INT,
        "30000",
        "After it a connection is closed that has no whole head of a request",
        at_least(10),
    ),
)
"""What a web server's properties file may have besides its own."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PROTECTING = ("authentication.", "ssl.", "rest.servlet.", "csrf.", "dos.filter.", "websocket.", "sasl.")
_LONGEST_HEADER = 8192


class UnauthorizedError(BarnabasError):
    """A request without credentials that are right. ``challenge`` is the header
    WWW-Authenticate of the answer."""

    def __init__(self, challenge: str) -> None:
        super().__init__("the request has no credentials, or wrong ones")
        self.challenge = challenge


class WebListener(NamedTuple):
    """An address that is listened on."""

    scheme: str
    """http or https"""
    host: str
    """Empty for every address of the machine."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class WebAccess:
    """How requests authenticate, and with which secrets."""

    method: str
    realm: str
    secrets: Mapping[str, bytes] = field(repr=False)
    """The digests of passwords or tokens, by user."""

    def user_of(self, authorization: str | None) -> str | None:
        """The user of a header Authorization, None where no authentication is required.

        Raises `UnauthorizedError`."""
        if self.method == "NONE":
            return None
        scheme, _, given = (authorization or "")[:_LONGEST_HEADER].strip().partition(" ")
        found = None
        if scheme.upper() == self.method:
            found = self._user_of_login(given.strip()) if self.method == "BASIC" else self._user_of_token(given.strip())
        if found is None:
            raise UnauthorizedError(f'{self.method.title()} realm="{self.realm}"')
        return found

    def _user_of_login(self, given: str) -> str | None:
        login = basic_login(f"Basic {given}")
        if login is None:
            return None
        user, password = login
        expected = self.secrets.get(user)
        # A user who is not there takes as long as one with another password.
        is_right = hmac.compare_digest(expected or bytes(32), _digest(password))
        return user if expected is not None and is_right else None

    def _user_of_token(self, given: str) -> str | None:
        digest, found = _digest(given), None
        for user, expected in self.secrets.items():
            if hmac.compare_digest(expected, digest):
                found = user
        return found


def basic_login(authorization: str | None) -> tuple[str, str] | None:
    """The user and the password of a header Authorization, None where it has none."""
    scheme, _, given = (authorization or "")[:_LONGEST_HEADER].strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon and user else None


def parse_listeners(name: str, texts: Sequence[str]) -> list[WebListener]:
    """The addresses of a property, such as ``http://0.0.0.0:8082``. Raises `ConfigError`."""
    found = []
    for text in texts:
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in _DEFAULT_PORTS or parts.path.strip("/") or parts.query or "@" in parts.netloc:
            raise ConfigError(f"Invalid value {text} for configuration {name}: http://HOST:PORT or https://HOST:PORT")
        host = parts.hostname or ""
        found.append(WebListener(parts.scheme, host, _DEFAULT_PORTS[parts.scheme] if port is None else port))
    if not found:
        raise ConfigError(f"{name} is empty: an address such as http://0.0.0.0:8082 is expected")
    return found


def web_tls(values: Values, listeners: Sequence[WebListener]) -> ssl.SSLContext | None:
    """What the listeners of https show; None where there are none.

    Raises `ConfigError` for certificates that cannot be used, for those that no listener uses, and
    where a listener of http lets in clients that https would ask for a certificate."""
    if not any(each.scheme == "https" for each in listeners):
        given = [name for name in values.texts if name.startswith("ssl.") and values.texts[name].strip()]
        if given:
            raise ConfigError(f"{given[0]} is set, and no listener is https: it would have no effect")
        return None
    wanted = values["ssl.client.authentication"] or ("REQUIRED" if values["ssl.client.auth"] else "NONE")
    if wanted == "REQUIRED" and values["authentication.method"] == "NONE":
        _check_open_listeners(listeners)
    return server_context(
        SslSettings(
            lambda name: "ssl.client.authentication" if name == "ssl.client.auth" else name,
            key_store=_store(values, "ssl.keystore", values["ssl.key.password"]),
            trust_store=_store(values, "ssl.truststore", ""),
            client_auth=wanted.lower(),
            protocols=tuple(values["ssl.enabled.protocols"]),
        )
    )


def _check_open_listeners(listeners: Sequence[WebListener]) -> None:
    """Raise `ConfigError` for http that other machines reach, where certificates are all that
    authenticates."""
    for each in listeners:
        if each.scheme == "http" and not _is_loopback(each.host):
            raise ConfigError(
                f"listeners has {each}, which is open to everybody: clients must show a certificate "
                "(ssl.client.authentication=REQUIRED), http has none, and authentication.method is NONE. Leave out this "
                f"listener, bind it to this machine alone (http://127.0.0.1:{each.port}), or set authentication.method"
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _store(values: Values, name: str, key_password: str) -> KeyStore | None:
    location, kind = values[f"{name}.location"], values[f"{name}.type"]
    if not location:
        return None
    if kind and (wrong := check_store_type(kind)):
        raise ConfigError(f"{name}.type={kind}: {wrong}")
    return KeyStore(location, values[f"{name}.password"], kind, key_password)


def read_web_access(values: Values, read: Callable[[str], Mapping[str, str]]) -> WebAccess:
    """Who may use the server.

    ``read`` reads a properties file, and raises what a caller reports. Raises `ConfigError` for a
    method without its file, and for a file without its method."""
    method = values["authentication.method"]
    files = {"BASIC": "authentication.users.file", "BEARER": "authentication.tokens.file"}
    for other, name in files.items():
        if values[name] and other != method:
            raise ConfigError(f"{name} is set, and authentication.method is {method}: {other} is expected")
    realm = values["authentication.realm"]
    if any(sign in realm for sign in '"\\\r\n'):
        raise ConfigError("authentication.realm: a text without quotation marks and backslashes is expected")
    if method == "NONE":
        return WebAccess(method, realm, {})
    path = values[files[method]]
    if not path:
        raise ConfigError(f"authentication.method is {method}, and {files[method]} is not set")
    secrets = read(path)
    if not secrets:
        raise ConfigError(f"{files[method]}={path} names no user")
    for user, secret in secrets.items():
        if not secret.strip():
            raise ConfigError(f"{files[method]}={path}: {user} has an empty password or token")
    return WebAccess(method, realm, {user: _digest(secret) for user, secret in secrets.items()})


def check_unsupported_protection(values: Values) -> list[str]:
    """The given properties that have no effect, for a warning.

    Raises `ConfigError` for one that protects: a server that ignored it would be open."""
    unknown = values.unknown()
    for name in unknown:
        if name.startswith(_PROTECTING):
            raise ConfigError(
                f"{name} is not supported, and protects: the server does not start without its protection"
            )
    return unknown


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
