"""The mirror between Apache's brokers and ours, in both directions, while either side
and the mirrors are killed."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin, ConnectError, Consumer, Producer
from barnabas.client.admin.offsets import LATEST, FoundOffset
from barnabas.testing import ProcessCluster
from support.mixed import APACHES, mixed_cluster
from support.needs import needs_reference
from support.reference import apache_broker
from support.servers import BARNABAS
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.fault, needs_reference]
FIRST, MORE = 300, 200
LIMIT_S = 120
ZOOKEEPER = {
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "6000",
}


class Mirror:
    """A mirror maker's process, started again whenever it is killed."""

    def __init__(self, folder: Path, source: str, target: str, names: tuple[str, str]) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "source.properties").write_text(
            f"bootstrap.servers={source}\ngroup.id=mirror-{names[0]}\nsession.timeout.ms=6000\n"
        )
        (folder / "target.properties").write_text(f"bootstrap.servers={target}\n")
        self._command = [*BARNABAS, "mirror-maker", "--consumer.config", "source.properties"]
        self._command += ["--producer.config", "target.properties", "--whitelist", "orders"]
        self._command += ["--offset.commit.interval.ms", "300", "--topic.refresh.ms", "300", "--groups", "shop"]
        self._command += ["--source.cluster.alias", names[0], "--target.cluster.alias", names[1]]
        self._command += ["--sync.group.offsets.enabled", "true", "--emit.checkpoints.interval.seconds", "1"]
        self.start()

    def start(self) -> None:
        with (self.folder / "mirror.log").open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=self.folder, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


@contextlib.contextmanager
def mirrors(*wanted: Mirror) -> Iterator[None]:
    """None outlives the test."""
    try:
        yield
    finally:
        for mirror in wanted:
            mirror.end()


def send(servers: str, first: int, count: int) -> None:
    """Numbered records with keys."""
    with Producer({"bootstrap.servers": servers, "enable.idempotence": "true"}) as producer:
        producer.send_many(
            "orders", [str(n) for n in range(first, first + count)], keys=[f"k{n % 50}" for n in range(count)]
        )


def values(servers: str, topic: str) -> list[int]:
    """All records of a topic with two partitions."""
    places = [TopicPartition(topic, n) for n in (0, 1)]
    with contextlib.suppress(ConnectError), Admin({"bootstrap.servers": servers}) as admin:
        if topic not in admin.list_topics():
            return []
        ends = {
            place: end.offset
            for place, end in admin.list_offsets(dict.fromkeys(places, LATEST)).items()
            if isinstance(end, FoundOffset)
        }
        found = []
        with Consumer({"bootstrap.servers": servers, "consumer.timeout.ms": "20000"}) as consumer:
            consumer.assign({place: 0 for place, end in ends.items() if end})
            for record in consumer if any(ends.values()) else ():
                found.append(int(record.value or -1))
                if len(found) == sum(ends.values()):
                    break
        return found
    return []  # the broker starts again


def read_and_commit(servers: str, topic: str, wanted: set[int]) -> list[int]:
    """The group reads on from its offsets until it has all that is wanted; returns what it read."""
    settings = {"bootstrap.servers": servers, "group.id": "shop", "auto.offset.reset": "earliest"}
    found = []
    with Consumer({**settings, "enable.auto.commit": "false", "consumer.timeout.ms": "60000"}) as consumer:
        consumer.subscribe([topic])
        for record in consumer:
            found.append(int(record.value or -1))
            if wanted <= set(found):
                break
        consumer.commit()
    assert wanted <= set(found)
    return found


def fill(sides: Mapping[str, str]) -> None:
    """The topic of each side, with its first records, which the group has read."""
    for servers in sides.values():
        with Admin({"bootstrap.servers": servers}) as admin:
            admin.create_topic("orders", partitions=2)
        send(servers, 0, FIRST)
        read_and_commit(servers, "orders", set(range(FIRST)))


def both_ways(folder: Path, sides: Mapping[str, str]) -> tuple[Mirror, Mirror]:
    """The mirrors from a to b, and from b to a."""
    there = Mirror(folder / "there", sides["a"], sides["b"], ("a", "b"))
    return there, Mirror(folder / "back", sides["b"], sides["a"], ("b", "a"))


def test_records_and_groups_go_both_ways_through_kills_of_mirrors_and_brokers(tmp_path: Path) -> None:
    """Apache 3.9.1 and ours mirror each other: nothing is lost, nothing goes round, and the group
    goes on at the other side."""
    with (
        mixed_cluster(tmp_path / "apache", [APACHES], on=APACHES, settings=ZOOKEEPER) as apache,
        ProcessCluster(1) as ours,
    ):
        sides = {"a": apache.bootstrap, "b": ours.bootstrap_servers}
        fill(sides)
        there, back = both_ways(tmp_path, sides)
        with mirrors(there, back):
            remotes = {"a": (sides["b"], "a.orders"), "b": (sides["a"], "b.orders")}
            eventually(lambda: all(values(*place) for place in remotes.values()), timeout_s=LIMIT_S, what="both copy")
            for mirror in (there, back):
                mirror.kill()
            for servers in sides.values():
                send(servers, FIRST, MORE)
            there.start()
            back.start()

            def all_is_there(end: int) -> bool:
                return all(set(values(*place)) == set(range(end)) for place in remotes.values())

            eventually(lambda: all_is_there(FIRST + MORE), timeout_s=LIMIT_S, what="the mirrors went on")
            ours.kill(0)
            send(sides["a"], FIRST + MORE, MORE)
            apache.kill(0)
            ours.start_broker(0)
            send(sides["b"], FIRST + MORE, MORE)
            apache.await_expired(0)
            apache.start(0, APACHES)
            everything = set(range(FIRST + 2 * MORE))
            eventually(lambda: all_is_there(len(everything)), timeout_s=LIMIT_S, what="all records are there")
            # The group had read FIRST records at the source: here it goes on after them.
            for place in remotes.values():
                eventually(lambda place=place: is_synced(*place), timeout_s=LIMIT_S, what="the offsets of shop")
            for mirror in (there, back):
                mirror.end()
            for servers, topic in remotes.values():
                found = read_and_commit(servers, topic, everything - set(range(FIRST)))
                assert len(set(found)) < 2 * MORE + FIRST / 2, "the group begins where it was, not at the beginning"
            for servers in sides.values():
                with Admin({"bootstrap.servers": servers}) as admin:
                    assert not {"a.b.orders", "b.a.orders"} & set(admin.list_topics())


def is_synced(servers: str, topic: str) -> bool:
    """Whether the group has offsets in the target."""
    with contextlib.suppress(ConnectError), Admin({"bootstrap.servers": servers}) as admin:
        return sum(place.topic == topic for place in admin.group_offsets("shop")) == 2
    return False


def test_records_and_groups_go_between_a_cluster_of_apaches_4_3_and_ours(tmp_path: Path) -> None:
    """Records, the topic's partitions and the group come over from KRaft brokers, and to them."""
    with apache_broker(tmp_path / "kraft", "4.3.0") as servers, ProcessCluster(1) as ours:
        sides = {"a": servers, "b": ours.bootstrap_servers}
        fill(sides)
        with mirrors(*both_ways(tmp_path, sides)):
            for source, target, remote in (("a", "b", "a.orders"), ("b", "a", "b.orders")):
                place = (sides[target], remote)
                eventually(lambda place=place: len(values(*place)) == FIRST, timeout_s=LIMIT_S, what=f"all of {remote}")
                eventually(lambda place=place: is_synced(*place), timeout_s=LIMIT_S, what="offsets of shop")
                send(sides[source], FIRST, MORE)
                found = read_and_commit(*place, set(range(FIRST, FIRST + MORE)))
                assert len(set(found)) < MORE + FIRST / 2, "the group begins where it was, not at the beginning"
