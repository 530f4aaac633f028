"""Connect with exactly-once support: Apache's MirrorMaker 2, killed in the middle, copies each
record once."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from support.needs import needs_reference
from support.ports import free_ports
from support.reference import apache_command
from support.servers import up
from support.transaction_copies import make, read_committed
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference, pytest.mark.timeout(600)]

RECORDS = 3000
LIMIT_S = 180


@contextlib.contextmanager
def mirror_maker(directory: Path, source: str, target: str) -> Iterator[subprocess.Popen[bytes]]:
    """The dedicated mode, which has the workers of Connect and their internal REST server."""
    (port,) = free_ports(1)
    properties = directory / "mm2.properties"
    properties.write_text(
        f"""clusters=a,b
a.bootstrap.servers={source}
b.bootstrap.servers={target}
a->b.enabled=true
a->b.topics=numbers
b->a.enabled=false
emit.checkpoints.enabled=false
emit.heartbeats.enabled=false
b.exactly.once.source.support=enabled
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:{port}
replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
config.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=2
status.storage.partitions=2
refresh.topics.interval.seconds=2
"""
    )
    command = apache_command("tool", "org.apache.kafka.connect.mirror.MirrorMaker", properties)
    with (directory / "mm2.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def fill(bootstrap: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce("numbers", str(number), partition=0)
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0


def test_mirror_maker_2_that_is_killed_copies_each_record_once(tmp_path: Path) -> None:
    """Its offsets are committed with the records, and the next run fences the killed one."""
    with up(tmp_path / "source") as source, up(tmp_path / "target") as target:
        make(source.bootstrap, "numbers")
        make(target.bootstrap, "a.numbers")

        def copies() -> list[str]:
            return read_committed(target.bootstrap, "a.numbers")

        fill(source.bootstrap, range(RECORDS // 2))
        with mirror_maker(tmp_path, source.bootstrap, target.bootstrap) as process:
            eventually(copies, timeout_s=LIMIT_S, what="the first copies")
            fill(source.bootstrap, range(RECORDS // 2, RECORDS))
            os.killpg(process.pid, signal.SIGKILL)
        with mirror_maker(tmp_path, source.bootstrap, target.bootstrap):
            eventually(lambda: len(copies()) >= RECORDS, timeout_s=LIMIT_S, what="all copies")
            assert copies() == [str(number) for number in range(RECORDS)]
