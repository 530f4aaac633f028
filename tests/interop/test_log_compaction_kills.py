"""Brokers that compact all the time and are killed in it: the newest acknowledged
value of each key is there."""

import os
import random
import re
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as Assignment
from confluent_kafka.admin import AdminClient, NewTopic

from support.ports import free_ports
from support.servers import Server
from support.waiting import eventually

TOPIC = {"cleanup.policy": "compact", "segment.bytes": "30000", "min.cleanable.dirty.ratio": "0.01",
         "delete.retention.ms": "0", "file.delete.delay.ms": "0"}  # fmt: skip
KEYS = 300
KILLS = int(os.environ.get("BARNABAS_KILLS", "5"))
SEED = 4
pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(600 + 20 * KILLS)]


def values_of(bootstrap: str) -> tuple[dict[bytes, bytes], int]:
    """The newest value of each key, and how many records there are."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False,
                         "check.crcs": True, "enable.partition.eof": True})  # fmt: skip
    consumer.assign([Assignment("table", 0, OFFSET_BEGINNING)])
    found: dict[bytes, bytes] = {}
    count = 0
    while True:
        message = consumer.poll(60)
        assert message is not None, "the broker sent nothing for 60 s"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            consumer.close()
            return found, count
        count += 1
        found.pop(message.key(), None)
        if message.value() is not None:
            found[message.key()] = message.value()


def test_kills_during_compactions_neither_lose_nor_revive_a_key(tmp_path: Path, record_property) -> None:
    """Delete markers go at once here, so that a value they deleted would show."""
    zookeeper_port, broker_port = free_ports(2, consecutive=True)
    coordination = Server(
        ["zookeeper-server-start", str(tmp_path / "zoo.cfg")], tmp_path / "zookeeper.out", zookeeper_port
    )
    (tmp_path / "zoo.cfg").write_text(f"dataDir={tmp_path / 'zk'}\nclientPort={zookeeper_port}\ntickTime=500\n")
    (tmp_path / "server.properties").write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:{broker_port}\nlog.dirs={tmp_path / 'logs'}\n"
        f"zookeeper.connect=127.0.0.1:{zookeeper_port}\nlog.cleaner.backoff.ms=100\nzookeeper.session.timeout.ms=2000\n"
    )
    broker = Server(["server-start", str(tmp_path / "server.properties")], tmp_path / "broker.out", broker_port)
    bootstrap = f"127.0.0.1:{broker_port}"
    rng = random.Random(SEED)
    coordination.start()
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        eventually(lambda: admin.list_topics(timeout=5).brokers, timeout_s=60)
        for future in admin.create_topics([NewTopic("table", 1, 1, config=TOPIC)]).values():
            future.result(60)
        expected: dict[bytes, bytes] = {}
        total = 0
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
                             "batch.num.messages": 50, "log_level": 0})  # fmt: skip
        for kill in range(KILLS + 1):
            for _ in range(rng.randrange(2000, 4000)):
                key = b"key%d" % rng.randrange(KEYS)
                value = None if rng.randrange(4) == 0 else b"%d " % total * 10
                producer.produce("table", value, key=key, partition=0)
                expected.pop(key, None)
                if value is not None:
                    expected[key] = value
                total += 1
                if total % 200 == 0:
                    producer.poll(0.02)
            assert producer.flush(90) == 0
            if kill < KILLS:
                broker.kill()
                broker.start()
        checkpoint = tmp_path / "logs" / "cleaner-offset-checkpoint"
        eventually(
            lambda: (
                checkpoint.exists()
                and int((re.findall(r"table 0 (\d+)", checkpoint.read_text()) or [0])[0]) > total * 3 // 4
            ),
            timeout_s=60,
            what="three quarters of the log are compacted",
        )
        found, count = values_of(bootstrap)
        record_property("kills, their moments from seed", [KILLS, SEED])
        record_property("records, left after compaction", [total, count])
        assert found == expected
        assert count < total / 3
        names = [path.name for path in (tmp_path / "logs" / "table-0").iterdir()]
        assert not [name for name in names if name.endswith(".swap")]
    finally:
        broker.kill()
        coordination.stop()
    assert "Traceback" not in (tmp_path / "broker.out").read_text()
