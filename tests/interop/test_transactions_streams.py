"""Kafka Streams with exactly_once_v2: it is killed in the middle, and each record counts once."""

import collections
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from support.needs import needs_reference
from support.reference import apache_command
from support.servers import barnabas, up
from support.transaction_copies import make, read_committed
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parents[1] / "other_languages" / "java" / "streams" / "ExactlyOnce.java"
RECORDS = 2000
KEYS = 7
LIMIT_S = 120


@contextlib.contextmanager
def streams(version: str, log: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """The program, as its own process group; killed at the end."""
    classpath = subprocess.run(
        apache_command("classpath", "--version", version), capture_output=True, text=True, check=True
    ).stdout.strip()
    command = ["java", "-Xmx256M", "-cp", classpath, str(PROGRAM), *map(str, arguments)]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def fill(bootstrap: str, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, str(number), str(number % KEYS))
    assert producer.flush(LIMIT_S) == 0


def last_counts(bootstrap: str, topic: str) -> dict[str, int]:
    """The last committed value of each key."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "counts", "isolation.level": "read_committed"}
        | {"enable.partition.eof": True, "enable.auto.commit": False, "fetch.wait.max.ms": 20}
    )
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    counts: dict[str, int] = {}

    def has_ended() -> bool:
        while (message := reader.poll(0.5)) is not None:
            if message.error() is not None:
                return True
            counts[message.key().decode()] = int(message.value())
        return False

    eventually(has_ended, timeout_s=LIMIT_S, what="the counts")
    reader.close()
    return counts


@pytest.mark.parametrize(("version", "level"), [("3.9.1", 0), ("4.4.0", 2)])
def test_streams_that_are_killed_count_each_record_once(tmp_path: Path, version: str, level: int) -> None:
    """The copies are whole and in order, the counts of a store with a changelog are exact."""
    with up(tmp_path / "cluster") as cluster:
        bootstrap = cluster.bootstrap
        if level:
            feature = ("--feature", f"transaction.version={level}")
            assert barnabas("features", "upgrade", *feature, "--bootstrap-server", bootstrap).returncode == 0
        for topic in ("in", "copies", "counts"):
            make(bootstrap, topic)
        fill(bootstrap, "in", range(RECORDS // 2))
        arguments = (bootstrap, "app", "in", "copies", "counts", tmp_path / "state")
        log = tmp_path / "streams.log"
        with streams(version, log, *arguments) as process:
            eventually(lambda: read_committed(bootstrap, "copies"), timeout_s=LIMIT_S, what="the first copies")
            fill(bootstrap, "in", range(RECORDS // 2, RECORDS))
            os.killpg(process.pid, signal.SIGKILL)
        with streams(version, log, *arguments):
            wanted = [str(number) for number in range(RECORDS)]
            eventually(
                lambda: len(read_committed(bootstrap, "copies")) >= RECORDS,
                timeout_s=LIMIT_S,
                what=f"all copies, see {log}",
            )
            assert read_committed(bootstrap, "copies") == wanted
            exact = collections.Counter(str(number % KEYS) for number in range(RECORDS))
            eventually(lambda: last_counts(bootstrap, "counts") == exact, timeout_s=LIMIT_S, what="exact counts")
