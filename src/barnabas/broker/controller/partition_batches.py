"""How many partitions a decision takes at once.

Work in proportion to partitions is done in batches: some partitions are read, decided, written
and sent, then the next. Between two steps the event loop serves everything else, so neither
clients nor the session wait for a topic of 10,000 partitions, and brokers begin with the first
batch while the next is decided. A batch is also what one request carries, and what its receiver
decodes in one piece; only UpdateMetadata may name a whole topic
(`RequestBatch.keep_topics_whole`). A controller that dies between two batches leaves the same as
one that dies between two writes: its successor finds in the znodes what is done. A decision that
writes and sends nothing between two batches yields None.

Kafka has no counterpart: its requests name all partitions of a decision.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from barnabas.broker.cluster.steps import ITEMS_A_TURN, Steps

__all__ = ["find_in_turns", "in_batches"]

R = TypeVar("R")
T = TypeVar("T")


def in_batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in their order, some at a time; nothing for no items."""
    for first in range(0, len(items), ITEMS_A_TURN):
        yield items[first : first + ITEMS_A_TURN]


def find_in_turns(items: Sequence[T], look: Callable[[Sequence[T]], Iterable[R]]) -> Steps[list[R]]:
    """What ``look`` finds among all items, of which it gets some at a time."""
    found: list[R] = []
    for some in in_batches(items):
        found += look(some)
        yield None
    return found
