"""A log dir with transactions in every state passes from one kind of broker to the other.

Broker 0 changes its kind between Apache's and ours. It coordinates all transactions, and leads four
of five partitions. It leaves behind: committed and aborted transactions; an open one whose producer
goes on; an open one without a producer; one whose commit is decided, but one partition lacks its
marker, because its leader, broker 1, is down.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import NewTopic, OffsetSpec

from barnabas.client.admin.transactions import describe_transaction
from barnabas.client.cluster.admin_connection import AdminConnection
from support.dumps import dumpable, java_dump, our_dump
from support.mixed import APACHES, LIMIT_S, OURS, MixedCluster, is_long, mixed_cluster
from support.needs import needs_reference
from support.transaction_copies import committed, read_committed, repeat
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.fault, needs_reference, pytest.mark.timeout(600)]

TOPIC = "swapped"
ENDED, OPEN, LEFT, DECIDED, ALSO_DECIDED = range(5)
"""The partitions; broker 1 leads ``DECIDED``."""
INTERNAL = {"__transaction_state": "--transaction-log-decoder", "__consumer_offsets": "--offsets-decoder"}
CLEANUP = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
SETTINGS = {
    CLEANUP: "3600000",
    "controlled.shutdown.max.retries": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "zookeeper.session.timeout.ms": "6000",
}


class Transactions:
    """One in each state, named for it."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self._bootstrap = cluster.bootstrap

    def begin(self) -> None:
        """All; the decided one is still open."""
        ended = self._producer("ended")
        for number in range(4):
            self._write(ended, (ENDED,), f"{number}")
            repeat(lambda number=number: (ended.abort_transaction if number % 2 else ended.commit_transaction)(30))
        self._open = self._producer("open")
        self._write(self._open, (OPEN,), "before")
        reader = confluent_kafka.Consumer({"bootstrap.servers": self._bootstrap, "group.id": "group"})
        offsets = [confluent_kafka.TopicPartition(TOPIC, OPEN, 7)]
        repeat(lambda: self._open.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 30))
        reader.close()
        self._left = self._producer("left", timeout_ms=10_000)
        self._write(self._left, (LEFT,), "left")
        self._decided = self._producer("decided")
        self._write(self._decided, (DECIDED, ALSO_DECIDED), "decided")

    def decide(self) -> None:
        """Commit while broker 1 is down: the coordinator waits with the last marker."""
        repeat(lambda: self._decided.commit_transaction(30))
        assert self._state("decided") == "PrepareCommit"

    def check(self) -> None:
        """What holds of each after the swap."""
        assert self._read(ENDED) == ["0", "2"]
        assert self._read(ENDED, "read_uncommitted") == ["0", "1", "2", "3"]
        assert self._state("ended") == "CompleteAbort"
        assert self._state("open") == "Ongoing"
        assert self._ends(OPEN) == (1, 0), "the end, and the last stable offset"
        assert self._read(OPEN) == []
        assert committed(self._bootstrap, "group", TOPIC, OPEN, "read_uncommitted") == confluent_kafka.OFFSET_INVALID
        eventually(lambda: self._state("decided") == "CompleteCommit", timeout_s=LIMIT_S, what="the last marker")
        assert self._read(DECIDED) == self._read(ALSO_DECIDED) == ["decided"]
        eventually(lambda: self._state("left") == "CompleteAbort", timeout_s=LIMIT_S, what="its time-out")
        eventually(lambda: self._ends(LEFT) == (2, 2), timeout_s=LIMIT_S, what="the marker behind its record")
        assert self._read(LEFT) == []

    def finish(self) -> None:
        """The open one goes on and is committed, with the offset of its group."""
        self._open.produce(TOPIC, "after", partition=OPEN)
        repeat(lambda: self._open.commit_transaction(30))
        eventually(lambda: self._read(OPEN) == ["before", "after"], timeout_s=LIMIT_S, what="its marker")
        eventually(
            lambda: committed(self._bootstrap, "group", TOPIC, OPEN) == 7, timeout_s=LIMIT_S, what="the group's offset"
        )

    def _read(self, partition: int, isolation: str = "read_committed") -> list[str]:
        return read_committed(self._bootstrap, TOPIC, partition, isolation)

    def _ends(self, partition: int) -> tuple[int, int]:
        at = confluent_kafka.TopicPartition(TOPIC, partition)
        levels = (confluent_kafka.IsolationLevel.READ_UNCOMMITTED, confluent_kafka.IsolationLevel.READ_COMMITTED)
        end, stable = (
            self._cluster.admin.list_offsets({at: OffsetSpec.latest()}, isolation_level=level)[at]
            .result(LIMIT_S)
            .offset
            for level in levels
        )
        return end, stable

    def _state(self, name: str) -> str:
        with AdminConnection(self._bootstrap) as connection:
            return describe_transaction(connection, name).state

    def _producer(self, name: str, timeout_ms: int = 600_000) -> confluent_kafka.Producer:
        made = confluent_kafka.Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": name, "log_level": 0}
            | {"transaction.timeout.ms": timeout_ms, "reconnect.backoff.max.ms": 500}
        )
        repeat(lambda: made.init_transactions(30))
        return made

    @staticmethod
    def _write(producer: confluent_kafka.Producer, partitions: Sequence[int], value: str) -> None:
        producer.begin_transaction()
        for partition in partitions:
            producer.produce(TOPIC, value, partition=partition)
        assert producer.flush(LIMIT_S) == 0


def create(cluster: MixedCluster) -> None:
    """The topic, and the internal ones, which broker 0 leads."""
    compacted = {"cleanup.policy": "compact"}
    topics = [NewTopic(name, 1, replica_assignment=[[0]], config=compacted) for name in INTERNAL]
    topics.append(NewTopic(TOPIC, 5, replica_assignment=[[int(number == DECIDED)] for number in range(5)]))
    for done in cluster.admin.create_topics(topics).values():
        done.result(LIMIT_S)
    cluster.await_whole()


def assert_dumps_are_equal(cluster: MixedCluster, *, is_clean: bool) -> None:
    """Both kinds' DumpLogSegments print the same of broker 0's files, without a complaint."""
    logs = cluster.members[0].log_dir
    led = [logs / f"{TOPIC}-{number}" for number in range(5) if number != DECIDED]
    for folders, option in [(led, "--print-data-log"), *(([logs / f"{name}-0"], INTERNAL[name]) for name in INTERNAL)]:
        # Indexes that a kill has left are as long as they may become.
        files = [path for folder in folders for path in dumpable(folder) if is_clean or path.suffix == ".log"]
        printed, complaints = java_dump(files, option)
        assert (in_order(our_dump(files, option)), complaints) == (in_order(printed), "")
        assert len(printed) > len(files)


def in_order(lines: list[str]) -> list[str]:
    """Sort each transaction's partitions, which Apache's tool prints in a hash table's order."""
    return [
        re.sub(r"partitions=\[([^]]*)\]", lambda found: f"partitions={sorted(found[1].split(','))}", line)
        for line in lines
    ]


BOTH = [(OURS, APACHES, False), (APACHES, OURS, True)]
OTHERS = [(OURS, APACHES, True), (APACHES, OURS, False)]


@pytest.mark.parametrize(("first", "then", "is_killed"), [*BOTH, *OTHERS] if is_long() else BOTH)
def test_the_other_kind_continues_each_transaction_of_a_log_dir(
    tmp_path: Path, first: str, then: str, is_killed: bool
) -> None:
    """What is open stays open until its end or its time-out, and what is decided is done."""
    with mixed_cluster(tmp_path, [first, OURS], settings=SETTINGS) as cluster:
        create(cluster)
        transactions = Transactions(cluster)
        transactions.begin()
        cluster.stop(1)
        transactions.decide()
        if is_killed:
            cluster.kill(0)
        else:
            cluster.stop(0)
        assert_dumps_are_equal(cluster, is_clean=not is_killed)
        cluster.await_expired(0)
        properties = cluster.members[0].properties
        properties.write_text(properties.read_text() + f"{CLEANUP}=500\n")
        cluster.start(0, then)
        cluster.start(1, OURS)
        transactions.check()
        transactions.finish()
