"""The migration guide, command by command: a cluster moves from Apache's brokers to ours and back,
without an error for any client.

Producers and groups run from before the first step until after the last and are never started
again; a transaction is open during each step. The test runs the guide's commands with the addresses
and paths of its own cluster, except that it starts the servers, and stops Apache's, itself: their
scripts belong to an installation. It fails if the page has a command that it does not perform.
"""

import gc
import json
import logging
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import NewTopic
from kazoo.exceptions import KazooException

from barnabas.cli.output.exit_codes import INCOMPLETE
from support.load import assert_exactly_once_in_order, read_all
from support.mixed import APACHES, LIMIT_S, OURS, MixedCluster, is_long, mixed_cluster
from support.needs import ROOT, needs_reference
from support.reference import apache_tool
from support.servers import barnabas
from support.strangers import (
    JavaMember,
    JavaProducer,
    KafkaPythonMember,
    LibrdkafkaMember,
    SteadyLoad,
    assert_each_once_in_order,
    await_progress,
)
from support.transaction_copies import read_committed, repeat
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.fault, needs_reference, pytest.mark.timeout(900)]
GUIDE = ROOT / "docs" / "how-to" / "move-to-and-from-apache-kafka.md"
SCRIPTS = {
    "bin/kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "bin/kafka-dump-log.sh": "kafka.tools.DumpLogSegments",
    "bin/zookeeper-shell.sh": "org.apache.zookeeper.ZooKeeperMain",
}
STEPS = 200 if is_long() else 100
"""Records that every client must get on by between two steps."""


@pytest.fixture(autouse=True)
def forgotten_sockets() -> Iterator[None]:
    """Clients that could not connect leave sockets to the garbage collector: let it find
    them before the test ends."""
    yield
    logging.getLogger("kafka").setLevel(logging.NOTSET)
    gc.collect()


def guide() -> dict[str, list[str]]:
    """The guide's commands by its headings."""
    sections: dict[str, list[str]] = {}
    for line in GUIDE.read_text().splitlines():
        if line.startswith("## "):
            commands = sections.setdefault(line[3:], [])
        elif found := re.match(r"\s*\$ (.*)", line):
            commands.append(found[1])
    return {title: commands for title, commands in sections.items() if commands}


class Administrator:
    """Does what the guide says to one broker, and remembers what was done."""

    def __init__(self, cluster: MixedCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.done: set[str] = set()
        self.answers: dict[str, str] = {}

    def follow(self, commands: list[str], broker_id: int = 0) -> None:
        for command in commands:
            self.answers[command] = self._perform(command, broker_id)
            self.done.add(command)

    def _perform(self, command: str, broker_id: int) -> str:
        cluster = self.cluster
        member = cluster.members[broker_id]
        coordination = cluster.coordination
        processes: dict[str, Callable[[], None]] = {
            "bin/kafka-server-stop.sh": lambda: cluster.stop(broker_id),
            "barnabas server-start config/server.properties &": lambda: cluster.start(broker_id, OURS),
            "bin/kafka-server-start.sh -daemon config/server.properties": lambda: cluster.start(broker_id, APACHES),
            "bin/zookeeper-server-stop.sh": coordination.stop,
            "barnabas zookeeper-server-start config/zookeeper.properties &": lambda: coordination.start(OURS),
            "bin/zookeeper-server-start.sh -daemon config/zookeeper.properties": lambda: coordination.start(APACHES),
        }
        if command in processes:
            processes[command]()
            return ""
        here = {
            "localhost:9092": cluster.bootstrap,
            "localhost:2181": cluster.zookeeper,
            "/var/lib/kafka": str(member.log_dir),
            "config/server.properties": str(member.properties),
            "config/zookeeper.properties": str(coordination.config),
            "orders": self.topic,
        }
        text = command
        for name, value in here.items():
            text = text.replace(name, value)
        program, *arguments = shlex.split(text)
        if "--under-replicated-partitions" in arguments:
            eventually(
                lambda: not self._run(program, arguments).strip(), timeout_s=LIMIT_S, what=f"nothing printed: {text}"
            )
            return ""
        output = self._run(program, arguments)
        # Like Kafka's, it does not wait for the end, and prints nothing.
        if arguments[0] == "server-stop":
            cluster.await_end(broker_id)
            return output
        if arguments[0] == "zookeeper-server-stop":
            coordination.await_end()
        assert output.strip(), f"nothing printed: {text}"
        return output

    @staticmethod
    def _run(program: str, arguments: list[str]) -> str:
        if program == "ls":
            return "\n".join(path.name for path in Path(arguments[-1]).iterdir())
        if program == "cat":
            return Path(arguments[-1]).read_text()
        if program == "barnabas":
            done = complete(arguments)
        elif program == "bin/zookeeper-shell.sh":
            done = apache_tool(SCRIPTS[program], "-server", *arguments)
        else:
            done = apache_tool(SCRIPTS[program], *arguments)
        assert done.returncode == 0, f"{program} {arguments}: {done.stderr}{done.stdout}"
        return done.stdout


def complete(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """A command of ours, again while it says that a busy broker's answer is missing."""

    def done() -> subprocess.CompletedProcess[str] | None:
        found = barnabas(*arguments, timeout_s=LIMIT_S)
        return None if found.returncode == INCOMPLETE else found

    return eventually(done, timeout_s=LIMIT_S, what=f"all answers to {arguments}")


class Transfers:
    """A transactional producer with a transaction that is open from one step to the next."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self._bootstrap = bootstrap
        self._number = 0
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": topic, "transaction.timeout.ms": 900_000}
        )
        repeat(lambda: self._producer.init_transactions(30))
        self._begin()

    def go_on(self) -> None:
        """Commit the open one, abort another, and begin the next."""
        self.finish()
        self._begin("aborted")
        repeat(lambda: self._producer.abort_transaction(30))
        self._begin()

    def finish(self) -> None:
        """Commit the open one, of which nothing is seen before."""
        assert self._committed() == self._values()
        repeat(lambda: self._producer.commit_transaction(30))
        self._number += 1
        eventually(lambda: self._committed() == self._values(), timeout_s=LIMIT_S, what="its markers")

    def _begin(self, value: str = "") -> None:
        self._producer.begin_transaction()
        for partition in range(3):
            self._producer.produce(self.topic, value or str(self._number), partition=partition)
        assert self._producer.flush(LIMIT_S) == 0

    def _values(self) -> list[list[str]]:
        return [[str(number) for number in range(self._number)]] * 3

    def _committed(self) -> list[list[str]]:
        return [read_committed(self._bootstrap, self.topic, partition) for partition in range(3)]


def coordination_went_on(cluster: MixedCluster, sessions: dict[int, int]) -> bool:
    """Whether every broker's registration still belongs to the session that it had."""
    try:
        return {member.broker_id: owner(cluster, member.broker_id) for member in cluster.members} == sessions
    except KazooException:
        return False


def owner(cluster: MixedCluster, broker_id: int) -> int:
    return cluster.znodes.get(f"/brokers/ids/{broker_id}")[1].ephemeralOwner


@pytest.mark.parametrize("on", [APACHES, OURS] if is_long() else [APACHES])
def test_a_cluster_moves_to_ours_and_back_and_no_client_notices(tmp_path: Path, on: str) -> None:
    """Every broker and the coordination server change their kind twice, under idempotent
    load with groups reading."""
    with mixed_cluster(tmp_path, [APACHES] * 3, on=on) as cluster:
        config = {"min.insync.replicas": "2"}
        for made in cluster.admin.create_topics(
            [NewTopic(name, 3, 3, config=config) for name in ("orders", "java", "transfers")]
        ).values():
            made.result(60)
        transfers = Transfers(cluster.bootstrap, "transfers")
        load = SteadyLoad(cluster.bootstrap, "orders")
        java_load = JavaProducer(cluster.bootstrap, "java", tmp_path)
        members = [
            LibrdkafkaMember(cluster.bootstrap, "orders", "librdkafka"),
            KafkaPythonMember(cluster.bootstrap, "orders", "kafka-python"),
            JavaMember(cluster.bootstrap, "java", "java", tmp_path),
        ]
        try:

            def all_go_on() -> None:
                await_progress(STEPS, load, java_load, *members)
                transfers.go_on()

            all_go_on()
            administrator = Administrator(cluster, "orders")
            move_there_and_back(administrator, on, all_go_on)
            transfers.finish()
        finally:
            load.finish()
            java_load.finish()
            stored = {name: read_all(cluster.bootstrap, name) for name in ("orders", "java")}
            for member in members:
                wanted = len(stored["java" if member.group == "java" else "orders"])
                done = eventually(lambda: len(member.records) >= wanted or member.failures, timeout_s=LIMIT_S)  # noqa: B023  # called at once
                member.finish()
                assert done
        assert (load.failed, java_load.failed) == ([], [])
        assert_exactly_once_in_order(load, stored["orders"], tmp_path)
        assert {number: (partition, offset) for partition, offset, number in stored["java"]} == java_load.acknowledged
        assert len(java_load.acknowledged) == len(stored["java"])
        for member in members:
            assert member.failures == []
            assert member.assignments <= 1, "the group was never rebalanced"
            assert_each_once_in_order(member, stored["java" if member.group == "java" else "orders"])
        assert_groups_committed_all(cluster, stored)
        assert_replicas_are_equal(cluster)
        commands = {command for section in guide().values() for command in section}
        assert commands - administrator.done == set(), "the guide says what no test does"


def move_there_and_back(administrator: Administrator, on: str, all_go_on: Callable[[], None]) -> None:
    cluster = administrator.cluster
    steps = guide()
    administrator.follow(steps["Before you start"])
    controller = cluster.controller
    for broker_id in sorted(range(3), key=lambda broker_id: broker_id == controller):
        administrator.follow(steps["Replace a broker by ours"], broker_id)
        assert cluster.members[broker_id].kind == OURS
        look = administrator.answers["ls -A /var/lib/kafka"]
        assert ".kafka_cleanshutdown" in look, look
        cluster.await_whole()
        all_go_on()
    forth, back = (
        ["bin/zookeeper-server-stop.sh", *steps["The coordination service"][1:3]],
        steps["The coordination service"][3:],
    )
    for commands in [forth, back] if on == APACHES else [back, forth]:
        sessions = {broker_id: owner(cluster, broker_id) for broker_id in range(3)}
        administrator.follow(commands)
        eventually(lambda sessions=sessions: coordination_went_on(cluster, sessions), timeout_s=LIMIT_S)
        all_go_on()
    raise_and_lower_the_version_of_transactions(administrator, steps["Take features back"], all_go_on)
    for broker_id in range(3):
        administrator.follow(steps["Put Apache's back"], broker_id)
        assert cluster.members[broker_id].kind == APACHES
        cluster.await_whole()
        all_go_on()
    ids = json.loads(administrator.answers["bin/zookeeper-shell.sh localhost:2181 ls /brokers/ids"].splitlines()[-1])
    assert sorted(ids) == [0, 1, 2]


def raise_and_lower_the_version_of_transactions(
    administrator: Administrator, commands: list[str], all_go_on: Callable[[], None]
) -> None:
    """A feature is finalized while all brokers are ours, and taken back as the guide says."""
    cluster = administrator.cluster
    upgrade = ("features", "upgrade", "--feature", "transaction.version=2")
    assert barnabas(*upgrade, "--bootstrap-server", cluster.bootstrap).returncode == 0
    assert cluster.read("/feature")["features"] == {"transaction.version": {"max_version_level": 2}}
    all_go_on()
    administrator.follow(commands)
    assert "FinalizedVersionLevel: 2" in administrator.answers[commands[0]]
    assert cluster.read("/feature")["features"] == {}
    all_go_on()


def assert_groups_committed_all(cluster: MixedCluster, stored: dict[str, list[tuple[int, int, int]]]) -> None:
    """The groups' offsets stand at the ends of their partitions, as Apache's tool sees them."""
    done = apache_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", cluster.bootstrap, "--describe", "--all-groups"),
    )
    lags = re.findall(r"^(\S+)\s+(orders|java)\s+\d+\s+(\d+)\s+(\d+)\s+(\d+)\s", done.stdout, re.MULTILINE)
    assert {(group, int(lag)) for group, _, _, _, lag in lags} == {("librdkafka", 0), ("kafka-python", 0), ("java", 0)}
    assert len(lags) == 9, done.stdout
    for topic, records in stored.items():
        groups = len({group for group, name, *_ in lags if name == topic})
        assert sum(int(offset) for _, name, offset, *_ in lags if name == topic) == groups * len(records)


def assert_replicas_are_equal(cluster: MixedCluster) -> None:
    """Bytes, leader epochs and what Apache's DumpLogSegments makes of them, on all three."""
    for topic, partitions in {"orders": 3, "java": 3, "transfers": 3, "__consumer_offsets": 50}.items():
        cluster.await_equal_logs(topic, partitions)
        for partition in range(partitions):
            epochs = cluster.epochs(topic, partition)
            assert epochs[0] == epochs[1] == epochs[2], f"leader epochs of {topic}-{partition}"
    dumps = [cluster.dump(broker_id, "orders", 3) for broker_id in range(3)]
    assert dumps[0] == dumps[1] == dumps[2]
