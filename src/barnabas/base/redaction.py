"""What may be shown of addresses and settings: in errors, in logs, and in files that
a command leaves behind.

An address may hold a password, whatever its letters, and need not be correct: somebody forgot to
encode an ``@``, or the scheme. So it is not parsed here. What may be a part of a password is left
out; better too much than a part of it.

    given   postgresql://ann:s3@cret/x@db.example/reports?sslmode=require
    shown   postgresql://***@db.example/reports?...

What others say about an address or a setting, such as a library's error, is shown without
its secrets: `Redactor`.

Kafka's own counterpart is the type PASSWORD of its settings, which are shown as ``[hidden]``.
"""

import json
import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

__all__ = ["HIDDEN_NAME", "Redactor", "is_secret_name", "redacted_address", "redacted_setting", "secrets_of_address"]

_MASK = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=//)")
_PORT = re.compile(r"(\[[^\]]*\]|[^:/,\[\]]*)(:\d*)?")
_KEYWORD = re.compile(r"\b\w*(?:password|passwd|secret|token)\s*=", re.IGNORECASE)
_IN_QUERY = re.compile(r"[?&;]\w*(?:password|passwd|secret|token)=([^&]*)", re.IGNORECASE)
_IN_KEYWORDS = re.compile(
    r"(?:password|passwd|secret|token)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s\\]|\\.)+))", re.IGNORECASE
)
HIDDEN_NAME = (
    r"pass(word|wd|phrase)|(^|[._-]|pg)(pwd|pass|pw)($|[._-])|secret|token|credential|jaas|user\.info|private"
    r"|(access|private|account|api|encryption|shared|signing|ssl|keystore)[._-]?key|key[._-]?pem|oauthbearer[._-]config"
    r"|(^|_)(key|dsn|auth|login)$"
)
"""Names of settings that hold secrets, in any case: a regular expression of Python and of Java,
whose Spark hides settings by it."""
_SECRET_NAME = re.compile(HIDDEN_NAME, re.IGNORECASE)
_LEAST_LETTERS = 4
"""Less cannot be looked for in a text: too much of it would be taken for the secret."""


def is_secret_name(name: str) -> bool:
    """Whether a setting or an environment variable of this name holds a secret, as
    far as the name tells."""
    return name != "key" and bool(_SECRET_NAME.search(name))


def redacted_address(address: str) -> str:
    """An address, correct or not, without the parts that may be a password: its user, its query,
    and anything but a number in the place of the port.

    Keywords as libpq takes them, ``host=db password=...``, end before the password.
    """
    found = _SCHEME.match(address)
    scheme, rest = (found[0], address[found.end() :]) if found else ("", address)
    slashes = "//" if rest.startswith("//") else ""
    rest = rest[len(slashes) :]
    if not slashes and (keyword := _KEYWORD.search(rest)):
        return f"{rest[: keyword.end()]}{_MASK}"
    _, at, place = rest.rpartition("@")
    login = _MASK + at if at else ""
    place, query = _cut(place)
    host, slash, path = place.partition("/")
    hosts = host.split(",")
    if slashes and not all(_PORT.fullmatch(each) for each in hosts):
        host, slash, path, query = hosts[0].partition(":")[0] + f":{_MASK}", "", "", ""
    return f"{scheme}{slashes}{login}{host}{slash}{path}{query}"


def _cut(place: str) -> tuple[str, str]:
    """The address before its query or fragment, and the sign that there is one."""
    at = min((place.index(sign) for sign in "?#" if sign in place), default=len(place))
    return place[:at], f"{place[at]}..." if at < len(place) else ""


def redacted_setting(name: str, value: object) -> str:
    """The value of a setting for an error: quoted, but a secret is masked, an address has no
    password, and a table is not shown."""
    if is_secret_name(name):
        return _MASK
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return f"[{', '.join(redacted_setting(name, each) for each in value)}]"
    if isinstance(value, str) and ("//" in value or "@" in value or _KEYWORD.search(value)):
        return repr(redacted_address(value))
    return repr(value)


def secrets_of_address(address: str) -> Iterator[str]:
    """The passwords in an address, as they stand there and as they are meant."""
    found = _SCHEME.match(address)
    if found or address.startswith("//"):
        rest = address.partition("//")[2]
        # Up to the last @, if the password is not encoded; and up to the @ before the host, if
        # the query has another one.
        logins = [part.rpartition("@")[0] for part in (rest, re.split("[/?#]", rest, maxsplit=1)[0])]
        given = [*(login.partition(":")[2] for login in logins), *_IN_QUERY.findall(address)]
    else:
        given = [quoted or plain for quoted, plain in _IN_KEYWORDS.findall(address)]
        given += [re.sub(r"\\(.)", r"\1", each) for each in given]
    for each in given:
        yield from {each, unquote(each)} - {""}


class Redactor:
    """Secrets that are known, each with what is shown in its place.

    Raises nothing, whatever the texts are."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def add(self, secret: str, shown: str = _MASK) -> None:
        """Hide the text from now on, in the forms in which it stands in addresses, in
        JSON and in Python's texts."""
        forms = {secret, quote(secret, safe="", errors="surrogatepass"), repr(secret)[1:-1], json.dumps(secret)[1:-1]}
        for each in forms:
            if len(each) >= _LEAST_LETTERS:
                self._known.setdefault(each, shown)

    def add_address(self, address: str) -> None:
        """Hide the passwords of an address."""
        for each in secrets_of_address(address):
            self.add(each)

    def redact(self, text: str) -> str:
        """The text without the secrets; of two that overlap the longer one goes first."""
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, self._known[secret])
        return text
