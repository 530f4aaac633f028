"""Which leader epochs a log has: what ``leader-epoch-checkpoint`` says, as far as the log's batches
agree. Kafka: no counterpart.

Each batch carries its epoch, and epochs never go back in a log. So the file adds little to the log,
and a changed digit in it must cost no record. A file that is as this broker wrote it is believed
(`barnabas.log.checked_files`). Any other is compared with the batches: with both neighbours of each
epoch's start where the file is known to have changed, with the newest epoch where nothing is known
of it. If they differ, the checked copy is compared; if that differs too, the epochs are read from
the headers of all batches.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from barnabas.base.errors import CorruptDataError
from barnabas.base.ids import NO_LEADER_EPOCH
from barnabas.log.checked_files import read_checked
from barnabas.log.checkpoints import LEADER_EPOCHS, parse_epochs
from barnabas.log.leader_epochs import LeaderEpochs
from barnabas.log.names import DELETED, LOG
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.segment import Segment
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, BatchHeader, read_header

__all__ = ["StoredEpochs", "epochs_of_batches"]

logger = logging.getLogger(__name__)


class StoredEpochs:
    """The epochs in a log's file, and in its checked copy."""

    __slots__ = ("_copy", "_is_changed", "_path", "_problem", "epochs", "is_believed", "is_ours")

    def __init__(self, folder: Folder) -> None:
        """Read them. Raises `OSError`."""
        found = read_checked(folder.files, folder.path(LEADER_EPOCHS))
        self._path = found.path
        self._problem = ""
        entries: list[tuple[int, int]] = []
        try:
            entries = parse_epochs(found.path, found.data or b"")
        except CorruptDataError as error:
            self._problem = str(error)
        self.epochs = LeaderEpochs(entries)
        self.is_ours = found.is_as_written or (found.data is None and found.copy is None)
        """Whether no other broker has written the file."""
        self._copy = LeaderEpochs()
        self._is_changed = found.is_changed
        self.is_believed = self.is_ours
        """Whether the epochs need no comparison with the log."""
        if found.copy is not None and not found.is_as_written:
            copied = parse_epochs(found.path, found.copy)
            self._copy = LeaderEpochs(copied)
            # A changed digit leaves as many entries as there were. Another broker does not, nor a
            # copy that a loss of power left.
            self.is_believed = bool(entries) and len(entries) != len(copied)

    def log_start(self, start_offset: int, names: Iterable[str]) -> int | None:
        """Where the log began, by its leader epochs, which move with its start.

        None if they do not say. ``start_offset`` is the checkpointed log start offset (0 without
        one), ``names`` are all files of the folder. Apache's broker writes the epochs a moment
        after it has renamed the segments that it deletes.
        """
        entries = self._copy.entries if self._is_changed and not self.is_believed else self.epochs.entries
        if not entries or any(name.endswith(LOG + DELETED) for name in names):
            return None
        return max(entries[0][1], start_offset)

    def confirm(
        self, recovered: LeaderEpochs, segments: Sequence[Segment], start_offset: int, end_offset: int
    ) -> tuple[LeaderEpochs, bool]:
        """The epochs of a log that ends with whole batches, and whether they are
        others than in the file.

        ``recovered`` are those that recovery found, past the recovery point. Raises `OSError`.
        """
        batches = _Batches(segments, start_offset, end_offset)
        for candidate in (self.epochs, self._copy):
            epochs = _with(candidate, recovered, start_offset, end_offset)
            if batches.agree_with(epochs, all_entries=self._is_changed):
                self._report(epochs, end_offset)
                return epochs, epochs.entries != self.epochs.entries
        epochs = epochs_of_batches(segments)
        self._report(epochs, end_offset)
        return epochs, True

    def _report(self, epochs: LeaderEpochs, end_offset: int) -> None:
        if self._problem:
            logger.warning("%s; the leader epochs are taken from the log", self._problem)
        elif any(entry not in epochs.entries for entry in self.epochs.entries if entry[1] < end_offset):
            logger.warning("%s does not agree with the log; the leader epochs are taken from the log", self._path)


def epochs_of_batches(segments: Sequence[Segment]) -> LeaderEpochs:
    """The epochs in the headers of all batches. Raises `OSError`."""
    epochs = LeaderEpochs()
    for segment in segments:
        for _, header in segment.headers(0):
            if header.leader_epoch > epochs.latest_epoch:
                epochs.assign(header.leader_epoch, header.base_offset)
    return epochs


def _with(epochs: LeaderEpochs, recovered: LeaderEpochs, start_offset: int, end_offset: int) -> LeaderEpochs:
    """Epochs of a file, completed by those that recovery found in batches."""
    epochs = epochs.copy()
    epochs.truncate_from_end(end_offset)
    for epoch, first_offset in recovered.entries:
        offset = max(first_offset, start_offset)
        if epochs.epoch_for(offset) != epoch:
            epochs.assign(epoch, offset)
    return epochs


class _Batches:
    """The batches of a log, by their headers."""

    def __init__(self, segments: Sequence[Segment], start_offset: int, end_offset: int) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._start_offset = start_offset
        self._end_offset = end_offset

    def agree_with(self, epochs: LeaderEpochs, *, all_entries: bool) -> bool:
        """Whether the last batch, and the batches on both sides where epochs begin, have these
        epochs. Raises `OSError`.

        Checks the newest epoch only, or with ``all_entries`` all of them.
        """
        last = self._at(self._end_offset - 1)
        if last is None:
            return True
        if not last.leader_epoch == epochs.epoch_for(last.base_offset) == epochs.latest_epoch:
            return False
        first = 0 if all_entries else max(0, len(epochs.entries) - 1)
        return all(self._is_start(epochs, at) for at in range(first, len(epochs.entries)))

    def _is_start(self, epochs: LeaderEpochs, at: int) -> bool:
        epoch, offset = epochs.entries[at]
        next_offset = epochs.entries[at + 1][1] if at + 1 < len(epochs.entries) else self._end_offset
        if next_offset <= self._start_offset:
            return True  # its records are deleted
        header = self._at(max(offset, self._start_offset))
        # Compaction may have left none of the epoch's records.
        if header is not None and header.base_offset < next_offset and header.leader_epoch != epoch:
            return False
        if offset <= self._start_offset:
            return True
        before = self._at(offset - 1)
        known = epochs.entries[at - 1][0] if at else NO_LEADER_EPOCH
        return before is None or before.base_offset >= offset or before.leader_epoch == known

    def _at(self, offset: int) -> BatchHeader | None:
        """The first batch that ends at or after an offset."""
        first = max(0, bisect_right(self._bases, offset) - 1)
        for segment in self._segments[first:]:
            if segment.size and (located := segment.locate(offset)) is not None:
                return read_header(segment.file.read_at(located.position, HEADER_BYTES))
        return None
