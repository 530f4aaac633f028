"""SCRAM credentials of users (KIP-554): set, deleted and described.

A password never leaves the client, only its salted hash.

In Kafka: `Admin.alterUserScramCredentials`, `Admin.describeUserScramCredentials`, `ScramFormatter`.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import refusal
from barnabas.security.mechanisms import SCRAM_MECHANISMS, SCRAM_MECHANISMS_BY_NUMBER
from barnabas.security.scram import MIN_SCRAM_ITERATIONS, SALT_TEXT_BITS, salt_text
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

__all__ = ["ScramPassword", "alter_scram_users", "describe_scram_users", "salt_password"]


class ScramPassword(NamedTuple):
    """A user's password for a mechanism; None deletes the credential."""

    user: str
    mechanism: str
    password: str | None
    iterations: int = MIN_SCRAM_ITERATIONS

    def __repr__(self) -> str:
        return f"ScramPassword({self.user!r}, {self.mechanism!r}, iterations={self.iterations})"  # without it


def salt_password(password: str, mechanism: str, iterations: int) -> tuple[bytes, bytes]:
    """A new salt, and the password salted with it.

    The salt has the form of Kafka's tools: a form of our own would show that the user exists, where
    brokers answer for unknown users, too."""
    salt = salt_text(secrets.randbits(SALT_TEXT_BITS))
    return salt, hashlib.pbkdf2_hmac(SCRAM_MECHANISMS[mechanism].hash, password.encode(), salt, iterations)


def alter_scram_users(connection: AdminConnection, changes: Sequence[ScramPassword]) -> None:
    """Set and delete credentials.

    Raises `RefusedError` with the first user's failure; others may have been changed."""
    deletions, upsertions = [], []
    for user, mechanism, password, iterations in changes:
        number = SCRAM_MECHANISMS[mechanism].number
        if password is None:
            deletions.append(ScramCredentialDeletion(name=user, mechanism=number))
        else:
            salt, salted = salt_password(password, mechanism, iterations)
            upsertions.append(
                ScramCredentialUpsertion(
                    name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
                )
            )
    response = connection.send_to_controller(
        AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions),
        AlterUserScramCredentialsResponse,
        lambda answer: [result.error_code for result in answer.results],
    )
    for result in response.results:
        if result.error_code:
            raise refusal(result.error_code, f"{result.user}: {result.error_message}")


def describe_scram_users(
    connection: AdminConnection, users: Sequence[str] | None = None
) -> Mapping[str, Mapping[str, int]]:
    """Iterations by mechanism, by user; of all users unless some are named.

    A user without credentials is left out. Raises `RefusedError`.
    """
    asked = None if users is None else [UserName(name=user) for user in users]
    response = connection.send_to_controller(
        DescribeUserScramCredentialsRequest(users=asked),
        DescribeUserScramCredentialsResponse,
        lambda answer: [answer.error_code],
    )
    if response.error_code:
        raise refusal(response.error_code, response.error_message)
    found = {}
    for result in response.results:
        if result.error_code and result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
            raise refusal(result.error_code, f"{result.user}: {result.error_message}")
        if not result.error_code:
            found[result.user] = {
                SCRAM_MECHANISMS_BY_NUMBER.get(info.mechanism, str(info.mechanism)): info.iterations
                for info in result.credential_infos
            }
    return found
