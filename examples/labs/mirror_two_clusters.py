"""Lab: topics are mirrored to a second, independent cluster, as the first clients'
configuration files say it.

A mirror is a consumer of one cluster and a producer to another, hooked together. The clusters know
nothing of each other, and a topic may have another number of partitions at the target.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from lab import Background, CheckFailed, Lab, run

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin, Consumer
from barnabas.client.admin import LATEST, FoundOffset
from barnabas.testing import ProcessCluster

Answer = TypeVar("Answer")
SOURCE_PARTITIONS, TARGET_PARTITIONS = 3, 2
RECORDS = 300
KEYS = 7
CONSUMER = """zookeeper.connect={zookeeper}
zookeeper.connection.timeout.ms=6000
group.id=mirror
consumer.timeout.ms=-1
session.timeout.ms=6000
"""
PRODUCER = """metadata.broker.list={bootstrap}
partitioner.class=kafka.producer.DefaultPartitioner
producer.type=async
compression.codec=snappy
serializer.class=kafka.serializer.DefaultEncoder
"""
MIRROR = (
    "mirror-maker --consumer.config $DATA/consumer.properties --num.streams 2 "
    "--producer.config $DATA/producer.properties --topic.refresh.ms 500 --offset.commit.interval.ms 500"
)


def body(lab: Lab) -> None:
    """Mirror two of three topics, add a fourth, kill the mirror, and compare."""
    with ProcessCluster(1, settings={"num.partitions": str(TARGET_PARTITIONS)}) as target:
        lab.say(
            f"$ barnabas up --port 0 --zk-port 0 --override num.partitions={TARGET_PARTITIONS}   # the second cluster"
        )
        lab.name("$TARGET", target.bootstrap_servers)
        mirror_to(lab, target)


def mirror_to(lab: Lab, target: ProcessCluster) -> None:
    """The lab, with its target."""
    lab.step("1. Two files, as the first clients had them")
    for name, text in (
        ("consumer", CONSUMER.format(zookeeper=lab.cluster.zookeeper_connect)),
        ("producer", PRODUCER.format(bootstrap=target.bootstrap_servers)),
    ):
        (lab.cluster.data_dir / f"{name}.properties").write_text(text)
        lab.show(f"cat $DATA/{name}.properties", text.rstrip())
    for topic in ("orders", "customers", "secrets"):
        lab.create(topic, f"--partitions {SOURCE_PARTITIONS} --replication-factor 1")
        send(lab, topic, 0)

    lab.step("2. All topics but one: --whitelist=.* and --blacklist=secrets")
    mistaken = lab.background(f"{MIRROR} --whitelist='./*'")
    warning = lab.until(lambda: re.search(r"\./\* matches no topic .*", mistaken.output()), "a word about ./*")
    mistaken.process.kill()
    lab.show("^C", warning[0])
    lab.check(
        "a pattern of files, ./*, is reported with the one that was meant", holds=".* matches all topics" in warning[0]
    )
    mirror = lab.background(f"{MIRROR} --whitelist='.*' --blacklist=secrets")
    for topic in ("orders", "customers"):
        arrived(lab, target, topic, RECORDS, mirror)
    there = names(target)
    lab.check("the blacklisted topic is not at the target", holds="secrets" not in there, otherwise=there)
    lab.barnabas("topics --describe --topic orders --bootstrap-server $TARGET")
    lab.check(
        f"orders has {SOURCE_PARTITIONS} partitions here and {TARGET_PARTITIONS} there",
        holds=(len(lab.topic("orders")), partitions(target, "orders")) == (SOURCE_PARTITIONS, TARGET_PARTITIONS),
    )
    in_order(lab, target, "orders")

    lab.step("3. A topic that is made later, and a mirror that is killed (kill -9) and started again")
    lab.create("payments", "--partitions 1 --replication-factor 1")
    send(lab, "payments", 0)
    arrived(lab, target, "payments", RECORDS, mirror)
    mirror.process.kill()
    for topic in ("orders", "customers", "payments"):
        send(lab, topic, RECORDS)
    again = lab.background(f"{MIRROR} --whitelist='.*' --blacklist=secrets")
    for topic in ("orders", "customers", "payments"):
        times = arrived(lab, target, topic, 2 * RECORDS, again)
        twice = sum(1 for count in times.values() if count > 1)
        lab.say(f"{topic}: {twice} records were copied twice (at least once)")
    in_order(lab, target, "orders")
    lab.show("^C", again.stop().rstrip().rpartition("\n")[2])
    lab.check(
        "after Ctrl-C it ends with 130", holds=again.process.returncode == 130, otherwise=again.process.returncode
    )
    lab.barnabas("consumer-groups --describe --group mirror --bootstrap-server $KAFKA")


def send(lab: Lab, topic: str, first: int) -> None:
    """Records with keys, numbered on from ``first``."""
    lines = "".join(f"k{number % KEYS}:{number}\n" for number in range(first, first + RECORDS))
    lab.barnabas(
        f"console-producer --topic {topic} --bootstrap-server $KAFKA --property parse.key=true "
        "--property key.separator=:",
        stdin=lines,
        source=f"{topic}.txt",
    )


def arrived(lab: Lab, target: ProcessCluster, topic: str, count: int, mirror: Background) -> Counter[int]:
    """Wait until the target has the first ``count`` records; how often it has each."""

    def all_there() -> Counter[int] | None:
        if mirror.process.poll() is not None:
            raise CheckFailed(f"the mirror ended: {mirror.output()}")
        found = Counter(number for _, number in read(target, topic))
        return found if len(found) >= count else None

    found = lab.until(all_there, f"{topic} at the target")
    lab.check(f"{topic} is at the target: {count} records", holds=set(found) == set(range(count)))
    return found


def in_order(lab: Lab, target: ProcessCluster, topic: str) -> None:
    """Records of one key came to one partition, and the first copies are in the
    order of the source."""
    by_key: dict[str, list[int]] = {}
    for key, number in read(target, topic):
        if number not in by_key.setdefault(key, []):
            by_key[key].append(number)
    lab.check(
        "the records of each key are in the source's order", holds=all(by_key[k] == sorted(by_key[k]) for k in by_key)
    )


def read(target: ProcessCluster, topic: str) -> list[tuple[str, int]]:
    """Key and number of all records at the target."""
    if topic not in names(target):
        return []
    places = [TopicPartition(topic, number) for number in range(partitions(target, topic))]
    ends = ask(target, lambda admin: admin.list_offsets(dict.fromkeys(places, LATEST)))
    count = sum(end.offset for end in ends.values() if isinstance(end, FoundOffset))
    with Consumer({"bootstrap.servers": target.bootstrap_servers}) as consumer:
        consumer.assign(dict.fromkeys(places, 0))
        return [(record.key, int(record.value)) for record in islice(consumer, count)]


def names(target: ProcessCluster) -> set[str]:
    """The topics there."""
    return ask(target, lambda admin: {name for name in admin.list_topics() if not name.startswith("__")})


def partitions(target: ProcessCluster, topic: str) -> int:
    """How many the target's topic has."""
    return ask(target, lambda admin: len(admin.describe_topics([topic])[0].partitions))


def ask(target: ProcessCluster, question: Callable[[Admin], Answer]) -> Answer:
    """A question to the target."""
    with Admin({"bootstrap.servers": target.bootstrap_servers}) as admin:
        return question(admin)


if __name__ == "__main__":
    sys.exit(run("Topics are mirrored to a second cluster", body, brokers=1))
