"""What a group's rebalances mean for records that were fetched already: those of
partitions that went are dropped.

In Kafka: `ConsumerRebalanceListener`.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from barnabas.base.ids import TopicPartition

__all__ = ["OnPartitions", "Rebalances"]

OnPartitions = Callable[[list[TopicPartition]], None]
"""Receives the partitions that came or went."""


class Rebalances:
    """librdkafka's rebalance callbacks, in plain terms, and the partitions that `revoked` collects.

    With ``incremental`` members keep what they have, and a callback receives only
    what comes or goes.
    """

    def __init__(self, *, incremental: bool) -> None:
        self._incremental = incremental
        self.coming: dict[tuple[str, int], int | None] = {}
        """The partitions of an `on_assign` that runs, with the offsets from which it
        wants them read."""
        self.before_revoke: Callable[[], None] | None = None
        self.on_assign: OnPartitions | None = None
        self.on_revoke: OnPartitions | None = None
        self.revoked: set[tuple[str, int]] = set()
        self.problems: list[BaseException] | None = None
        """While the consumer is closed, what callbacks raise: librdkafka's Python
        would lose it, and its kind."""

    def assigned(self, consumer: Any, partitions: list[Any]) -> None:
        """Partitions came.

        They are librdkafka's to read after this; so a seek among them is kept until
        it takes them."""
        if self.on_assign is None:
            return
        self.coming = {(item.topic, item.partition): None for item in partitions}
        try:
            self.on_assign(_plain(partitions))
            starts = {place: offset for place, offset in self.coming.items() if offset is not None}
        finally:
            self.coming = {}
        if starts:
            for item in partitions:
                item.offset = starts.get((item.topic, item.partition), item.offset)
            (consumer.incremental_assign if self._incremental else consumer.assign)(partitions)

    def revoking(self, consumer: Any, partitions: list[Any]) -> None:
        """Partitions are about to go to another member; offsets can still be committed."""
        with self._kept_while_closing():
            if self.before_revoke is not None:
                self.before_revoke()
        self.lost(consumer, partitions)

    def lost(self, _: Any, partitions: list[Any]) -> None:
        """Partitions went, perhaps without a last commit."""
        with self._kept_while_closing():
            if self.on_revoke is not None:
                self.on_revoke(_plain(partitions))
        self.revoked.update((item.topic, item.partition) for item in partitions)

    @contextlib.contextmanager
    def _kept_while_closing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if self.problems is None:
                raise
            self.problems.append(error)


def _plain(partitions: list[Any]) -> list[TopicPartition]:
    return [TopicPartition(item.topic, item.partition) for item in partitions]
