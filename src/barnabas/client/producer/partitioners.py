"""Choosing partitions in Python, for ``partitioner.class``.

By default librdkafka chooses: keys are hashed as Java's clients hash them (murmur2), records
without a key stick to a partition for a while. Here are the other choices: round robin, as Java's
``RoundRobinPartitioner`` and as the first clients did for records without a key, and the user's
own. An own partitioner is a callable, or an object with a method ``partition``, that takes the
record's key (before serialisation) and the number of partitions and returns one of them.

In Kafka: `RoundRobinPartitioner`.
"""

import time
from collections.abc import Callable
from typing import Any

from barnabas.client.codecs import load_dotted
from barnabas.client.errors import ClientError, ConfigurationError

__all__ = ["Chooser", "chooser"]

BY_LIBRDKAFKA = -1
_COUNT_AGE_S = 60

CountPartitions = Callable[[str], int]
"""Takes a topic, returns how many partitions it has now."""


class Chooser:
    """Chooses a record's partition; -1 leaves it to librdkafka's hash."""

    def __init__(self, count_partitions: CountPartitions) -> None:
        self._count_partitions = count_partitions
        self._counts: dict[str, tuple[int, float]] = {}

    def choose(self, topic: str, key: Any) -> int:
        """The partition for a record with this key."""
        raise NotImplementedError

    def count(self, topic: str) -> int:
        """How many partitions the topic has, asked again every minute."""
        known = self._counts.get(topic)
        now = time.monotonic()
        if known is None or now > known[1]:
            try:
                count = self._count_partitions(topic)
            except ClientError:
                if known is None:
                    raise
                count = known[0]  # the cluster does not answer now: use the last known number
            known = self._counts[topic] = (count, now + _COUNT_AGE_S)
        return known[0]


class _RoundRobin(Chooser):
    """One partition after the other, topic by topic; with ``keyed`` only records
    without a key take part."""

    def __init__(self, count_partitions: CountPartitions, *, keyed: bool) -> None:
        super().__init__(count_partitions)
        self._keyed = keyed
        self._turns: dict[str, int] = {}

    def choose(self, topic: str, key: Any) -> int:
        if self._keyed and key is not None:
            return BY_LIBRDKAFKA
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return turn % self.count(topic)


class _Own(Chooser):
    def __init__(self, count_partitions: CountPartitions, function: Callable[[Any, int], int]) -> None:
        super().__init__(count_partitions)
        self._function = function

    def choose(self, topic: str, key: Any) -> int:
        count = self.count(topic)
        partition = self._function(key, count)
        if not isinstance(partition, int) or not 0 <= partition < count:
            raise ConfigurationError(
                f"partitioner.class chose {partition!r} for a record of {topic}, which has partitions 0 to {count - 1}"
            )
        return partition


def chooser(given: Any, count_partitions: CountPartitions) -> Chooser | None:
    """The chooser for a plan's ``partitioner``; None where librdkafka chooses."""
    if given is None:
        return None
    if given in ("round_robin", "keyed_round_robin"):
        return _RoundRobin(count_partitions, keyed=given == "keyed_round_robin")
    if isinstance(given, str):
        given = load_dotted(given, "partitioner.class")
    made = given() if isinstance(given, type) else given
    function = getattr(made, "partition", None) or made
    if not callable(function):
        raise ConfigurationError(f"partitioner.class: {given!r} is neither callable nor has it a method partition")
    return _Own(count_partitions, function)
