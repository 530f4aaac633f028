"""Steps of a broker that a program without a broker performs: what must be in the coordination
service before the first broker starts, such as users and access control lists.

In Kafka: the tools' own `KafkaZkClient`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas.base.clock import SystemClock
from barnabas.base.network import Network
from barnabas.base.randomness import new_random
from barnabas.base.task_futures import runner_here
from barnabas.broker.cluster.channels import Channels
from barnabas.broker.cluster.service import Interpreter
from barnabas.broker.cluster.steps import Steps
from barnabas.coordination.client import BlockingClient, CoordinationClient

__all__ = ["perform_without_broker"]

_TIMEOUT_MS = 10_000
T = TypeVar("T")


def perform_without_broker(
    network: Callable[[], Network],
    servers: str,
    steps: Callable[[], Steps[T]],
    *,
    paths: Sequence[str] = (),
    timeout_ms: int = _TIMEOUT_MS,
) -> T:
    """Perform steps in the coordination service at ``servers``, a chroot included, and wait.

    The permanent znodes ``paths`` are made first where they are missing. Raises `KeeperError` where
    no server answers in time, and what the steps raise.
    """

    async def perform(client: CoordinationClient) -> T:
        await client.ensure_chroot()
        for path in paths:
            await client.ensure_path(path)
        no_brokers = Channels(-1, network(), request_timeout_ms=timeout_ms)
        interpreter = Interpreter(client, no_brokers, asyncio.ensure_future, runner_here(SystemClock()))
        return await interpreter.perform(steps())

    with BlockingClient(network, servers, rng=new_random()) as client:
        client.start(timeout_ms)
        return client.call(perform)
