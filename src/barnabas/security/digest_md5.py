"""The SASL mechanism DIGEST-MD5 (RFC 2831), both sides, as ZooKeeper's clients and servers
speak it through the JDK.

    client                                server
      (empty)                       ->
                                    <-    realm, nonce, qop, charset, algorithm
      username, realm, nonce, nc,   ->
      cnonce, digest-uri, response
                                    <-    rspauth

Only the quality of protection ``auth`` exists: the connection is authenticated, and not encrypted.

Kafka has no counterpart.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping

from barnabas.security.errors import SaslError
from barnabas.security.tokens import check_token

__all__ = ["DigestMd5Client", "DigestMd5Server"]

_DIRECTIVE = re.compile(r'\s*([a-zA-Z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*(?:,|$)')
_NONCE_BYTES = 30


def _parse(token: bytes) -> dict[str, str]:
    """The directives of a message. Raises `SaslError`, also for a directive that is there twice."""
    check_token(token)
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise SaslError("the message is not UTF-8") from None
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None or match[1] in found:
            raise SaslError("the message is malformed")
        found[match[1]] = match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
        position = match.end()
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bytes(text: str) -> bytes:
    """As RFC 2831 hashes names: in ISO 8859-1 where that is possible."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()  # the mechanism's own hash


def _response(password: str, said: Mapping[str, str], method: str) -> str:
    """The proof that one side knows the password."""
    secret = _md5(b":".join(map(_bytes, (said["username"], said.get("realm", ""), password))))
    first = [secret, said["nonce"].encode(), said["cnonce"].encode()]
    if said.get("authzid"):
        first.append(said["authzid"].encode())
    second = f"{method}:{said['digest-uri']}".encode()
    parts = (_md5(b":".join(first)).hex(), said["nonce"], said["nc"], said["cnonce"], "auth", _md5(second).hex())
    return _md5(":".join(parts).encode()).hex()


def _nonce(random_bytes: Callable[[int], bytes]) -> str:
    return base64.b64encode(random_bytes(_NONCE_BYTES)).decode("ascii")


class DigestMd5Server:
    """The server's side of one connection. ``random_bytes`` must not be predictable."""

    def __init__(
        self, users: Mapping[str, str], service: str, realm: str, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._users = users
        self._digest_uri = f"{service}/{realm}"
        self._realm = realm
        self._random_bytes = random_bytes
        self._nonce = ""
        self.user = ""
        """The client's name, once it is proven."""

    @property
    def is_complete(self) -> bool:
        return bool(self.user)

    def evaluate(self, token: bytes) -> bytes:
        """The answer to the client's message. Raises `SaslError`."""
        if not self._nonce:
            if token:
                raise SaslError("the client begins with a response")
            self._nonce = _nonce(self._random_bytes)
            return f'realm={_quoted(self._realm)},nonce="{self._nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'.encode()
        if self.is_complete:
            raise SaslError("the authentication is over")
        said = _parse(token)
        missing = {"username", "nonce", "nc", "cnonce", "digest-uri", "response"} - said.keys()
        if missing:
            raise SaslError(f"the response has no {', '.join(sorted(missing))}")
        self._check(said)
        user = said["username"]
        password = self._users.get(user)
        # The work is the same for an unknown user, so that the time does not show who is known.
        expected = _response(password if password is not None else "", said, "AUTHENTICATE")
        if not hmac.compare_digest(expected.encode(), said["response"].encode()) or password is None:
            raise SaslError("the password is wrong, or the user is unknown")
        self.user = user
        return f"rspauth={_response(password, said, '')}".encode()

    def _check(self, said: Mapping[str, str]) -> None:
        if said["nonce"] != self._nonce or said["nc"] != "00000001":
            raise SaslError("the response answers another challenge")
        if said.get("qop", "auth") != "auth":
            raise SaslError("the client asks for encryption, which this mechanism does not offer here")
        if said.get("realm", "") != self._realm or said["digest-uri"].lower() != self._digest_uri.lower():
            raise SaslError("the response is for another service")
        if said.get("authzid", "") not in ("", said["username"]):
            raise SaslError("a client may act for itself only")


class DigestMd5Client:
    """The client's side of one connection."""

    def __init__(
        self, user: str, password: str, service: str, server_name: str, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._user = user
        self._password = password
        self._digest_uri = f"{service}/{server_name}"
        self._random_bytes = random_bytes
        self._said: dict[str, str] = {}
        self.is_complete = False

    def evaluate(self, token: bytes) -> bytes | None:
        """The answer to the server's message; None when the server has proven its identity too.

        Raises `SaslError`."""
        said = _parse(token)
        if self._said:
            expected = _response(self._password, self._said, "")
            if not hmac.compare_digest(expected.encode(), said.get("rspauth", "").encode()):
                raise SaslError("the server does not know the password")
            self.is_complete = True
            return None
        if not said.get("nonce") or said.get("algorithm") != "md5-sess":
            raise SaslError("the challenge has no nonce, or another algorithm")
        if "auth" not in re.split(r"\s*,\s*", said.get("qop", "auth")):
            raise SaslError("the server asks for encryption, which this mechanism does not offer here")
        self._said = {
            "username": self._user,
            "realm": said.get("realm", ""),
            "nonce": said["nonce"],
            "nc": "00000001",
            "cnonce": _nonce(self._random_bytes),
            "digest-uri": self._digest_uri,
            "authzid": self._user,
        }
        quoted = ",".join(f"{name}={_quoted(text)}" for name, text in self._said.items() if name != "nc")
        response = _response(self._password, self._said, "AUTHENTICATE")
        return f"charset=utf-8,{quoted},nc=00000001,qop=auth,maxbuf=65536,response={response}".encode()
