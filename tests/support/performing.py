"""Performs steps on a real coordination client."""

import asyncio
from typing import Any, TypeVar

from barnabas.base.clock import SystemClock
from barnabas.base.task_futures import runner_here
from barnabas.broker.cluster.service import Channel, Interpreter
from barnabas.broker.cluster.steps import Steps
from barnabas.coordination.client import CoordinationClient

T = TypeVar("T")


class NoBrokers:
    """A channel to nowhere."""

    async def send(self, broker_id: int, message: Any, *, timeout_ms: int | None = None) -> Any:
        raise ConnectionError(f"There is no broker {broker_id}")


def interpreter(client: CoordinationClient, channel: Channel | None = None) -> Interpreter:
    """An interpreter on the running loop; its background work ends with the loop."""
    return Interpreter(client, channel or NoBrokers(), asyncio.ensure_future, runner_here(SystemClock()))


async def perform(client: CoordinationClient, steps: Steps[T]) -> T:
    """Drive a generator of steps to its end."""
    return await interpreter(client).perform(steps)
