"""``barnabas configs`` for the SCRAM credentials of users:
``--add-config 'SCRAM-SHA-256=[iterations=8192,password=...]'``.

In Kafka: ConfigCommand.
"""

import argparse
import re
from collections.abc import Mapping

from barnabas.base.errors import ConfigError
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.client.admin.scram_users import ScramPassword, alter_scram_users, describe_scram_users
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.security.mechanisms import SCRAM_MECHANISMS
from barnabas.security.scram import MIN_SCRAM_ITERATIONS

__all__ = ["alter_users", "describe_users", "names_scram", "passwords_of"]

_VALUE = re.compile(r"(?:iterations=(-?[0-9]+),)?password=(.+)", re.DOTALL)


def names_scram(changes: Mapping[str, object]) -> bool:
    """Whether changes of a user are about SCRAM.

    Raises `ConfigError` for some that are and some that are not."""
    scram = [name for name in changes if name in SCRAM_MECHANISMS]
    if scram and len(scram) < len(changes):
        others = ", ".join(name for name in changes if name not in SCRAM_MECHANISMS)
        raise ConfigError(f"{', '.join(scram)} and {others} cannot be changed at once: use two commands")
    return bool(scram)


def passwords_of(user: str, changes: Mapping[str, str | None]) -> list[ScramPassword]:
    """The credentials that ``--add-config`` and ``--delete-config`` name. Raises `ConfigError`."""
    passwords = []
    for mechanism, value in changes.items():
        if value is None:
            passwords.append(ScramPassword(user, mechanism, None))
            continue
        match = _VALUE.fullmatch(value)
        if match is None:
            raise ConfigError(f"{mechanism} needs [iterations=8192,password=...]; the iterations may be left out")
        passwords.append(ScramPassword(user, mechanism, match[2], int(match[1] or MIN_SCRAM_ITERATIONS)))
    return passwords


def alter_users(connection: AdminConnection, user: str, changes: Mapping[str, str | None]) -> None:
    """Set and delete a user's credentials. Raises `ConfigError`, `KafkaError`."""
    if not user:
        raise ConfigError("SCRAM credentials belong to a user: name one with --entity-name")
    alter_scram_users(connection, passwords_of(user, changes))
    print(f"Completed updating config for user {user}.")


def describe_users(connection: AdminConnection, given: argparse.Namespace, user: str | None) -> None:
    """Print the credentials of a user, or of all."""
    found = describe_scram_users(connection, None if user is None else [user])
    if given.output == "json":
        print_json([{"user": name, "scram": dict(mechanisms)} for name, mechanisms in found.items()])
        return
    for name, mechanisms in found.items():
        values = ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in mechanisms.items())
        print(f"SCRAM credential configs for user-principal '{name}' are {values}")
