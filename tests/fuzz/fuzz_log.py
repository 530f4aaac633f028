"""Random bytes at every reader of the log: appends, recovery, indexes, snapshots, checkpoints.

Run ``python tests/fuzz/fuzz_log.py [SECONDS] [SEED]``. Any exception but the documented ones is a
find; the seed and the bytes are printed.
"""

import logging
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.producer_state import decode_snapshot
from barnabas.log.segment.offset_index import OffsetIndex
from barnabas.log.segment.time_index import TimeIndex
from barnabas.log.segment.transaction_index import decode_transactions
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch

NOW = 1_700_000_000_000
TP = TopicPartition("t", 0)
CONFIGS = [
    LogConfig(),
    LogConfig({"segment.bytes": "400", "index.interval.bytes": "0"}),
    LogConfig({"cleanup.policy": "compact"}),
    LogConfig({"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}),
    LogConfig({"message.timestamp.before.max.ms": "1000"}),
]


def mutated(rng: random.Random, data: bytes) -> bytearray:
    """Bytes flipped, cut, doubled, or made up."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        kind = rng.randrange(5)
        if kind == 0 and out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
        elif kind == 1 and out:
            del out[rng.randrange(len(out)) :]
        elif kind == 2:
            out += rng.randbytes(rng.randrange(80))
        elif kind == 3 and len(out) > 70:
            at = rng.randrange(61)
            out[at : at + 4] = rng.choice([b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4), b"\x80\0\0\0"])
        else:
            out += out[: rng.randrange(200)]
    return out


def batch(rng: random.Random) -> bytearray:
    records = [Record(i, NOW + rng.randrange(100), b"k", rng.randbytes(rng.randrange(50))) for i in range(3)]
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0} if rng.random() < 0.3 else {}
    return build_batch(records, compression=rng.choice(list(CompressionType)), **producer)


def attempt(rng: random.Random, directory: Path) -> None:
    """One log's life: good and bad appends, damage to its files, a reload, reads."""
    config = rng.choice(CONFIGS)
    dirs = LogDirs(OsFiles(), [str(directory)], config, broker_id=0, cluster_id="c", rng=rng)
    dirs.load(NOW, {})
    log = dirs.get_or_create(TP, Uuid(bytes(16)), config, NOW)
    for _ in range(rng.randrange(8)):
        data = batch(rng)
        try:
            if rng.random() < 0.6:
                log.append_as_leader(mutated(rng, data), leader_epoch=0, now_ms=NOW)
            elif rng.random() < 0.3:
                log.append_as_follower(mutated(rng, data), now_ms=NOW)
            else:
                log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
        except BarnabasError:
            continue
    assert log.offline is None
    dirs.close(clean=rng.random() < 0.4)
    for path in (directory / "t-0").iterdir():
        if rng.random() < 0.4:
            path.write_bytes(mutated(rng, path.read_bytes()))
    dirs = LogDirs(OsFiles(), [str(directory)], config, broker_id=0, cluster_id="c", rng=rng)
    try:
        dirs.load(NOW, {})
    except CorruptDataError:
        dirs.close(clean=False)
        return
    loaded = dirs.get(TP)
    assert loaded is not None
    for offset in (loaded.log_start_offset, loaded.log_end_offset - 1, loaded.log_end_offset):
        try:
            loaded.read(offset, 1000, upper_bound=loaded.log_end_offset, min_one_batch=True)
            done_here(loaded.offset_for_timestamp(NOW))
            loaded.aborted_transactions(0, loaded.log_end_offset)
        except KafkaError:
            continue
    dirs.close(clean=True)


def decode_noise(rng: random.Random) -> None:
    """The decoders of small files alone."""
    noise = rng.randbytes(rng.randrange(200))
    OffsetIndex.decode(noise, rng.randrange(1 << 31))
    TimeIndex.decode(noise, rng.randrange(1 << 31))
    for decode in (decode_snapshot, decode_transactions):
        try:
            decode(noise)
        except CorruptDataError:
            continue


def main() -> int:
    """Run for some seconds; 0 without a find."""
    logging.disable(logging.CRITICAL)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns()
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end or not rounds:
        rng = random.Random(seed + rounds)
        directory = Path(tempfile.mkdtemp(prefix="fuzz-log-"))
        try:
            attempt(rng, directory)
            decode_noise(rng)
        except Exception:
            print(f"seed {seed + rounds}", file=sys.stderr)
            raise
        finally:
            shutil.rmtree(directory)
        rounds += 1
    print(f"{rounds} rounds from seed {seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
