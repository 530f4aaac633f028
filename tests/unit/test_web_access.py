"""Who may use a web server, and where it listens."""

import base64

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Definitions
from barnabas.net.web_access import (
    WEB_SETTINGS,
    UnauthorizedError,
    WebAccess,
    WebListener,
    check_unsupported_protection,
    parse_listeners,
    read_web_access,
    web_tls,
)

DEFINITIONS = Definitions(WEB_SETTINGS)
NONE = DEFINITIONS.parse({})


def access(method: str) -> WebAccess:
    file = {"BASIC": "authentication.users.file", "BEARER": "authentication.tokens.file"}[method]
    given = DEFINITIONS.parse({"authentication.method": method, file: "f", "authentication.realm": "r"})
    return read_web_access(given, lambda path: {"ann": "s:cret", "bob": "other"})


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_an_address_without_a_host_is_every_address() -> None:
    """Ports default to those of the schemes, and IPv6 has brackets."""
    found = parse_listeners("listeners", ["http://:8082", "https://[::1]:1/", "http://h"])
    assert found == [WebListener("http", "", 8082), WebListener("https", "::1", 1), WebListener("http", "h", 80)]
    assert str(found[1]) == "https://[::1]:1"


@pytest.mark.parametrize("text", ["8082", "ftp://h:1", "http://h:x", "http://h:1/path", "http://u:p@h:1", ""])
def test_another_text_is_no_listener(text: str) -> None:
    """An address that cannot be listened on stops the start."""
    with pytest.raises(ConfigError):
        parse_listeners("listeners", [text])


def test_a_login_is_right_for_its_user_alone() -> None:
    """A password may hold colons; the scheme's case does not matter."""
    allowed = access("BASIC")
    assert allowed.user_of(basic("ann:s:cret")) == "ann"
    assert allowed.user_of(basic("ann:s:cret").replace("Basic", "basic")) == "ann"


@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "Basic", "Basic !!", basic("ann:other"), basic("ann"), basic("eve:"), basic(":"), "Bearer s:cret"),
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
    ],
)
def test_a_wrong_login_is_refused(header: str | None) -> None:
    """The answer names the scheme and the realm."""
    with pytest.raises(UnauthorizedError) as refused:
        access("BASIC").user_of(header)
    assert refused.value.challenge == 'Basic realm="r"'


def test_a_token_stands_for_its_user() -> None:
    """A token that is not in the file is refused."""
    allowed = access("BEARER")
    assert allowed.user_of("Bearer other") == "bob"
    with pytest.raises(UnauthorizedError):
        allowed.user_of("Bearer another")
    with pytest.raises(UnauthorizedError):
        allowed.user_of(basic("ann:s:cret"))


def test_nobody_authenticates_without_a_method() -> None:
    """A header is not looked at."""
    assert read_web_access(NONE, lambda path: {}).user_of("Basic x") is None


@pytest.mark.parametrize(
    "texts",
    [
        {"authentication.method": "BASIC"},
        {"authentication.method": "DIGEST"},
        {"authentication.users.file": "f"},
        {"authentication.method": "BEARER", "authentication.users.file": "f", "authentication.tokens.file": "g"},
        {"authentication.method": "BASIC", "authentication.users.file": "f", "authentication.realm": '"'},
    ],
)
def test_a_half_set_authentication_stops_the_start(texts: dict[str, str]) -> None:
    """A file without its method would protect nothing."""
    with pytest.raises(ConfigError):
        read_web_access(DEFINITIONS.parse(texts), lambda path: {"ann": "x"})


@pytest.mark.parametrize("users", [{}, {"ann": " "}])
def test_a_file_without_secrets_stops_the_start(users: dict[str, str]) -> None:
    """An empty password would let everybody in."""
    texts = {"authentication.method": "BASIC", "authentication.users.file": "f"}
    with pytest.raises(ConfigError):
        read_web_access(DEFINITIONS.parse(texts), lambda path: users)


def test_certificates_without_https_stop_the_start() -> None:
    """The file asks for TLS that no listener has; https without a certificate cannot be."""
    http, https = (parse_listeners("listeners", [text]) for text in ("http://h:1", "https://h:1"))
    assert web_tls(NONE, http) is None
    with pytest.raises(ConfigError):
        web_tls(DEFINITIONS.parse({"ssl.keystore.location": "k.pem"}), http)
    with pytest.raises(ConfigError):
        web_tls(NONE, https)


REQUIRED = ({"ssl.client.authentication": "REQUIRED"}, {"ssl.client.auth": "true"})


@pytest.mark.parametrize("texts", REQUIRED)
@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "10.0.0.1", "registry.example.com"])
def test_http_that_passes_by_certificates_stops_the_start(texts: dict[str, str], host: str) -> None:
    """Where https asks for certificates and nothing else authenticates, http would let in all."""
    listeners = parse_listeners("listeners", ["https://h:1", f"http://{host}:2"])
    with pytest.raises(ConfigError, match=r"open to everybody: .*bind it to this machine alone"):
        web_tls(DEFINITIONS.parse(texts), listeners)


@pytest.mark.parametrize(
    ("texts", "host"),
    [
        *((texts, host) for texts in REQUIRED for host in ("127.0.0.1", "[::1]", "localhost")),
        ({"ssl.client.authentication": "REQUIRED", "authentication.method": "BASIC"}, "0.0.0.0"),
        ({"ssl.client.authentication": "REQUESTED"}, "0.0.0.0"),
    ],
)
def test_http_beside_certificates_is_allowed_where_it_opens_nothing(texts: dict[str, str], host: str) -> None:
    """On this machine alone, with a login, or where certificates are not needed: the next error is
    that of https without one."""
    listeners = parse_listeners("listeners", ["https://h:1", f"http://{host}:2"])
    with pytest.raises(ConfigError) as refused:
        web_tls(DEFINITIONS.parse(texts), listeners)
    assert "open to everybody" not in str(refused.value)


def test_a_property_that_protects_is_not_ignored() -> None:
    """Others without effect are named for a warning."""
    assert check_unsupported_protection(DEFINITIONS.parse({"metrics.jmx.prefix": "x"})) == ["metrics.jmx.prefix"]
    with pytest.raises(ConfigError):
        check_unsupported_protection(DEFINITIONS.parse({"authentication.roles": "admin"}))
