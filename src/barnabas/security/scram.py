"""The SASL mechanisms SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as Kafka's
brokers and clients speak them.

    client                                   server
      n,,n=user,r=nonce                ->
                                       <-    r=nonce and the server's, s=salt, i=iterations
      c=biws,r=both nonces,p=proof     ->
                                       <-    v=signature, or e=error

Neither side sends the password, and both prove that they know it: a server that does not is
refused. There is no channel binding, as in Kafka. A server keeps neither the password nor what a
client's proof is made of, but a salt, the number of iterations, and two keys (`ScramCredential`).

A server does not show which users exist: an unknown user's authentication goes on with a credential
that stands in for the missing one, does the same work, and fails at the end with the same error.
Names are compared as they are, without the normal form of SASLprep, as Kafka compares them: names
that differ in case, width or normal form are different users.

In Kafka: `ScramSaslClient`, `ScramSaslServer`, `ScramFormatter`, `ScramCredentialUtils`.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.security.errors import SaslError
from barnabas.security.mechanisms import SCRAM_MECHANISMS
from barnabas.security.tokens import check_token

__all__ = [
    "MAX_SCRAM_ITERATIONS",
    "MIN_SCRAM_ITERATIONS",
    "SALT_TEXT_BITS",
    "SaltedPassword",
    "ScramClient",
    "ScramCredential",
    "ScramServer",
    "is_salt_text",
    "salt_text",
    "scram_credential",
]

MIN_SCRAM_ITERATIONS = 4096
"""Kafka's clients and servers ask for this many at least."""
MAX_SCRAM_ITERATIONS = 16384
"""Kafka's brokers give users at most this many."""
SALT_TEXT_BITS = 130
"""The random bits of a salt that Kafka's tools make."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SALT_TEXT = re.compile(rb"[0-9a-z]{16,26}")
_MAX_ITERATIONS = 1_000_000  # about a second: a server must not decide how long a client computes
_REMEMBERED = 8
_NO_BINDING = "n,,"
_FIRST = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9/+=]+),i=([1-9][0-9]{0,9})(?:,.*)?")
_FINAL = re.compile(r"(?:e=([^,]*)|v=([A-Za-z0-9/+=]+))(?:,.*)?")
_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\0]|=2C|=3D)+))?,"
    r"(?P<bare>n=(?P<name>(?:[^=,\0]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*))"
)
_CLIENT_FINAL = re.compile(
    r"(?P<without>c=(?P<binding>[A-Za-z0-9/+=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,\0]+)*),p=(?P<proof>[A-Za-z0-9/+=]+)"
)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def scram_credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password that is salted already: ``hashlib.pbkdf2_hmac`` of its bytes."""
    name = SCRAM_MECHANISMS[mechanism].hash
    client_key = hmac.digest(salted_password, b"Client Key", name)
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


def salt_text(number: int) -> bytes:
    """A salt in the form that Kafka's tools give it: a number of `SALT_TEXT_BITS` in base 36."""
    text = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return (text or "0").encode("ascii")


def is_salt_text(salt: bytes) -> bool:
    """Whether it has this form."""
    return _SALT_TEXT.fullmatch(salt) is not None


class ScramServer:
    """The server's side of one authentication. ``nonce`` as for `ScramClient`."""

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        stand_in: Callable[[str], ScramCredential],
        nonce: str,
    ) -> None:
        """``find`` returns a user's credential, None for a user without one; ``stand_in`` what
        takes its place."""
        self._hash = SCRAM_MECHANISMS[mechanism].hash
        self._find = find
        self._stand_in = stand_in
        self._nonce = nonce
        self._refusal: str | None = None
        """Why no proof is accepted, for this broker's log."""
        self._credential: ScramCredential | None = None
        self._header = self._first_bare = self._server_first = ""
        self._name = ""
        self.user = ""
        """The client's name, once it is proven."""

    @property
    def is_complete(self) -> bool:
        return bool(self.user)

    def evaluate(self, token: bytes) -> bytes:
        """The answer to the client's message. Raises `SaslError`."""
        if self.is_complete:
            raise SaslError("the authentication is over")
        text = _text(token, "client")
        return (self._first(text) if self._credential is None else self._final(self._credential, text)).encode()

    def _first(self, text: str) -> str:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise SaslError("the client's first SCRAM message makes no sense")
        if ",tokenauth=true" in match["extensions"].lower():
            raise SaslError("there are no delegation tokens")
        name = _unescaped(match["name"])
        if match["authzid"] is not None and match["authzid"] not in (name, match["name"]):
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username",
                is_for_client=True,
            )
        self._name, self._credential = name, self._credential_of(name)
        self._header = text[: match.start("bare")]
        self._first_bare = match["bare"]
        salt = base64.b64encode(self._credential.salt).decode("ascii")
        self._server_first = f"r={match['nonce']}{self._nonce},s={salt},i={self._credential.iterations}"
        self._nonce = match["nonce"] + self._nonce
        return self._server_first

    def _credential_of(self, name: str) -> ScramCredential:
        """The user's, or what stands in for it.

        Both are made, so that the time does not show which of them is used."""
        known, stand_in = self._find(name), self._stand_in(name)
        if known is None:
            self._refusal = "the user is unknown"
            return stand_in
        if known.iterations < MIN_SCRAM_ITERATIONS:
            self._refusal = "the credential has too few iterations"
            return stand_in
        return known

    def _final(self, credential: ScramCredential, text: str) -> str:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise SaslError("the client's last SCRAM message makes no sense")
        # librdkafka before 2.3 puts its own nonce before both; Kafka's brokers take that,
        # and the proof covers it.
        if not match["nonce"].endswith(self._nonce):
            raise SaslError("the client's SCRAM nonce is another one")
        if _decoded(match["binding"], "client") != self._header.encode():
            raise SaslError("the client's channel binding is another one than at first")
        proof = _decoded(match["proof"], "client")
        signed = f"{self._first_bare},{self._server_first},{match['without']}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise SaslError("the client's proof has a wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        if not is_right or self._refusal is not None:
            raise SaslError(self._refusal or "the password is wrong")
        self.user = self._name
        return f"v={base64.b64encode(hmac.digest(credential.server_key, signed, self._hash)).decode('ascii')}"


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


class SaltedPassword:
    """A client's password, hashed as servers ask for it.

    The last answers are remembered, for many connections have the same. It may be
    used by several threads.
    """

    def __init__(self, mechanism: str, password: str, *, max_iterations: int = _MAX_ITERATIONS) -> None:
        """Raises `SaslError` for a password that UTF-8 cannot hold."""
        self._hash = SCRAM_MECHANISMS[mechanism].hash
        self._password = _bytes(password, "the password")
        self._max_iterations = max_iterations
        self._known: dict[tuple[bytes, int], bytes] = {}

    def salted(self, salt: bytes, iterations: int) -> bytes:
        """Raises `SaslError` for too few iterations, and for more than a server may ask for."""
        if not MIN_SCRAM_ITERATIONS <= iterations <= self._max_iterations:
            raise SaslError(
                f"the server asks for {iterations} SCRAM iterations: {MIN_SCRAM_ITERATIONS} to {self._max_iterations} are "
                "accepted"
            )
        found = self._known.get((salt, iterations))
        if found is None:
            found = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
            if len(self._known) >= _REMEMBERED:
                self._known = {}
            self._known[salt, iterations] = found
        return found


class ScramClient:
    """One authentication.

    ``nonce`` is printable ASCII without commas, and must not be predictable."""

    def __init__(self, mechanism: str, username: str, password: str | SaltedPassword, nonce: str) -> None:
        """Raises `SaslError` for a name or a password that UTF-8 cannot hold.

        A `SaltedPassword` is of the same mechanism."""
        self._hash = SCRAM_MECHANISMS[mechanism].hash
        self._password = SaltedPassword(mechanism, password) if isinstance(password, str) else password
        _bytes(username, "the user's name")
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """The client's first message."""
        return f"{_NO_BINDING}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The answer to the server's first message, with the proof. Raises `SaslError`."""
        text = _text(server_first)
        match = _FIRST.fullmatch(text)
        if match is None:
            raise SaslError("the server's first SCRAM message makes no sense")
        nonce, salt, iterations = match[1], _decoded(match[2]), int(match[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the server's SCRAM nonce does not continue the client's")
        salted = self._password.salted(salt, iterations)
        binding = base64.b64encode(_NO_BINDING.encode()).decode("ascii")
        without_proof = f"c={binding},r={nonce}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode('ascii')}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check the server's proof. Raises `SaslError`."""
        match = _FINAL.fullmatch(_text(server_final))
        if match is None:
            raise SaslError("the server's last SCRAM message makes no sense")
        if match[1] is not None:
            raise SaslError(f"the server refuses: {match[1]}")
        if not self._server_signature or not hmac.compare_digest(_decoded(match[2]), self._server_signature):
            raise SaslError("the server does not know the password, so it is not the one that it claims to be")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _text(message: bytes, whose: str = "server") -> str:
    check_token(message)  # before a pattern goes through it
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError(f"the {whose}'s SCRAM message is not UTF-8") from None


def _bytes(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SaslError(f"{what} holds half a character (a lone surrogate), which UTF-8 cannot hold") from None


def _decoded(text: str, whose: str = "server") -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError(f"the {whose}'s SCRAM message is not base64") from None
