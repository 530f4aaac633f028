"""JAAS login configurations: the files in which ZooKeeper's servers and clients find users and
passwords for SASL, and the value of ``sasl.jaas.config``, which is one entry of such a file.

    Server {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        user_super="adminsecret"
        user_bob="bobsecret";
    };

In Java: javax.security.auth.login.Configuration. Errors never quote the file's text,
which holds secrets.

In Kafka: `JaasContext`.
"""

import re
from typing import NamedTuple

from barnabas.base.errors import ConfigError

__all__ = ["JAAS_FILE", "LoginModule", "digest_credentials", "digest_users", "jaas_text", "login_module", "parse_jaas"]

JAAS_FILE = "java.security.auth.login.config"
"""Java's system property with the name of such a file; here a property of brokers and
of coordination servers."""

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{};=]|[^\s{};="']+)""", re.DOTALL
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_QUOTED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
_DIGEST_MODULE = "DigestLoginModule"
_USER = "user_"


class LoginModule(NamedTuple):
    """One entry of a section."""

    name: str
    control: str
    options: dict[str, str]


def parse_jaas(text: str, name: str) -> dict[str, list[LoginModule]]:
    """The sections of a file; ``name`` is for errors. Raises `ConfigError`."""
    sections: dict[str, list[LoginModule]] = {}
    reader = _tokens(text, name)
    while reader.has_more:
        section = reader.word("the name of a section")
        reader.expect("{")
        modules = sections[section] = []
        while not reader.skip("}"):
            modules.append(_module(reader))
        reader.skip(";")
    return sections


def login_module(text: str, name: str) -> LoginModule:
    """The one entry that ``text`` is; ``name`` is for errors. Raises `ConfigError`."""
    reader = _tokens(text, name)
    module = _module(reader)
    if reader.has_more:
        raise ConfigError(f"{name} has more than one login module")
    return module


def jaas_text(module: LoginModule) -> str:
    """The entry that `login_module` and Java read back equal, as ``sasl.jaas.config`` has it."""
    options = (
        f"{name if _PLAIN_NAME.fullmatch(name) else _quoted(name)}={_quoted(value)}"
        for name, value in module.options.items()
    )
    return f"{' '.join((module.name, module.control, *options))};"


def _quoted(text: str) -> str:
    """In quotation marks, which a line feed would end in Java."""
    return f'"{text.translate(_QUOTED)}"'


def _tokens(text: str, name: str) -> "_Tokens":
    tokens = [match["text"] for match in _TOKEN.finditer(text) if match["text"]]
    if sum(len(match[0]) for match in _TOKEN.finditer(text)) != len(text):
        raise ConfigError(f"{name} is not a JAAS configuration: a quotation mark or a comment is not closed")
    return _Tokens(tokens, name)


def _unquoted(value: str) -> str:
    """A value as Java's StreamTokenizer reads it."""
    return _ESCAPE.sub(_escaped, value[1:-1]) if value[0] in "\"'" else value


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _CONTROL.get(code, code)


def _module(reader: "_Tokens") -> LoginModule:
    module, control = (
        reader.word("the name of a login module"),
        reader.word("required, requisite, sufficient or optional"),
    )
    options: dict[str, str] = {}
    while not reader.skip(";"):
        option = _unquoted(reader.word("the name of an option, or a semicolon"))
        reader.expect("=")
        if option in options:
            raise ConfigError(f"{reader.name} gives an option twice, number {len(options) + 1} of its login module")
        options[option] = _unquoted(reader.word("the value of an option"))
    return LoginModule(module, control, options)


class _Tokens:
    def __init__(self, tokens: list[str], name: str) -> None:
        self._tokens = tokens[::-1]
        self.name = name

    @property
    def has_more(self) -> bool:
        return bool(self._tokens)

    def word(self, what: str) -> str:
        if not self._tokens or self._tokens[-1] in "{};=":
            raise ConfigError(f"{self.name} is not a JAAS configuration: {what} is expected")
        return self._tokens.pop()

    def expect(self, sign: str) -> None:
        if not self.skip(sign):
            raise ConfigError(f"{self.name} is not a JAAS configuration: {sign} is expected")

    def skip(self, sign: str) -> bool:
        if self._tokens and self._tokens[-1] == sign:
            self._tokens.pop()
            return True
        return False


def _digest_module(text: str, name: str, section: str) -> LoginModule:
    modules = parse_jaas(text, name).get(section)
    if not modules:
        raise ConfigError(f"{name} has no section {section}")
    for number, module in enumerate(modules, 1):
        # The name may be a piece of a password without quotation marks.
        if not module.name.endswith(_DIGEST_MODULE):
            raise ConfigError(
                f"{name} names another login module in its section {section}, number {number}: only "
                f"org.apache.zookeeper.server.auth.{_DIGEST_MODULE} (DIGEST-MD5) is supported"
            )
    return modules[0]


def digest_users(text: str, name: str, section: str) -> dict[str, str]:
    """A server's users and their passwords. Raises `ConfigError`."""
    options = _digest_module(text, name, section).options
    users = {option[len(_USER) :]: password for option, password in options.items() if option.startswith(_USER)}
    if not all(users):
        raise ConfigError(f"{name} has a user without a name in its section {section}")
    return users


def digest_credentials(text: str, name: str, section: str) -> tuple[str, str]:
    """A client's user and password. Raises `ConfigError`."""
    options = _digest_module(text, name, section).options
    if not options.get("username") or "password" not in options:
        raise ConfigError(f"{name} has no username and password in its section {section}")
    return options["username"], options["password"]
