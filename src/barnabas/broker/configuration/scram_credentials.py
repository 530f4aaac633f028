"""Users' SCRAM credentials: as the znodes ``/config/users/NAME`` have them, as brokers keep them,
and how they are changed.

A znode holds, beside other settings of the user, one text for each mechanism:
``salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=4096``. Changes are noted and followed
as those of topics are (`repository`), so every broker knows a changed password after a moment.

In Kafka: `CredentialProvider`, `ScramCredentialUtils`, `ScramMechanism`, `Sanitizer`, and
`alterUserScramCredentials` of `ZkAdminManager`.
"""

import base64
import binascii
import logging
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.broker.configuration.stand_in_credentials import StandInCredentials
from barnabas.security.mechanisms import SCRAM_MECHANISMS, SCRAM_MECHANISMS_BY_NUMBER
from barnabas.security.scram import (
    MAX_SCRAM_ITERATIONS,
    MIN_SCRAM_ITERATIONS,
    ScramCredential,
    scram_credential,
)
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "ScramChange",
    "ScramCredentials",
    "check_changes",
    "credential_text",
    "credentials_of",
    "sanitized",
    "texts_after_changes",
    "unsanitized",
]

logger = logging.getLogger(__name__)

_UNSAFE = re.compile(rb"[^A-Za-z0-9._-]")
_ESCAPED = re.compile(rb"%([0-9A-Fa-f]{2})")


def sanitized(name: str) -> str:
    """A user's name as its znode has it: what a path cannot hold is percent-encoded."""
    return _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], name.encode()).decode("ascii")


def unsanitized(node: str) -> str:
    """The user's name of a znode's."""
    return _ESCAPED.sub(lambda match: bytes((int(match[1], 16),)), node.encode()).decode(errors="replace")


def credential_text(credential: ScramCredential) -> str:
    """As the znode has it."""
    salt, stored, server = (
        base64.b64encode(value).decode("ascii")
        for value in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def _parse(text: str) -> ScramCredential:
    """Raises ValueError."""
    found = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        salt, stored, server = (
            base64.b64decode(found[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(found["iterations"])
    except (KeyError, binascii.Error) as error:
        raise ValueError(str(error)) from None
    if len(found) != 4 or not stored or not server:
        raise ValueError("parts are missing")
    return ScramCredential(salt, stored, server, iterations)


def credentials_of(user: str, texts: Mapping[str, str]) -> dict[str, ScramCredential]:
    """A user's credentials by mechanism, from the texts of its znode.

    One that cannot be read is left out and logged."""
    found = {}
    for mechanism in SCRAM_MECHANISMS:
        if text := texts.get(mechanism):
            try:
                found[mechanism] = _parse(text)
            except ValueError:  # its text is a secret
                logger.error("The %s credential of user %s is left out: its znode cannot be read", mechanism, user)
    return found


class ScramCredentials:
    """What this broker knows of all users."""

    def __init__(self, secret: bytes) -> None:
        """``secret`` is the one of `StandInCredentials`."""
        self._by_user: dict[str, dict[str, ScramCredential]] = {}
        self.stand_ins = StandInCredentials(secret)
        """What unknown users are answered with."""

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """A user's credential; None for a user without one."""
        return self._by_user.get(user, {}).get(mechanism)

    def update(self, node: str, texts: Mapping[str, str]) -> None:
        """Take over what the znode of a user holds now."""
        user = unsanitized(node)
        self._replace(user, credentials_of(user, texts))

    def keep(self, nodes: Sequence[str]) -> None:
        """Forget all users but those of these znodes."""
        users = set(map(unsanitized, nodes))
        for user in [user for user in self._by_user if user not in users]:
            self._replace(user, {})

    def _replace(self, user: str, credentials: dict[str, ScramCredential]) -> None:
        for mechanism, credential in self._by_user.pop(user, {}).items():
            self.stand_ins.count(mechanism, credential, -1)
        for mechanism, credential in credentials.items():
            self.stand_ins.count(mechanism, credential, 1)
        if credentials:
            self._by_user[user] = credentials


class ScramChange(NamedTuple):
    """The new credential of a user for a mechanism, or none for its deletion."""

    user: str
    mechanism_type: int
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes | None = None

    def __repr__(self) -> str:
        return f"ScramChange({self.user!r}, {self.mechanism_type})"  # without what passwords are made of

    def check(self) -> None:
        """Raises `KafkaError` for what cannot be, in Kafka's words."""
        if not self.user:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if self.mechanism_type not in SCRAM_MECHANISMS_BY_NUMBER:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if self.salted_password is None:
            return
        if self.iterations < MIN_SCRAM_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if self.iterations > MAX_SCRAM_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        if not self.salted_password or not self.salt:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt and the salted password must not be empty")


def check_changes(changes: Sequence[ScramChange]) -> None:
    """Check all changes of one user in a request, deletions first. Raises `KafkaError`.

    A user has one error: a wrong change takes precedence over a duplicate. If several changes are
    wrong, the last one counts, and a change that sets a credential takes precedence over a
    deletion: Apache's broker fills its map of errors in this order.
    """
    wrong: KafkaError | None = None
    for change in changes:
        try:
            change.check()
        except KafkaError as error:
            wrong = error
    if wrong is not None:
        raise wrong
    if len({change.mechanism_type for change in changes}) < len(changes):
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def texts_after_changes(texts: Mapping[str, str], changes: Sequence[ScramChange]) -> dict[str, str]:
    """The texts of one user's znode after changes that were checked. Raises `KafkaError`."""
    changed = dict(texts)
    for change in changes:
        mechanism = SCRAM_MECHANISMS_BY_NUMBER[change.mechanism_type]
        if change.salted_password is not None:
            credential = scram_credential(mechanism, change.salted_password, change.salt, change.iterations)
            changed[mechanism] = credential_text(credential)
        elif changed.pop(mechanism, None) is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return changed
