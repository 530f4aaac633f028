"""The ``.snapshot`` files of a log: its producer state at some offsets.

Kafka: ProducerStateManager's snapshots.

A snapshot is named by the first offset that it does not cover. One is taken whenever a
segment begins, and at a stop.
"""

from collections.abc import Iterable

from barnabas.log.durability import Durability
from barnabas.log.names import SNAPSHOT, file_name
from barnabas.log.producer_state import ProducerState, encode_producer_snapshot
from barnabas.log.segment.folder import Folder

__all__ = ["ProducerSnapshots"]


class ProducerSnapshots:
    """The snapshots of one log, by the offsets up to which they cover it."""

    __slots__ = ("_durability", "_folder", "_offsets", "is_outdated", "newest_offset")

    def __init__(self, folder: Folder, durability: Durability, offsets: Iterable[int] = ()) -> None:
        self._folder = folder
        self._durability = durability
        self._offsets = set(offsets)
        self.newest_offset = 0
        """The producer state was last taken or loaded at this offset."""
        self.is_outdated = False
        """Whether the log was cut and the producer state has still to be loaded again."""

    def __contains__(self, offset: int) -> bool:
        return offset in self._offsets

    def offsets(self) -> list[int]:
        """The offsets of all snapshots, newest first."""
        return sorted(self._offsets, reverse=True)

    def path(self, offset: int) -> str:
        """The path of the snapshot that covers the log up to an offset."""
        return self._folder.path(file_name(offset, SNAPSHOT))

    def take(self, producers: ProducerState, offset: int) -> None:
        """Write the state as of ``offset``, if the log has grown since the last snapshot.

        Raises `OSError`."""
        if offset <= self.newest_offset:
            return
        # Torn by a crash it fails its CRC, and the one before is used.
        self._folder.files.write_atomically(
            self.path(offset), encode_producer_snapshot(producers.entries.values()), sync=False
        )
        self._durability.file_written(file_name(offset, SNAPSHOT))
        self._offsets.add(offset)
        self.newest_offset = offset

    def loaded(self, offset: int) -> None:
        """The state belongs to an offset: a snapshot's, or the log's start, where it is empty."""
        self.newest_offset = offset

    def outdate(self) -> None:
        """The log is truncated: the producer state may hold batches that are gone."""
        self.is_outdated = True

    def up_to_date(self) -> None:
        """The producer state belongs to the log's end."""
        self.is_outdated = False

    def remove(self, offset: int) -> None:
        """Remove a snapshot; one that is gone is fine. Raises `OSError`."""
        self._offsets.discard(offset)
        try:
            self._folder.files.remove(self.path(offset))
        except FileNotFoundError:
            return

    def release(self, offset: int) -> str | None:
        """Leave a snapshot's file to the caller.

        Returns its path, None when there is no such snapshot."""
        if offset not in self._offsets:
            return None
        self._offsets.discard(offset)
        return self.path(offset)
