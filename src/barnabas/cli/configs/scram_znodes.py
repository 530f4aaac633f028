"""``barnabas configs --zookeeper``: SCRAM credentials written into the coordination
service, without a broker.

For users that must exist before a broker starts, such as those of the brokers themselves.
In Kafka: ConfigCommand.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from barnabas.base.clock import SystemClock
from barnabas.base.randomness import new_random
from barnabas.base.task_futures import runner_here
from barnabas.broker.cluster.channels import Channels
from barnabas.broker.cluster.service import Interpreter
from barnabas.broker.cluster.znodes import CONFIG_CHANGES
from barnabas.broker.configuration.repository import alter_entity
from barnabas.broker.configuration.scram_credentials import ScramChange, sanitized, texts_after_changes
from barnabas.cli.configs.scram_users import passwords_of
from barnabas.cli.output.terminal import print
from barnabas.client.admin.scram_users import ScramPassword, salt_password
from barnabas.coordination.client import BlockingClient, CoordinationClient
from barnabas.net.sockets import SocketNetwork
from barnabas.security.mechanisms import SCRAM_MECHANISMS

__all__ = ["alter_users_in_zookeeper"]

_CONNECT_TIMEOUT_MS = 10_000


def alter_users_in_zookeeper(servers: str, user: str, changes: Mapping[str, str | None]) -> None:
    """Like `alter_users`, without a broker. Raises `KeeperError`, `KafkaError`, `ConfigError`."""
    checked = [_change(user, password) for password in passwords_of(user, changes)]
    for each in checked:
        each.check()
    with BlockingClient(SocketNetwork, servers, rng=new_random()) as client:
        client.start(_CONNECT_TIMEOUT_MS)
        client.call(partial(_alter, user=user, changes=checked))
    print(f"Completed updating config for user {user}.")


def _change(user: str, wanted: ScramPassword) -> ScramChange:
    number = SCRAM_MECHANISMS[wanted.mechanism].number
    if wanted.password is None:
        return ScramChange(user, number)
    salt, salted = salt_password(wanted.password, wanted.mechanism, wanted.iterations)
    return ScramChange(user, number, wanted.iterations, salt, salted)


async def _alter(client: CoordinationClient, user: str, changes: Sequence[ScramChange]) -> None:
    """As a broker does it."""
    for path in ("/config/users", CONFIG_CHANGES):
        await client.ensure_path(path)
    no_brokers = Channels(-1, SocketNetwork(), request_timeout_ms=_CONNECT_TIMEOUT_MS)
    steps = alter_entity("users", sanitized(user), lambda texts: texts_after_changes(texts, changes))
    await Interpreter(client, no_brokers, asyncio.ensure_future, runner_here(SystemClock())).perform(steps)
