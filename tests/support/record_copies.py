"""Records that are in a topic more than once: the producer, epoch and sequence of each copy show
whether a broker or the client made it.

A broker appends each sequence of a producer's epoch once: two copies with the same sequence and
epoch are the broker's fault. An idempotent producer without a transactional id raises its epoch
itself; no broker does (KIP-360). librdkafka raises it for all partitions when one of them answers
OUT_OF_ORDER_SEQUENCE_NUMBER, and then sends what is not acknowledged again, in the new epoch. A
broker that has appended it in the old epoch cannot recognise it. Such copies are the client's
fault (its issue 4953).
"""

import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from barnabas.log.producer_state import advance_sequence
from barnabas.wire.kafka.records.batch_header import CONTROL, BatchHeader, read_headers
from barnabas.wire.kafka.records.records import read_records

SAME_SEQUENCE = "the same sequence of an epoch was appended twice"
SAME_EPOCH = "sent twice in one epoch, with two sequences"
RAISED_EPOCH = "sent again by the client in an epoch that it has raised itself"
OTHER = "sent again by another producer, in another partition or without idempotence, or not in the logs"


class Copy(NamedTuple):
    """Where a copy of a record is, and the producer's data that it came with."""

    partition: int
    offset: int
    producer_id: int
    epoch: int
    sequence: int


def copies_of(numbers: Collection[int], directory: Path, topic: str) -> dict[int, list[Copy]]:
    """All copies of the records with these values, in the logs of a topic below ``directory``: by
    value, in order."""
    found: dict[int, set[Copy]] = {number: set() for number in numbers}
    for folder in folders(directory, topic):
        partition = int(folder.name.rpartition("-")[2])
        for data, position, header in _batches(folder):
            if header.attributes & CONTROL:
                continue
            for record in read_records(data, position):
                number = int(record.value or b"-1")
                if number in found:
                    sequence = advance_sequence(header.base_sequence, record.offset - header.base_offset)
                    found[number].add(
                        Copy(partition, record.offset, header.producer_id, header.producer_epoch, sequence)
                    )
    return {number: sorted(copies) for number, copies in found.items()}


def folders(directory: Path, topic: str) -> list[Path]:
    """The folders of a topic's replicas."""
    return sorted(path for path in directory.rglob(f"{topic}-*") if path.name.removeprefix(f"{topic}-").isdigit())


def kind_of(copies: list[Copy]) -> str:
    """Who made the copies of one record."""
    if len(copies) < 2 or len({(copy.partition, copy.producer_id) for copy in copies}) > 1 or copies[0].producer_id < 0:
        return OTHER
    if len({copy[2:] for copy in copies}) < len(copies):
        return SAME_SEQUENCE
    if len({copy.epoch for copy in copies}) < len(copies):
        return SAME_EPOCH
    return RAISED_EPOCH if all(first.epoch < second.epoch for first, second in pairwise(copies)) else OTHER


def by_kind(copies: dict[int, list[Copy]]) -> dict[str, dict[int, list[Copy]]]:
    """The records' copies by who made them."""
    kinds: dict[str, dict[int, list[Copy]]] = defaultdict(dict)
    for number, found in copies.items():
        kinds[kind_of(found)][number] = found
    return dict(kinds)


def described(kinds: dict[str, dict[int, list[Copy]]]) -> str:
    """The kinds with some copies of each, for people."""
    lines = []
    for kind, copies in sorted(kinds.items()):
        lines.append(f"{len(copies)} records: {kind}")
        for number, found in list(copies.items())[:20]:
            lines += [f"  {number}: {copy}" for copy in found]
    return "\n".join(lines)


def batches_near(copies: Iterable[Copy], directory: Path, topic: str) -> str:
    """The headers of the batches with these copies, and of some around them, as text."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for copy in copies:
        wanted[copy.partition].add(copy.offset)
    lines = []
    for folder in folders(directory, topic):
        offsets = wanted.get(int(folder.name.rpartition("-")[2]), set())
        headers = [header for _, _, header in _batches(folder)] if offsets else []
        near = {
            shown
            for at, header in enumerate(headers)
            if any(header.base_offset <= offset <= header.last_offset for offset in offsets)
            for shown in range(at - 4, at + 5)
        }
        if near:
            lines.append(str(folder))
            lines += [f"  {_line(header)}" for at, header in enumerate(headers) if at in near]
    return "\n".join(lines)


def keep_logs(directory: Path, topic: str, kept: Path) -> Path:
    """Copy a topic's logs below ``kept``, where they outlive the cluster; return the directory."""
    target = kept / f"logs-of-{topic}"
    for folder in folders(directory, topic):
        if target not in folder.parents:
            shutil.copytree(folder, target / folder.relative_to(directory), dirs_exist_ok=True)
    return target


def _line(header: BatchHeader) -> str:
    return (
        f"offsets {header.base_offset}-{header.last_offset} leader epoch {header.leader_epoch} "
        f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence} "
        f"timestamp {header.max_timestamp}"
    )


def _batches(folder: Path) -> Iterator[tuple[bytes, int, BatchHeader]]:
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for position, header in read_headers(data):
            yield data, position, header
