"""Reads the records of a coordinator's partition, in the order of the log.

The work comes in steps, so that an event loop can do other things between them.

In Kafka: `CoordinatorPlayback`.
"""

from collections.abc import Iterator

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.base.tasks import Beside
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.batch_header import BatchHeader, read_headers

__all__ = ["BYTES_A_STEP", "CoordinatorPlayback"]

BYTES_A_STEP = 64 * 1024


class CoordinatorPlayback:
    """Collects the records of a partition: `read` each piece of its log, then take the `steps`."""

    def __init__(self) -> None:
        self.unreadable: list[str] = []
        """The errors of records that were skipped. Keys that later versions of Kafka write are
        skipped without a report."""

    def read(self, batches: Buffer) -> Iterator[int]:
        """Read a piece of the log.

        Yields, every few milliseconds of work, where to continue reading."""
        unread_bytes = 0
        for offset, header in read_headers(batches):
            try:
                self._add_batch(batches, offset, header)
            except (CorruptDataError, KafkaError) as error:
                self.unreadable.append(f"batch at offset {header.base_offset}: {error}")
            unread_bytes += header.size_bytes
            if unread_bytes >= BYTES_A_STEP:
                unread_bytes = 0
                yield header.last_offset + 1
        if unread_bytes:
            yield header.last_offset + 1

    def _add_batch(self, batches: Buffer, offset: int, header: BatchHeader) -> None:
        """Collect a batch. Raises `CorruptDataError` and `KafkaError` for one that is skipped."""
        raise NotImplementedError

    def steps(self) -> Iterator[Beside | None]:
        """Make what the coordinator serves; yields every few milliseconds of work."""
        raise NotImplementedError
