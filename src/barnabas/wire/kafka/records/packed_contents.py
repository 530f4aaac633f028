"""What a leader checks of a compressed batch: it opens, and its records fill it.

Kafka: LogValidator, DefaultRecordBatch.

A consumer that cannot open a batch stops in front of it, and so does its whole group. The body is
opened as far as a limit, the count in the header is compared with what bytes of that size can hold,
and the records are checked as those of a plain batch are (see `contents`). What was opened is not
kept: its memory is used for the next batch, or given back to the system.
"""

from barnabas.base.files import Buffer
from barnabas.wire.kafka.records.compression import NO_LIMIT, CompressionType, decompress_produced
from barnabas.wire.kafka.records.contents import MOST_OBJECTS, check_body

__all__ = ["check_packed"]


def check_packed(
    kind: CompressionType,
    data: Buffer,
    count: int,
    limit_bytes: int,
    most_blocks: int = NO_LIMIT,
    most_objects: int = MOST_OBJECTS,
) -> None:
    """Check that ``data``, a batch without its header, unpacks to ``count`` records.

    Raises `CorruptDataError`: `TooLargeError` if it unpacks to more than the limit or has more
    blocks, `TooManyObjectsError` if it has more records and headers than that, before much time is
    spent.
    """
    check_body(decompress_produced(kind, data, limit_bytes, most_blocks), count, most_objects)
