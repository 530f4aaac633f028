"""The SASL mechanisms SCRAM-SHA-256 and SCRAM-SHA-512, the client's side (RFC 5802, RFC 7677), as Kafka's brokers speak them.

    client                                   server
      n,,n=user,r=nonce                ->
                                       <-    r=nonce and the server's, s=salt, i=iterations
      c=biws,r=both nonces,p=proof     ->
                                       <-    v=signature, or e=error

Neither side sends the password, and both prove that they know it: a server that does not is refused. There is no channel
binding, as in Kafka. In Kafka: ScramSaslClient, ScramFormatter.
"""

import base64
import binascii
import hashlib
import hmac
import re

from barnabas.security.errors import SaslError

__all__ = ["SCRAM_MECHANISMS", "ScramClient"]

SCRAM_MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""

_MIN_ITERATIONS = 4096  # as Kafka's client asks
_MAX_ITERATIONS = 1_000_000  # about a second: a server must not decide how long a client computes
_NO_BINDING = "n,,"
_FIRST = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9/+=]+),i=([1-9][0-9]{0,9})(?:,.*)?")
_FINAL = re.compile(r"(?:e=([^,]*)|v=([A-Za-z0-9/+=]+))(?:,.*)?")


class ScramClient:
    """One authentication. ``nonce`` is printable ASCII without commas, and must not be predictable."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        """Raises `SaslError` for a name or a password that UTF-8 cannot hold."""
        self._hash = SCRAM_MECHANISMS[mechanism]
        self._password = _bytes(password, "the password")
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
        if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise SaslError(
                f"the server asks for {iterations} SCRAM iterations: {_MIN_ITERATIONS} to {_MAX_ITERATIONS} are accepted"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
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


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError("the server's SCRAM message is not UTF-8") from None


def _bytes(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SaslError(f"{what} holds half a character (a lone surrogate), which UTF-8 cannot hold") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError("the server's SCRAM message is not base64") from None
