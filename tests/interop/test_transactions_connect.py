"""Connect with exactly-once support: Apache's MirrorMaker 2, in its dedicated mode, copies each
record once through kills of itself and of the brokers on both sides; and what it keeps equal beside
the records comes over, too."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from barnabas.client import Admin
from barnabas.testing import ProcessCluster
from support.needs import needs_reference
from support.pages import DOCS, file_of
from support.ports import free_ports
from support.reference import apache_command, apache_tool
from support.transaction_copies import make, read_committed
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference, pytest.mark.timeout(600)]

PAGE = DOCS / "how-to" / "connect-and-streams.md"
PROBE = Path(__file__).parents[1] / "support" / "MirrorProbe.java"
RECORDS = 3000
MORE = 500
READ = 1200
"""As far as the group has read in the source."""
GROUP = "shop"
LIMIT_S = 180


@contextlib.contextmanager
def mirror_maker(directory: Path, source: str, target: str) -> Iterator[subprocess.Popen[bytes]]:
    """The dedicated mode, which has the workers of Connect and their internal REST server.

    Heartbeats go to both sides, as they do unless set."""
    (port,) = free_ports(1)
    properties = directory / "mm2.properties"
    # The last line of a name counts.
    properties.write_text(
        file_of(PAGE, "mm2.properties")
        + f"""a.bootstrap.servers={source}
b.bootstrap.servers={target}
a->b.topics=numbers
listeners=http://127.0.0.1:{port}
replication.factor=1
offset-syncs.topic.replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset.storage.replication.factor=1
config.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=2
status.storage.partitions=2
session.timeout.ms=6000
heartbeat.interval.ms=1000
refresh.topics.interval.seconds=2
refresh.groups.interval.seconds=2
sync.topic.configs.interval.seconds=2
emit.checkpoints.interval.seconds=1
emit.heartbeats.interval.seconds=1
sync.group.offsets.interval.seconds=1
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


def commit(bootstrap: str, offset: int) -> None:
    """The group has read so far."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[confluent_kafka.TopicPartition("numbers", 0, offset)], asynchronous=False)
    consumer.close()


def next_number(bootstrap: str) -> int:
    """What the group reads first in the copy; 0 while it has no offset there."""
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.assign([confluent_kafka.TopicPartition("a.numbers", 0)])
    message = consumer.poll(LIMIT_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return int(message.value())


def test_mirror_maker_2_that_is_killed_copies_each_record_once(tmp_path: Path) -> None:
    """Its offsets are committed with the records, and the next run fences the killed one; the
    topic's settings and partitions, the group's offsets and heartbeats come over, too."""
    with ProcessCluster(data_dir=tmp_path / "source") as source, ProcessCluster(data_dir=tmp_path / "target") as target:
        there, here = source.bootstrap_servers, target.bootstrap_servers
        make(there, "numbers")
        make(here, "a.numbers")

        def copies() -> list[str]:
            return read_committed(here, "a.numbers")

        fill(there, range(RECORDS // 2))
        with mirror_maker(tmp_path, there, here) as process:
            eventually(copies, timeout_s=LIMIT_S, what="the first copies")
            fill(there, range(RECORDS // 2, RECORDS))
            os.killpg(process.pid, signal.SIGKILL)
        commit(there, READ)
        with Admin({"bootstrap.servers": there}) as admin:
            admin.alter_topic_configs("numbers", {"retention.ms": 77_000_000})
            admin.create_partitions("numbers", 2)
        with mirror_maker(tmp_path, there, here):
            eventually(lambda: len(copies()) >= RECORDS, timeout_s=LIMIT_S, what="all copies")
            for side, first in ((source, RECORDS), (target, RECORDS + MORE)):
                side.kill_broker(0)
                side.start_broker(0)
                fill(there, range(first, first + MORE))
            everything = RECORDS + 2 * MORE
            eventually(
                lambda: len(copies()) >= everything, timeout_s=LIMIT_S, what="copies after kills of both brokers"
            )
            assert copies() == [str(number) for number in range(everything)]
            with Admin({"bootstrap.servers": here}) as admin:
                eventually(lambda: has_settings(admin), timeout_s=LIMIT_S, what="the topic's settings and partitions")
            eventually(lambda: next_number(here) > 0, timeout_s=LIMIT_S, what="the group's offset")
            assert next_number(here) <= READ, "the group misses nothing"
            found = apache_tool(str(PROBE), here, "a", GROUP).stdout
        assert {
            "upstream [a]", "hops 1", "checkpoints [a.checkpoints.internal]",
            "beat heartbeats a b true", "beat a.heartbeats b a true",
        } <= set(found.splitlines()), found  # fmt: skip


def has_settings(admin: Admin) -> bool:
    """Whether the copy has what was changed in the source."""
    (topic,) = admin.describe_topics(["a.numbers"])
    return len(topic.partitions) == 2 and admin.topic_configs("a.numbers")["retention.ms"].value == "77000000"
