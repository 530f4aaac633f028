"""Damage to a log on a simulated disk that its broker can notice at its next start:
a cut, or a flipped bit.

A cut goes below the checkpointed high watermark; a bit is flipped behind the checkpointed recovery
point, where recovery looks. Other damage leaves no sign, and is not made here.
"""

import posixpath

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import Random
from barnabas.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from barnabas.testing.simulation.disk import Disk, SimulatedFiles
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, BatchHeader, check_batch
from simulation.scenarios.logs_on_disk import partitions_on_disk

__all__ = ["damage_some_log"]


def damage_some_log(disk: Disk, rng: Random) -> tuple[TopicPartition, int] | None:
    """Damage one log of a broker that is down.

    Returns it, and the offset before which everything is there."""
    files = SimulatedFiles(disk)
    damages = [damage for damage in (_damage_of(disk, files, *item, rng) for item in _last_segments(disk)) if damage]
    if not damages:
        return None
    topic_partition, path, data, end_offset = rng.choice(damages)
    inode = disk.inode(path)
    assert inode is not None
    inode.damage(data)
    return topic_partition, end_offset


def _last_segments(disk: Disk) -> list[tuple[TopicPartition, str]]:
    return [(name, max(segments)[1]) for name, segments in partitions_on_disk(disk).items()]


def _damage_of(
    disk: Disk, files: Files, topic_partition: TopicPartition, path: str, rng: Random
) -> tuple[TopicPartition, str, bytearray, int] | None:
    """What could be done to a log: the new bytes of its last segment, and where the
    valid ones end."""
    inode = disk.inode(path)
    assert inode is not None
    log_dir = posixpath.dirname(posixpath.dirname(path))
    try:
        high_watermark, recovery_point = (
            read_offsets(files, f"{log_dir}/{name}").get(topic_partition, 0)
            for name in (HIGH_WATERMARKS, RECOVERY_POINTS)
        )
    except CorruptDataError:
        return None
    data = bytearray(inode.data)
    batches = _batches(data)
    below = [batch for batch in batches if batch[1].base_offset < high_watermark]
    behind = [
        batch for batch in batches if batch[1].base_offset >= recovery_point and batch[1].size_bytes > HEADER_BYTES
    ]
    if below and (not behind or rng.random() < 0.5):
        position, header = rng.choice(below)
        del data[position + rng.randrange(header.size_bytes) :]
    elif behind:
        position, header = rng.choice(behind)
        data[position + rng.randrange(HEADER_BYTES, header.size_bytes)] ^= 1 << rng.randrange(8)
    else:
        return None
    return topic_partition, path, data, header.base_offset


def _batches(data: bytearray) -> list[tuple[int, BatchHeader]]:
    batches = []
    position = 0
    while position < len(data):
        try:
            header = check_batch(data, position, len(data))
        except KafkaError:
            break
        batches.append((position, header))
        position += header.size_bytes
    return batches
