"""Credentials that stand in for users who have none, so that SCRAM does not show which users exist.

The first message of a SCRAM server has the salt and the iterations of the user that a client names.
For an unknown user it has a salt made of the name and of a secret, as RFC 5802 advises (section
5.1): the same whenever and whichever broker is asked, and different for each name and mechanism.
The authentication then goes on, and fails at the end as one with a wrong password does.

The secret is made once for a cluster, by the broker that first needs it, and kept in the data of
the znode ``/config/users``, as JSON: ``{"version":1,"scram_salt_secret":"BASE64"}``. Anyone who
reads it there can read the credentials of all users below it, too. Apache's brokers have no data in
this znode, and ignore it. If the secret were the broker's own, the answers of two brokers would
differ for unknown users alone.

Salts have the form that most users' salts have, and so have the iterations: salts of Kafka's
tools are texts, those of other clients are bytes of some length. A user that differs from most
differs from the stand-ins, too.

In Kafka: no counterpart. Its brokers end the authentication of an unknown user at the first
message, so anybody who can connect can learn which users exist.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections import Counter
from typing import NamedTuple

from barnabas.security.mechanisms import SCRAM_MECHANISMS
from barnabas.security.scram import (
    MIN_SCRAM_ITERATIONS,
    SALT_TEXT_BITS,
    ScramCredential,
    is_salt_text,
    salt_text,
)

__all__ = ["SECRET_BYTES", "StandInCredentials", "decode_secret", "encode_secret"]

SECRET_BYTES = 32
_KEY = "scram_salt_secret"


class _Form(NamedTuple):
    """What a credential shows of itself to a client that knows no password."""

    salt_bytes: int
    """0 for a text as Kafka's tools make it."""
    iterations: int


_KAFKAS = _Form(0, MIN_SCRAM_ITERATIONS)


class StandInCredentials:
    """Makes them, in the form that most users of a mechanism have."""

    def __init__(self, secret: bytes) -> None:
        """``secret`` is used until the cluster's is read."""
        self.secret = secret
        self._forms: dict[str, Counter[_Form]] = {mechanism: Counter() for mechanism in SCRAM_MECHANISMS}
        self._usual = dict.fromkeys(SCRAM_MECHANISMS, _KAFKAS)

    def count(self, mechanism: str, credential: ScramCredential, by: int) -> None:
        """A user has got (1) or lost (-1) this credential."""
        form = _Form(0 if is_salt_text(credential.salt) else len(credential.salt), credential.iterations)
        forms = self._forms[mechanism]
        forms[form] += by
        if forms[form] <= 0:
            del forms[form]
        # Brokers that know the same users must choose the same form, whatever came first.
        most = max(forms.values(), default=0)
        self._usual[mechanism] = min((form for form, count in forms.items() if count == most), default=_KAFKAS)

    def make(self, mechanism: str, user: str) -> ScramCredential:
        """The credential of a user without one. No password fits it."""
        form = self._usual[mechanism]
        size = hashlib.new(SCRAM_MECHANISMS[mechanism].hash).digest_size
        seed = hmac.digest(self.secret, f"{mechanism} {user}".encode(), "sha512")
        drawn = hashlib.shake_256(seed).digest(2 * size + max(form.salt_bytes, SALT_TEXT_BITS // 8 + 1))
        salt = drawn[2 * size :]
        if not form.salt_bytes:
            salt = salt_text(int.from_bytes(salt, "big") % (1 << SALT_TEXT_BITS))
        else:
            salt = salt[: form.salt_bytes]
        return ScramCredential(salt, drawn[:size], drawn[size : 2 * size], form.iterations)


def encode_secret(secret: bytes) -> bytes:
    """The data of ``/config/users``."""
    value = {"version": 1, _KEY: base64.b64encode(secret).decode("ascii")}
    return json.dumps(value, separators=(",", ":")).encode()


def decode_secret(data: bytes) -> bytes:
    """Raises ValueError for other data, or for too short a secret."""
    try:
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("version") != 1:
            raise ValueError("no JSON object of version 1")
        secret = base64.b64decode(value[_KEY], validate=True)
    except (KeyError, TypeError, RecursionError, binascii.Error) as error:
        raise ValueError(type(error).__name__) from None
    if len(secret) < SECRET_BYTES:
        raise ValueError("the secret is too short")
    return secret
