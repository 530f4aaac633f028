"""The partitions of a coordinator's topic that this broker leads, and which of them are loaded.

The steps of a partition are loading (`LedPartitions.start_loading`, `LedPartition.is_loading`) and
`LedPartitions.unload`, each with the leader epoch that it is for: what the controller has ordered
earlier may be known later.

In Kafka: ``loadingPartitions`` and ``ownedPartitions`` of `GroupMetadataManager`, and the same of
`TransactionStateManager`.
"""

from collections.abc import Callable
from typing import TypeVar

__all__ = ["LedPartition", "LedPartitions"]


class LedPartition:
    """One partition."""

    __slots__ = ("is_led", "is_loading", "leader_epoch", "loading_epoch", "number")

    def __init__(self, number: int, leader_epoch: int) -> None:
        self.number = number
        self.leader_epoch = leader_epoch
        self.loading_epoch = leader_epoch
        """The leader epoch in which it was loaded."""
        self.is_loading = True
        self.is_led = True
        """False once it is unloaded; another object follows if this broker leads it again."""


P = TypeVar("P", bound=LedPartition)


class LedPartitions(dict[int, P]):
    """By their numbers."""

    def __init__(self, make: Callable[[int, int], P]) -> None:
        """``make`` takes the number and the leader epoch of one that is to be loaded."""
        super().__init__()
        self._make = make

    @property
    def is_loading(self) -> bool:
        return any(partition.is_loading for partition in self.values())

    def start_loading(self, number: int, leader_epoch: int) -> bool:
        """This broker leads the partition now.

        False when there is nothing to do (an old epoch, or loaded already)."""
        known = self.get(number)
        if known is not None:
            known.leader_epoch = max(known.leader_epoch, leader_epoch)
            return False
        self[number] = self._make(number, leader_epoch)
        return True

    def is_awaited(self, number: int, leader_epoch: int) -> bool:
        """Whether the loading that `start_loading` began for the epoch is still wanted."""
        partition = self.get(number)
        return partition is not None and partition.is_loading and partition.loading_epoch == leader_epoch

    def unload(self, number: int, leader_epoch: int | None) -> P | None:
        """Another broker leads the partition, in ``leader_epoch``, or it was deleted (None).

        The partition if it was there, and is not any more."""
        partition = self.get(number)
        if partition is None or (leader_epoch is not None and leader_epoch < partition.leader_epoch):
            return None
        del self[number]
        partition.is_led = False
        return partition
