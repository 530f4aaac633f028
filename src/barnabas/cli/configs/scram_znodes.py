"""``barnabas configs --zookeeper``: SCRAM credentials written into the coordination
service, without a broker.

For users that must exist before a broker starts, such as those of the brokers themselves.
In Kafka: ConfigCommand.
"""

from collections.abc import Mapping

from barnabas.broker.configuration.repository import SCRAM_USERS_PATHS, alter_scram_znodes
from barnabas.broker.configuration.scram_credentials import ScramChange
from barnabas.cli.configs.scram_users import passwords_of
from barnabas.cli.connection.coordination_access import ClientAccess
from barnabas.cli.connection.properties import properties_file
from barnabas.cli.output.terminal import print
from barnabas.client.admin.scram_users import ScramPassword, salt_password
from barnabas.security.mechanisms import SCRAM_MECHANISMS

__all__ = ["alter_users_in_zookeeper"]


def alter_users_in_zookeeper(
    servers: str, user: str, changes: Mapping[str, str | None], access_file: str | None
) -> None:
    """Like `alter_users`, without a broker; the file has TLS and SASL.

    Raises `KeeperError`, `KafkaError`, `ConfigError`."""
    checked = [_change(password) for password in passwords_of(user, changes)]
    for each in checked:
        each.check()
    access = ClientAccess(properties_file(access_file), access_file or "")
    access.perform(servers, lambda: alter_scram_znodes(checked), paths=SCRAM_USERS_PATHS)
    print(f"Completed updating config for user {user}.")


def _change(wanted: ScramPassword) -> ScramChange:
    number = SCRAM_MECHANISMS[wanted.mechanism].number
    if wanted.password is None:
        return ScramChange(wanted.user, number)
    salt, salted = salt_password(wanted.password, wanted.mechanism, wanted.iterations)
    return ScramChange(wanted.user, number, wanted.iterations, salt, salted)
