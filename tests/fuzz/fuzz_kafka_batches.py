"""Fuzz target: record batches, their records and compression, and the coordinators' records.

``fuzz`` takes any bytes: the first chooses the reader. It returns for whatever is read or refused
with a Kafka error; anything else that it raises is a bug. By hand:
``python tests/fuzz/fuzz_kafka_batches.py [SEED]``.
"""

import contextlib
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from barnabas.base.errors import CorruptDataError
from barnabas.wire.kafka.consumer_protocol import decode_assignment, decode_subscription
from barnabas.wire.kafka.coordinator_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    TransactionLogKey,
    decode_key,
    decode_transaction_key,
    decode_value,
)
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, check_batch, read_header, read_headers
from barnabas.wire.kafka.records.compression import CompressionType, decompress
from barnabas.wire.kafka.records.contents import check_contents
from barnabas.wire.kafka.records.packed_contents import check_packed
from barnabas.wire.kafka.records.records import Record, build_batch, read_records, read_times, unpack_records
from support.mutations import forever, mutated

LIMIT_BYTES = 1 << 20
KEYS = (OffsetCommitKey(), GroupMetadataKey(), TransactionLogKey())
SMALL_READERS = (decode_key, decode_transaction_key, decode_assignment, decode_subscription)


def fuzz(data: bytes) -> None:
    """Read the bytes after the first as what it chooses."""
    if not data:
        return
    choice, rest = data[0] % 8, data[1:]
    with contextlib.suppress(KafkaError, CorruptDataError):
        if choice < 3:
            for offset, _ in read_headers(rest):
                _read_batch(rest[offset:])
        elif choice == 3:
            for kind in CompressionType:
                with contextlib.suppress(KafkaError, CorruptDataError):
                    assert len(decompress(kind, rest, LIMIT_BYTES)) <= LIMIT_BYTES
                with contextlib.suppress(KafkaError, CorruptDataError):
                    check_packed(kind, rest, 1 + len(rest) % 9, LIMIT_BYTES)
        elif choice < 6:
            for read in SMALL_READERS:
                with contextlib.suppress(CorruptDataError):
                    read(rest)
        else:
            for key in KEYS:
                with contextlib.suppress(CorruptDataError):
                    decode_value(key, rest)


def _read_batch(batch: bytes) -> None:
    with contextlib.suppress(KafkaError, CorruptDataError):
        check_batch(batch, 0, len(batch))
    with contextlib.suppress(KafkaError, CorruptDataError):
        header = read_header(batch)
        body = unpack_records(batch, header, limit_bytes=LIMIT_BYTES)
        check_contents(body, header.record_count)
    with contextlib.suppress(KafkaError, CorruptDataError):
        _check_as_a_leader(batch)
    with contextlib.suppress(KafkaError, CorruptDataError):
        for record in read_records(batch, limit_bytes=LIMIT_BYTES):
            assert record.key is None or len(record.key) <= LIMIT_BYTES


def _check_as_a_leader(batch: bytes) -> None:
    """What a leader takes, a consumer reads: to the last record, and no other number of them."""
    header = read_header(batch)
    check_packed(header.compression, batch[HEADER_BYTES : header.size_bytes], header.record_count, LIMIT_BYTES)
    offsets = [offset - header.base_offset for offset, _ in read_times(batch, limit_bytes=LIMIT_BYTES)]
    assert offsets == list(range(header.record_count))


def seed_input(random: Random) -> bytes:
    """A sound batch or noise, damaged in a few places."""
    if random.random() < 0.3:
        return random.randbytes(random.randrange(80))
    records = [
        Record(
            number,
            1000 + number,
            random.choice((None, b"k")),
            b"v" * random.randrange(50),
            (("h", None),) * (number % 3),
        )
        for number in range(random.randint(1, 9))
    ]
    batch = build_batch(records, compression=CompressionType(random.randrange(5)))
    return bytes([random.randrange(3)]) + mutated(bytes(batch), random)


if __name__ == "__main__":
    forever(fuzz, seed_input)
