"""Addresses in a flow's file: what ``${NAME}`` puts into one is encoded, and one that cannot be
right is refused before a library sees it.

Libraries quote the parts of an address that they cannot read, and ask a name server for what they
take for the host. With an ``@`` or ``/`` in a password both would get a part of it. Needs no Spark.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote

from barnabas.base.redaction import redacted_address

__all__ = ["VARIABLE", "expand_keywords", "expand_text", "local_path", "postgres_problem"]

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)*(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)")
_WITH_PATHS = ("http", "https", "postgresql", "postgres", "file")
"""Schemes whose paths are encoded; others may have an address in the place of a path."""
_POSTGRESQL = re.compile(
    r"postgres(?:ql)?://(?P<login>[^:@/]*(?::[^@/]*)?@)?(?P<hosts>[^@/?#]*)(?P<path>/[^@?#]*)?(?:\?(?P<query>.*))?",
    re.DOTALL,
)
_PARAMETER = re.compile(r"(?!\w*password)\w+=(?:[^@]*|[^/?#]*)", re.IGNORECASE)
"""With an ``@`` it is none if it may be a part of a password that is not encoded."""
_HOST = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]]*)(?::\d*)?")
_NOT_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_KEYWORDS = re.compile(r"(?:\s*\w+\s*=\s*(?:'(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)+)(?=\s|$))+\s*", re.DOTALL)
_PLACE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>/.*)", re.DOTALL)
_NO_FILE = re.compile(r"(file|sqlite|duckdb|jdbc|memory):.*|:memory:", re.DOTALL | re.IGNORECASE)
"""Words of databases' own; a letter and a colon begin a path of Windows."""
_LIKE = 'must be like "postgresql://user@host/database"'


def expand_text(text: str, look_up: Callable[[str], str]) -> str:
    """The text with values in place of ``${NAME}``.

    In an address they are encoded, but where they are its host. A value that is a whole address, or
    begins with its scheme, is put in as it is.
    """
    found = _ADDRESS.match(text)
    if found is None:
        return VARIABLE.sub(lambda variable: look_up(variable[1]), text)
    begin, end = found.span("authority")
    login = text.rfind("@", begin, end)
    query = text.find("?", end)

    def value_of(variable: re.Match[str]) -> str:
        value, at = look_up(variable[1]), variable.start()
        if at < login:
            is_whole = (begin, login) == variable.span()
            return quote(value, safe=":" if is_whole else "")
        if query >= 0 and at > query:
            return quote(value, safe="") if text[at - 1] == "=" else value
        return quote(value, safe="/") if at >= end and found["scheme"].lower() in _WITH_PATHS else value

    return VARIABLE.sub(value_of, text)


def expand_keywords(text: str, look_up: Callable[[str], str]) -> str:
    """Like `expand_text`; in ``host=db password=${NAME}``, as libpq takes it, a value is put in
    quotes if it needs them."""
    if _ADDRESS.match(text) or VARIABLE.fullmatch(text):
        return expand_text(text, look_up)

    def value_of(variable: re.Match[str]) -> str:
        escaped = re.sub(r"(['\\])", r"\\\1", look_up(variable[1]))
        before, after = text[: variable.start()].rstrip(), text[variable.end() : variable.end() + 1]
        return f"'{escaped}'" if before.endswith("=") and not after.strip() else escaped

    return VARIABLE.sub(value_of, text)


def postgres_problem(url: str) -> str | None:
    """Why libpq could not read an address or keywords, without quoting any of it.

    None if it can."""
    if "://" not in url.split("=", 1)[0]:
        return None if _KEYWORDS.fullmatch(url) else f"is neither an address nor keywords of libpq: it {_LIKE}"
    if not re.match("postgres(ql)?://", url):
        scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)", url)
        return f"begins with {scheme[0]}://, but {_LIKE}" if scheme else _LIKE
    found = _POSTGRESQL.fullmatch(url)
    is_read = found and not _NOT_ENCODED.search(url) and all(map(_HOST.fullmatch, found["hosts"].split(",")))
    if found and is_read and _is_query(found["query"] or "", follows=bool(found["login"] or found["path"])):
        return None
    return (
        f"cannot be read: it {_LIKE}. In a user's name and a password write @ as %40, / as %2F, % as %25, and so on; what a "
        "variable ${NAME} puts there is encoded already"
    )


def _is_query(query: str, *, follows: bool) -> bool:
    """Whether no ``@`` in a query is meant as the end of a login.

    Libpq takes the first one so before a slash, unless the query ``follows``."""
    return "@" not in query or (follows and all(map(_PARAMETER.fullmatch, query.split("&"))))


def local_path(value: str, folder: Path) -> str:
    """A file or folder of this machine, given as a path, relative to ``folder``, or
    as ``file:///path``.

    Raises `ValueError` for another address: it would become a folder whose name
    begins with the scheme.
    """
    found = _PLACE.fullmatch(value)
    if found and found["scheme"].lower() == "file":
        host, slash, path = found["rest"][2:].partition("/") if found["rest"].startswith("//") else ("", "", "")
        path = slash + path if slash or host else found["rest"]
        if host not in ("", "localhost") or not path.strip("/") or "?" in path or "#" in path:
            raise ValueError(f"is {redacted_address(value)!r}, but must be like file:///path, with three slashes")
        return os.path.normpath(unquote(path))
    if found or _NO_FILE.fullmatch(value):
        raise ValueError(
            f"is {redacted_address(value)!r}, but must be a file or folder of this machine, as a path or as file:///path: other "
            "addresses are not supported. Mount the storage, and name the mounted folder"
        )
    return str((folder / os.path.expanduser(value)).absolute())
