"""Which leader epoch began at which offset (KIP-101): how a replica finds where its log parted from
the leader's. Kafka: LeaderEpochFileCache.

Entries (epoch, start offset) rise in both. The file is written whenever an epoch begins, beside the
event loop; loading a log cuts its epochs to the log's range again.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.base.ids import NO_LEADER_EPOCH
from barnabas.base.threads import Claim
from barnabas.log.checkpoints import LEADER_EPOCHS, write_epochs
from barnabas.log.durability import Durability
from barnabas.log.segment.folder import Folder

__all__ = ["NO_OFFSET", "EpochEndOffset", "EpochsToWrite", "LeaderEpochCache", "LeaderEpochs"]

NO_OFFSET = -1


class EpochEndOffset(NamedTuple):
    """The largest epoch at or below the one asked for, and the offset after its last record.

    -1 and -1 if unknown."""

    leader_epoch: int
    end_offset: int


class LeaderEpochs:
    """The epochs of one log, oldest first."""

    __slots__ = ("entries",)

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = []
        for epoch, start_offset in entries or ():
            self.assign(epoch, start_offset)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, -1 for none."""
        return self.entries[-1][0] if self.entries else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """An epoch begins at an offset; entries that contradict it are dropped.

        Whether anything changed."""
        entries = self.entries
        if epoch < 0 or start_offset < 0:
            return False
        if entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where an epoch ended (OffsetForLeaderEpoch)."""
        entries = self.entries
        if epoch == NO_LEADER_EPOCH or not entries:
            return EpochEndOffset(NO_LEADER_EPOCH, NO_OFFSET)
        if epoch == entries[-1][0]:
            return EpochEndOffset(epoch, log_end_offset)
        after = bisect_right(entries, epoch, key=lambda entry: entry[0])
        if after == len(entries):
            return EpochEndOffset(NO_LEADER_EPOCH, NO_OFFSET)
        # Below every known epoch: whatever there was is gone, and the first known
        # epoch's start is its end.
        floor = entries[after - 1][0] if after else epoch
        return EpochEndOffset(floor, entries[after][1])

    def epoch_for(self, offset: int) -> int:
        """The epoch of the record at an offset, -1 if unknown."""
        after = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[after - 1][0] if after else NO_LEADER_EPOCH

    def ends_without_records(self, log_end_offset: int) -> bool:
        """Whether a log that ends there has no record of the newest epoch."""
        return bool(self.entries) and self.entries[-1][1] >= log_end_offset

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop the epochs that begin at or after an offset. Whether anything changed."""
        before = len(self.entries)
        while self.entries and self.entries[-1][1] >= end_offset:
            self.entries.pop()
        return len(self.entries) != before

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log begins at an offset now: the epoch it falls into begins there.

        Whether anything changed."""
        after = bisect_right(self.entries, start_offset, key=lambda entry: entry[1])
        if not after or (after == 1 and self.entries[0][1] == start_offset):
            return False
        self.entries[:after] = [(self.entries[after - 1][0], start_offset)]
        return True

    def copy(self) -> "LeaderEpochs":
        """The same epochs, to be changed apart from these."""
        return LeaderEpochs(self.entries)


class EpochsToWrite:
    """The contents of one log's file, to be written by the thread that comes first,
    unless newer ones are."""

    __slots__ = ("_claim", "_entries", "_folder", "is_done")

    def __init__(self, folder: Folder, entries: Sequence[tuple[int, int]]) -> None:
        self._folder = folder
        self._entries = entries
        self._claim = Claim()
        self.is_done = False
        """Whether the file is written, or need not be."""

    def run(self) -> None:
        """Write, unless that is done. Raises `OSError`."""
        self._claim.run(self._write)
        self.is_done = True

    def _write(self) -> None:
        write_epochs(self._folder.files, self._folder.path(LEADER_EPOCHS), self._entries, sync=False)

    def cancel(self) -> None:
        """Nothing is written from now on."""
        self._claim.take()
        self.is_done = True


class LeaderEpochCache:
    """The epochs of one log together with their file, ``leader-epoch-checkpoint``: a change
    that is not written is none."""

    __slots__ = ("_durability", "_folder", "_unwritten", "epochs", "latest_epoch")

    def __init__(self, folder: Folder, durability: Durability, epochs: LeaderEpochs) -> None:
        self._folder = folder
        self._durability = durability
        self._unwritten: EpochsToWrite | None = None
        self.epochs = epochs
        """For reading."""
        self.latest_epoch = epochs.latest_epoch

    def begin_unwritten(self, epoch: int, start_offset: int) -> None:
        """An epoch begins at an offset. What is to be written then is `unwritten`.

        A process that dies before it is written forgets an epoch without records, or one
        whose batches are past the recovery point, where recovery finds them: `complete` comes
        before each flush.
        """
        epochs = self.epochs.copy()
        if epochs.assign(epoch, start_offset):
            if self._unwritten is not None:
                self._unwritten.cancel()
            self._durability.file_written(LEADER_EPOCHS)
            self.epochs = epochs
            self.latest_epoch = epochs.latest_epoch
            self._unwritten = EpochsToWrite(self._folder, tuple(epochs.entries))

    @property
    def unwritten(self) -> "EpochsToWrite | None":
        """What `begin_unwritten` left; None when it is written."""
        if self._unwritten is not None and self._unwritten.is_done:
            self._unwritten = None
        return self._unwritten

    def complete(self) -> None:
        """Write what `begin_unwritten` left, unless it is written. Raises `OSError`."""
        if self._unwritten is not None:
            unwritten, self._unwritten = self._unwritten, None
            unwritten.run()

    def adopt(self, other: "LeaderEpochCache") -> None:
        """Take over the epochs of a log of which this one is a whole copy: also one that has no
        records, which no batch says. Raises `OSError`."""
        if other.epochs.entries != self.epochs.entries:
            self._write(other.epochs.copy())

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or after an offset. Raises `OSError`."""
        epochs = self.epochs.copy()
        if epochs.truncate_from_end(end_offset):
            self._write(epochs)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins at an offset now. Raises `OSError`."""
        epochs = self.epochs.copy()
        if epochs.truncate_from_start(start_offset):
            self._write(epochs)

    def clear(self) -> None:
        """Forget all epochs. Raises `OSError`."""
        self._write(LeaderEpochs())

    def _write(self, epochs: LeaderEpochs) -> None:
        if self._unwritten is not None:
            self._unwritten.cancel()
            self._unwritten = None
        # Not synced: the batches carry their epochs, and recovery reads them again
        # past the recovery point.
        write_epochs(self._folder.files, self._folder.path(LEADER_EPOCHS), epochs.entries, sync=False)
        self._durability.file_written(LEADER_EPOCHS)
        self.epochs = epochs
        self.latest_epoch = epochs.latest_epoch
