"""Kafka Streams on three brokers of ours: two instances of one application with exactly_once_v2 and
standbys, while an instance and the coordinator of a transaction are killed. Every result is that
which Python computes from the same input."""

import contextlib
import os
import re
import signal
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import confluent_kafka
import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin
from barnabas.client.admin.offsets import EARLIEST, LATEST
from barnabas.testing import ProcessCluster
from support.mixed import is_long
from support.needs import needs_reference
from support.pages import DOCS, file_of
from support.ports import free_ports
from support.reference import apache_command
from support.servers import barnabas
from support.streams_shop import INPUTS, PARTITIONS, ShopFeed
from support.transaction_copies import make
from support.transaction_kills import Program, kill_a_coordinator, running
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference, pytest.mark.fault, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parents[1] / "other_languages" / "java" / "streams" / "Shop.java"
PAGE = DOCS / "how-to" / "connect-and-streams.md"
VERSIONS = ("3.9.1", "4.4.0") if is_long() else ("3.9.1",)
OUTPUTS = ("word-counts", "named-orders", "paid-orders", "tumbling-counts", "hopping-counts", "session-counts")
LIMIT_S = 150
DAY_MS = 86_400_000
START_MS = 1_790_000_000_000
WORDS = "shop-words-changelog"
BY_WORD = "shop-by-word-repartition"


@dataclass(frozen=True)
class Instance:
    """A running instance and its questions."""

    process: Program
    port: int

    def ask(self, path: str) -> str:
        """The answer; "" while there is none."""
        url = f"http://127.0.0.1:{self.port}/{path}"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read().decode())
        assert self.process.poll() is None, "the instance has ended"
        return ""

    def restored(self) -> int:
        """How many records it has read from changelogs before its tasks ran."""
        return int(self.ask("state").split()[1])

    def kill(self) -> None:
        """SIGKILL."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Application:
    """Instances of the program, each with a folder for its state."""

    def __init__(self, bootstrap: str, directory: Path, version: str) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._running = contextlib.ExitStack()
        self._version = version
        jars = apache_command("classpath", "--version", version)
        found = subprocess.run(jars, capture_output=True, text=True, check=True).stdout.strip()
        subprocess.run(["javac", "-d", directory, "-cp", found, PROGRAM], check=True, timeout=LIMIT_S)
        self._classpath = f"{directory}:{found}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start(self) -> Instance:
        """One more."""
        (port,) = free_ports(1)
        properties = self._directory / f"{port}.properties"
        # The last line of a name counts. Where a commit takes longer than its interval, as one of
        # 100 ms on a busy machine, Streams processes one record of each task between two.
        properties.write_text(
            file_of(PAGE, "streams.properties")
            + f"""bootstrap.servers={self._bootstrap}
application.server=127.0.0.1:{port}
state.dir={self._directory / f"state-{port}"}
commit.interval.ms=1000
repartition.purge.interval.ms=500
statestore.cache.max.bytes=0
auto.offset.reset=earliest
"""
        )
        command = ["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", self._classpath, "Shop", properties, port]
        process = self._running.enter_context(running(command, self._directory / f"{port}.log"))
        return Instance(process, port)


def read(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """The committed records of a topic, each partition in its order."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reads", "isolation.level": "read_committed"}
        | {"enable.partition.eof": True, "enable.auto.commit": False, "fetch.wait.max.ms": 20}
    )
    reader.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found, ended = [], set()
    try:
        while len(ended) < PARTITIONS:
            message = reader.poll(LIMIT_S)
            assert message is not None, f"no answer for {topic}"
            if message.error() is None:
                found.append((message.key().decode(), message.value().decode()))
            else:
                ended.add(message.partition())
    finally:
        reader.close()
    return [(key, value) for key, value in found if not key.startswith("late-")]


def last(records: list[tuple[str, str]]) -> dict[str, int]:
    """The last count of each key."""
    return {key: int(value) for key, value in records}


@dataclass(frozen=True)
class Shop:
    """A cluster with all topics, their input, and the application, of which nothing runs yet."""

    cluster: ProcessCluster
    feed: ShopFeed
    application: Application


@pytest.fixture(scope="module", params=VERSIONS)
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Three brokers, and some input."""
    directory = tmp_path_factory.mktemp("streams")
    with ProcessCluster(3, data_dir=directory / "cluster") as cluster:
        bootstrap = cluster.bootstrap_servers
        if not request.param.startswith("3."):
            feature = ("--feature", "transaction.version=2", "--bootstrap-server", bootstrap)
            assert barnabas("features", "upgrade", *feature).returncode == 0
        for topic in (*INPUTS, *OUTPUTS):
            make(bootstrap, topic, PARTITIONS, 3)
        with Application(bootstrap, directory, request.param) as application:
            feed = ShopFeed(bootstrap, START_MS)
            feed.add(150)
            yield Shop(cluster, feed, application)


def test_results_are_exact_through_kills_and_a_standby_takes_over(shop: Shop) -> None:
    """Counts, joins, windows and sessions; the store answers at every instance, and from the
    standby when the active one is dead, which then restores next to nothing."""
    cluster, feed, application = shop.cluster, shop.feed, shop.application
    bootstrap = cluster.bootstrap_servers
    first, second = application.start(), application.start()

    def is_counted(instance: Instance, word: str) -> bool:
        return instance.ask(f"word/{word}") == str(feed.words()[word])

    def place(instance: Instance) -> tuple[int, int] | None:
        found = re.fullmatch(r"(\d+) \[(\d+)\]", instance.ask("hosts/bee"))
        return (int(found[1]), int(found[2])) if found else None

    # Each instance finds the other's words, too.
    for word in feed.words():
        for instance in (first, second):
            eventually(lambda at=instance, of=word: is_counted(at, of), timeout_s=LIMIT_S, what=f"count of {word}")
    ports = {first.port: first, second.port: second}
    active, standby = eventually(
        lambda: (found := place(first)) and found == place(second) and [ports[each] for each in found],
        timeout_s=LIMIT_S,
        what="both know who is active and who stands by",
    )
    eventually(
        lambda: standby.ask("local/bee") == str(feed.words()["bee"]), timeout_s=LIMIT_S, what="the standby is equal"
    )
    logged = ends(bootstrap, WORDS)
    restored = standby.restored()
    active.kill()
    assert standby.ask("local/bee") == str(feed.words()["bee"])
    feed.add(50)
    eventually(lambda: is_counted(standby, "bee"), timeout_s=LIMIT_S, what="the standby counts")
    assert standby.restored() - restored < logged / 4, "what the standby lacked, and not the whole changelogs"

    third = application.start()
    kill_a_coordinator(cluster, standby.process, feed)
    for word in feed.words():
        eventually(lambda of=word: is_counted(third, of), timeout_s=LIMIT_S, what=f"count of {word}")
    feed.close_windows()
    check(bootstrap, "word-counts", last, feed.words())
    check(bootstrap, "named-orders", values, feed.named_orders())
    check(bootstrap, "paid-orders", values, feed.paid_orders())
    check(bootstrap, "hopping-counts", last, feed.hopping())
    # A final result comes once.
    check(bootstrap, "tumbling-counts", Counter, once(feed.tumbling()))
    check(bootstrap, "session-counts", Counter, once(feed.sessions()))


def check(
    bootstrap: str, topic: str, result: Callable[[list[tuple[str, str]]], Mapping[object, int]], wanted: object
) -> None:
    """Wait for the result in a topic, which then is the one that is wanted."""
    try:
        eventually(lambda: result(read(bootstrap, topic)) == wanted, timeout_s=LIMIT_S, what=f"the results in {topic}")
    except AssertionError:
        assert result(read(bootstrap, topic)) == wanted
        raise


def values(records: list[tuple[str, str]]) -> Counter[str]:
    """How often each value came."""
    return Counter(value for _, value in records)


def once(counts: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Records that come once each."""
    return {(key, str(count)): 1 for key, count in counts.items()}


def ends(bootstrap: str, topic: str, at: int = LATEST) -> int:
    """The sum of the partitions' ends, or of their first offsets."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(each.offset for each in admin.list_offsets(dict.fromkeys(places, at)).values())


def test_internal_topics_are_set_up_and_purged_as_streams_asks(shop: Shop) -> None:
    """Changelogs are compacted, those of windows deleted after a day, too; what is read of a topic
    for repartitioning is deleted."""
    bootstrap = shop.cluster.bootstrap_servers
    shop.application.start()

    def is_purged() -> bool:
        shop.feed.add(5)
        return ends(bootstrap, BY_WORD, EARLIEST) > 0

    with Admin({"bootstrap.servers": bootstrap}) as admin:
        eventually(lambda: BY_WORD in admin.list_topics(), timeout_s=LIMIT_S, what="the application's topics")
        eventually(is_purged, timeout_s=LIMIT_S, what="the records that were read are deleted")

        def configs(topic: str) -> tuple[str, str]:
            found = admin.topic_configs(topic)
            return found["cleanup.policy"].value or "", found["retention.ms"].value or ""

        assert configs(BY_WORD) == ("delete", "-1")
        for store in ("words", "customers", "tumbling-final-store", "sessions-final-store"):
            assert configs(f"shop-{store}-changelog")[0] == "compact"
        for store in ("tumbling", "hopping", "sessions"):
            policy, retention_ms = configs(f"shop-{store}-changelog")
            assert set(policy.split(",")) == {"compact", "delete"}
            assert int(retention_ms) > DAY_MS
        topics = [each for each in admin.list_topics() if re.fullmatch("shop-.*-(changelog|repartition)", each)]
        for topic in admin.describe_topics(topics):
            assert [len(each.replicas) for each in topic.partitions] == [3] * PARTITIONS
