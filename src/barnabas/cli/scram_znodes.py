"""``barnabas configs --zookeeper``: SCRAM credentials written into the coordination service, without a broker.

For users that must exist before a broker starts, such as those of the brokers themselves. In Kafka: ConfigCommand.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.base.randomness import new_random
from barnabas.broker.cluster.znodes import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    config_path,
    decode_config,
    encode_config,
    encode_config_change,
)
from barnabas.broker.configuration.scram_credentials import ScramChange, sanitized, texts_after_changes
from barnabas.cli.scram_commands import passwords_of
from barnabas.client.scram_users import SCRAM_TYPES, salt_password
from barnabas.coordination.client import BlockingClient, CoordinationClient
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import CreateMode

__all__ = ["alter_users_in_zookeeper"]

_CONNECT_TIMEOUT_MS = 10_000


class _Found(NamedTuple):
    data: bytes | None
    version: int


def alter_users_in_zookeeper(servers: str, user: str, changes: Mapping[str, str | None]) -> None:
    """As `alter_users`, without a broker. Raises `KeeperError`, `KafkaError`, `ConfigError`."""
    new = []
    for each in passwords_of(user, changes):
        number = SCRAM_TYPES[each.mechanism]
        if each.password is None:
            new.append(ScramChange(user, number))
        else:
            salt, salted = salt_password(each.password, each.mechanism, each.iterations)
            new.append(ScramChange(user, number, each.iterations, salt, salted))
        new[-1].check()
    path = config_path("users", sanitized(user))
    with BlockingClient(SocketNetwork, servers, rng=new_random()) as client:
        client.start(_CONNECT_TIMEOUT_MS)
        while not client.call(lambda keeper: _replace(keeper, path, user, new)):
            pass  # changed by another one meanwhile
    print(f"Completed updating config for user {user}.")


async def _replace(keeper: CoordinationClient, path: str, user: str, changes: list[ScramChange]) -> bool:
    await keeper.ensure_path("/config/users")
    await keeper.ensure_path(CONFIG_CHANGES)
    try:
        data, stat = await keeper.get(path)
        found: _Found | None = _Found(data, stat.version)
    except KeeperError as error:
        if error.code != Keeper.NO_NODE:
            raise
        found = None
    texts = {} if found is None else decode_config(path, found.data)
    after = encode_config(texts_after_changes(texts, changes))
    try:
        if found is None:
            await keeper.create(path, after)
        else:
            await keeper.set_data(path, after, found.version)
    except KeeperError as error:
        if error.code in (Keeper.NODE_EXISTS, Keeper.BAD_VERSION, Keeper.NO_NODE):
            return False
        raise
    note = encode_config_change(f"users/{sanitized(user)}")
    await keeper.create(f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}", note, mode=CreateMode.PERSISTENT_SEQUENTIAL)
    return True
