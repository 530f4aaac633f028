"""A flow on brokers of Apache Kafka's that throttle it, while its driver, its workers
and the broker are killed.

BARNABAS_BROKERS names the versions, BARNABAS_KILLS and BARNABAS_RECORDS make it longer
(``tests/trials.py "flows on apache with kills"``). CI has one version, and kills a worker and the
broker: no other test has a flow of a throttled reader whose broker restarts.
"""

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

pq = pytest.importorskip("pyarrow.parquet")

from support.flow_runs import (  # noqa: E402
    TIMEOUT_S,
    end_started,
    epoch,
    kill_a_worker,
    kill_session,
    select,
    sleep_into_batch,
    start,
)
from support.needs import fetch_reference, needs_reference  # noqa: E402
from support.quotas import set_quota  # noqa: E402
from support.reference import KillableBroker, apache_single  # noqa: E402
from support.waiting import eventually  # noqa: E402

_KILLS = int(os.environ.get("BARNABAS_KILLS", "2"))
pytestmark = [
    *(pytest.mark.spark, pytest.mark.interop, pytest.mark.java, pytest.mark.fault, needs_reference),
    pytest.mark.timeout(900 + 240 * _KILLS),
]

VERSIONS = [each for each in os.environ.get("BARNABAS_BROKERS", "4.4.0").split() if each != "barnabas"]
_SHARE = int(os.environ.get("BARNABAS_RECORDS", "6000")) // (_KILLS + 1)
"""Records from one kill to the next."""
_BATCHES = 8
"""Micro-batches that a share takes."""
_COUNT = _SHARE * (_KILLS + 1)
_VALUE_BYTES = 100
_ABORTED = 20
_SECONDS_OF_A_SHARE = 4
"""For so long the broker throttles a reader of a share."""
_SEED = 7
FLOW = """\
name = "{topic}"
checkpoint = "checkpoint"

[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
group = "{topic}"
max_offsets_per_trigger = {limit}
kafka = {{ "client.id" = "{topic}", "max.partition.fetch.bytes" = "20000" }}
format = {{ type = "csv", columns = {{ id = "bigint", carrier = "string", at = "timestamp", delay = "int", rest = "string" }} }}

[transform]
select = ["id", "carrier", "at", "delay"]

[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"

[[sinks]]
type = "parquet"
path = "lake"
"""


def row(number: int) -> tuple[int, str, str, int]:
    """What the flow must make of a record, by plain Python."""
    return number, "AA" if number % 3 else "UA", f"2013-01-01T{number % 24:02d}:00:00.000000Z", number % 7


def value(number: int) -> bytes:
    _, carrier, at, delay = row(number)
    return f"{number},{carrier},{at},{delay},".encode().ljust(_VALUE_BYTES, b".")


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """Flows of a test that failed end with it."""
    yield
    end_started()


class ThrottledFlow:
    """A flow that reads a topic of a broker which throttles it."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.topic = cluster.topic(2)
        self.path = folder / "flow.toml"
        limit = max(1, _SHARE // _BATCHES)
        self.path.write_text(FLOW.format(topic=self.topic, bootstrap=cluster.bootstrap, limit=limit), encoding="utf-8")
        set_quota(cluster.bootstrap, self.topic, _SHARE * _VALUE_BYTES // _SECONDS_OF_A_SHARE)
        self.process = start(self.path)
        self.ended_without_broker = 0
        self._sent = 0

    def send_share(self) -> None:
        """The next records in one transaction, and others in one that is aborted."""
        # A batch that is larger than a second's quota would never be let through.
        settings = {"transactional.id": self.topic, "batch.size": 10_000}
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, **settings})
        producer.init_transactions(120)
        producer.begin_transaction()
        for _ in range(_ABORTED):
            producer.produce(self.topic, value(-1))
        assert producer.flush(120) == 0
        producer.abort_transaction(120)
        producer.begin_transaction()
        for number in range(self._sent, self._sent + _SHARE):
            producer.produce(self.topic, value(number))
        producer.commit_transaction(120)
        self._sent += _SHARE

    def kill(self, what: str, broker: KillableBroker, rng: random.Random) -> None:
        """In the midst of a micro-batch."""
        wanted = epoch(self.folder) + rng.randint(1, 3)
        self._await(lambda: epoch(self.folder) >= wanted)
        sleep_into_batch(self.folder, rng)
        if what == "driver":
            kill_session(self.process)
            self.process = start(self.path)
        elif what == "worker":
            kill_a_worker(self.process.pid, rng)
        else:
            broker.kill()
            broker.start()

    def _await(self, condition: Callable[[], bool]) -> None:
        """Without a broker for a minute a flow ends and says so.

        It is then started again, as by a supervisor."""

        def holds() -> bool:
            if self.process.poll() is not None:
                errors = self.process.communicate()[1]
                assert "no broker answers" in errors.splitlines()[-1], errors
                self.ended_without_broker += 1
                self.process = start(self.path)
            return condition()

        eventually(holds, timeout_s=TIMEOUT_S)

    def finish(self) -> None:
        """Let it read the rest, and stop it."""
        self._await(self._is_all_committed)
        self.process.send_signal(signal.SIGTERM)
        out, errors = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, errors
        summary = json.loads(out)
        assert (summary["status"], summary["bad_rows"]) == ("stopped", 0)

    def _is_all_committed(self) -> bool:
        """Whether the group is at the ends: its position follows a micro-batch that
        is in all sinks."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": "ends"})
        try:
            ends = [consumer.get_watermark_offsets(ClientPartition(self.topic, each), 60)[1] for each in range(2)]
        finally:
            consumer.close()
        return bool(self.cluster.committed(self.topic, self.topic, 2) == ends)

    def is_throttled(self) -> bool:
        """Whether the broker makes a client of the flow's name wait."""
        waits: list[float] = []
        settings = {"bootstrap.servers": self.cluster.bootstrap, "client.id": self.topic, "group.id": "other"}
        consumer = Consumer({**settings, "throttle_cb": lambda event: waits.append(event.throttle_time)})
        try:
            consumer.assign([ClientPartition(self.topic, each, 0) for each in range(2)])
            return bool(eventually(lambda: consumer.consume(1000, 0.1) is not None and sum(waits)))
        finally:
            consumer.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_throttled_flow_is_exact_though_driver_workers_and_broker_are_killed(
    version: str, cluster_at: Any, tmp_path: Path, record_property: Any
) -> None:
    """Each record is once in the database and in the files, as plain Python makes its row; those of
    aborted transactions are not."""
    fetch_reference()
    rng = random.Random(_SEED)
    quick = {"quota.window.num": "2", "zookeeper.session.timeout.ms": "6000"}
    with apache_single(tmp_path / "broker", version, quick) as running, KillableBroker(running) as broker:
        flow = ThrottledFlow(cluster_at(running.bootstrap), tmp_path)
        for number in range(_KILLS):
            flow.send_share()
            flow.kill(("worker", "broker", "driver")[number % 3], broker, rng)
        flow.send_share()
        flow.finish()
        assert flow.is_throttled()

    expected = [row(number) for number in range(_COUNT)]
    assert select(tmp_path, "SELECT id, carrier, at, delay FROM t ORDER BY id") == expected
    files = pq.read_table(tmp_path / "lake", columns=["id", "carrier", "at", "delay"]).to_pylist()
    found = [(each["id"], each["carrier"], f"{each['at']:%Y-%m-%dT%H:%M:%S.%fZ}", each["delay"]) for each in files]
    assert sorted(found) == expected
    record_property("records", _COUNT)
    record_property("kills of a worker, the broker, the driver, in turns, from seed", [_KILLS, _SEED])
    record_property("ends of the flow for want of a broker", flow.ended_without_broker)
