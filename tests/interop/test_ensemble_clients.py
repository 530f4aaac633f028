"""Clients that are not ours on an ensemble of ours, whose leader is killed while they work: one
ensemble for all of them."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, SessionExpiredError
from kazoo.recipe.barrier import DoubleBarrier
from kazoo.recipe.election import Election
from kazoo.recipe.queue import LockingQueue
from kazoo.retry import KazooRetry

from support.ensemble import Ensemble, Member, ensemble
from support.needs import fetching, needs, needs_reference
from support.reference import apache_cluster, apache_command
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

PROGRAMS = Path(__file__).parents[1] / "other_languages"
LIMIT_S = 60


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Three members of ours."""
    with ensemble(tmp_path_factory.mktemp("ensemble"), maxClientCnxns=0) as members:
        members.until_serving()
        yield members


@pytest.fixture
def members(running: Ensemble) -> Ensemble:
    """All three run and serve."""
    for member in running.members.values():
        if member.process is None:
            member.start()
    running.until_serving()
    return running


@contextlib.contextmanager
def program(command: list[object], **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """A stranger's process, with pipes; it ends with the test."""
    process = subprocess.Popen(
        list(map(str, command)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    timer = threading.Timer(2 * LIMIT_S, process.kill)
    timer.start()
    try:
        yield process
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


def until_line(stream: IO[str], text: str) -> str:
    """Read until a line contains a text; all that was read."""
    read = ""
    for line in stream:
        read += line
        if text in line:
            return read
    raise AssertionError(f"the program ended before it printed {text!r}: {read}")


def run_while_the_leader_is_killed(members: Ensemble, *command: object) -> None:
    """The program says that it is ready, the leader is killed, the program gets a
    line, and goes on to its end."""
    with program([*command, members.addresses]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        read = until_line(process.stdout, "ready")
        members.kill_leader()
        process.stdin.write("\n")
        process.stdin.flush()
        rest = process.stdout.read()
        assert process.wait(LIMIT_S) == 0, read + rest


def prepare(command: list[object], directory: Path) -> None:
    """Get the libraries; without a package registry there is nothing to try."""
    done = subprocess.run(
        list(map(str, command)), cwd=directory, capture_output=True, text=True, timeout=240, check=False
    )
    if done.returncode:
        pytest.skip(f"{' '.join(map(str, command))} got no libraries: {done.stdout[-300:]}{done.stderr[-300:]}")


@needs("go")
def test_go_zookeeper_keeps_its_session_watches_and_locks(members: Ensemble, tmp_path: Path) -> None:
    """The library of most Go programs."""
    prepare(["go", "mod", "download"], PROGRAMS / "go")
    binary = tmp_path / "zookeeper"
    subprocess.run(["go", "build", "-o", binary, "./zookeeper"], cwd=PROGRAMS / "go", timeout=240, check=True)
    run_while_the_leader_is_killed(members, binary)


@pytest.mark.java
@needs("java", "mvn")
def test_curators_recipes_work_and_go_on(members: Ensemble) -> None:
    """Locks, latches, atomics, semaphores, barriers, queues, caches and persistent nodes; a lock is
    held when the leader dies."""
    jars = Path.home() / ".cache" / "reference" / "curator-5.7.1"
    source = PROGRAMS / "java" / "curator"
    with fetching():
        if not (jars / "complete").exists():
            options = ["-q", "-B", "-f", source / "pom.xml", f"-DoutputDirectory={jars}"]
            prepare(["mvn", *options, "dependency:copy-dependencies"], source)
            (jars / "complete").touch()
    options = ["-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    run_while_the_leader_is_killed(members, "java", *options, source / "Recipes.java")


@needs("cc", "zookeeper/zookeeper.h")
def test_zookeepers_own_client_in_c_keeps_its_session_and_watches(members: Ensemble, tmp_path: Path) -> None:
    """libzookeeper_mt, under the clients of many languages."""
    binary = tmp_path / "ensemble"
    source = PROGRAMS / "c" / "ensemble.c"
    subprocess.run(["cc", "-DTHREADED", source, "-o", binary, "-lzookeeper_mt"], timeout=60, check=True)
    run_while_the_leader_is_killed(members, binary)


@pytest.mark.java
@needs_reference
def test_zkcli_goes_on_at_another_member(members: Ensemble) -> None:
    """Apache's command line with one session: before the kill, and after it."""
    command = apache_command("tool", "org.apache.zookeeper.ZooKeeperMain", "-server", members.addresses)
    with program(command) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def type_lines(*lines: str) -> None:
            assert process.stdin is not None
            process.stdin.write("".join(f"{line}\n" for line in lines))
            process.stdin.flush()

        # One line after the other: the last one's answer says that the watch is set.
        type_lines("create /cli hello", "stat -w /cli", "create -e /cli/mine x")
        until_line(process.stdout, "Created /cli/mine")
        members.kill_leader()
        with members.client() as client:
            client.retry(client.set, "/cli", b"from another client")
        until_line(process.stdout, "NodeDataChanged path:/cli")
        type_lines("get /cli", "ls /cli", "deleteall /cli", "quit")
        rest = process.stdout.read()
        assert process.wait(LIMIT_S) == 0
    assert "from another client" in rest
    assert "[mine]" in rest
    with members.client() as client:
        client.retry(client.sync, "/")
        assert client.retry(client.exists, "/cli") is None


@contextlib.contextmanager
def kazoo_clients(members: Ensemble, count: int) -> Iterator[list[KazooClient]]:
    """Clients that try again what a lost connection prevents, as kazoo's recipes expect."""
    clients = []
    for _ in range(count):
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5)
        clients.append(KazooClient(members.addresses, timeout=15, connection_retry=retry, command_retry=retry))
    try:
        for client in clients:
            client.start(LIMIT_S)
        yield clients
    finally:
        for client in clients:
            client.stop()
            client.close()


def run_in_threads(works: list[Callable[[], None]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def test_kazoos_recipes_go_on_while_each_member_is_killed_in_turn(members: Ensemble) -> None:
    """Locks let one in at a time, elections pass on, barriers open, no entry of a
    queue is lost, sessions stay."""
    with kazoo_clients(members, 3) as clients:
        sessions = [client.client_id[0] for client in clients]
        for client in clients:
            client.create("/kazoo/members/m-", b"", ephemeral=True, sequence=True, makepath=True)
        clients[0].create("/kazoo/counted", b"0")
        inside: list[int] = []
        overlaps: list[str] = []
        counted: list[KazooClient] = []

        def count(client: KazooClient) -> None:
            for _ in range(12):
                with client.Lock("/kazoo/lock"):
                    inside.append(1)
                    overlaps.extend(["two hold the lock"] if len(inside) > 1 else [])
                    client.retry(client.sync, "/kazoo/counted")
                    number = int(client.retry(client.get, "/kazoo/counted")[0])
                    client.retry(client.set, "/kazoo/counted", str(number + 1).encode())
                    inside.pop()
                    time.sleep(0.02)
            counted.append(client)

        threads = run_in_threads([lambda client=client: count(client) for client in clients])
        for member in list(members.members.values()):  # one of them leads
            time.sleep(0.3)
            member.stop(signal.SIGKILL)
            eventually(lambda: members.leader() is not None, timeout_s=LIMIT_S, what="a member leads")
            member.start()
            members.until_serving()
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
        assert len(counted) == 3, "a thread ended with an error, which pytest shows as a warning"
        assert overlaps == []
        clients[0].retry(clients[0].sync, "/kazoo/counted")
        assert clients[0].retry(clients[0].get, "/kazoo/counted")[0] == b"36"
        assert [client.client_id[0] for client in clients] == sessions
        assert len(clients[0].retry(clients[0].get_children, "/kazoo/members")) == 3
        check_other_recipes(members, clients)


def check_other_recipes(members: Ensemble, clients: list[KazooClient]) -> None:
    """Elections, queues and barriers, with the leader killed in the middle."""
    elected: list[str] = []
    elections = [Election(client, "/kazoo/election", str(number)) for number, client in enumerate(clients)]
    queue = LockingQueue(clients[0], "/kazoo/queue")
    queue.put_all([b"%d" % number for number in range(5)])
    members.kill_leader()
    for thread in run_in_threads(
        [lambda each=each: each.run(elected.append, each.lock.data.decode()) for each in elections]  # type: ignore[misc]
    ):
        thread.join(LIMIT_S)
    assert sorted(elected) == ["0", "1", "2"]
    taker = LockingQueue(clients[1], "/kazoo/queue")
    taken = []
    while len(taken) < 5:
        with contextlib.suppress(ConnectionLoss, ConnectionClosedError, SessionExpiredError):
            entry = taker.get(timeout=10)
            if entry is not None and taker.consume():
                taken.append(entry)
    assert taken == [b"%d" % number for number in range(5)]

    def meet(client: KazooClient) -> None:
        barrier = DoubleBarrier(client, "/kazoo/barrier", 3)
        barrier.enter()
        barrier.leave()

    for thread in run_in_threads([lambda client=client: meet(client) for client in clients]):  # type: ignore[misc]
        thread.join(LIMIT_S)
        assert not thread.is_alive()


@pytest.mark.java
@needs_reference
def test_apache_kafka_keeps_its_brokers_and_records_while_the_leader_is_killed(
    members: Ensemble, tmp_path: Path
) -> None:
    """Three brokers of Apache Kafka 3.9.1: no session is lost, administration and records go on."""
    chroot = f"{members.addresses}/kafka"
    with members.client() as client, apache_cluster(tmp_path, brokers=3, zookeeper=chroot) as cluster:
        owners = {name: registration(client, name) for name in client.retry(client.get_children, "/kafka/brokers/ids")}
        assert sorted(owners) == ["0", "1", "2"]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        make_topic(admin, "before")
        produce(cluster.bootstrap, "before", 500)
        members.kill_leader()
        produce(cluster.bootstrap, "before", 500)
        make_topic(admin, "after")
        produce(cluster.bootstrap, "after", 100)
        for member in members.members.values():
            if member.process is None:
                member.start()
        members.until_serving()
        killed = eventually(lambda: follower_of(members), timeout_s=LIMIT_S, what="a member follows")
        killed.stop(signal.SIGKILL)
        produce(cluster.bootstrap, "before", 500)
        make_topic(admin, "without-a-follower")
        assert consume(cluster.bootstrap, "before", 1500) == 1500
        assert consume(cluster.bootstrap, "after", 100) == 100
        assert {
            name: registration(client, name) for name in client.retry(client.get_children, "/kafka/brokers/ids")
        } == owners
        assert json.loads(client.retry(client.get, "/kafka/controller")[0])["brokerid"] in (0, 1, 2)


def follower_of(members: Ensemble) -> Member | None:
    """A member that follows; there are two, of which one may have been killed."""
    return next((each for each in members.members.values() if each.process and each.mode() == "follower"), None)


def registration(client: KazooClient, name: str) -> int:
    """The zxid that made a broker's znode: another one means that its session was lost."""
    return int(client.retry(client.get, f"/kafka/brokers/ids/{name}")[1].czxid)


def make_topic(admin: AdminClient, name: str) -> None:
    for future in admin.create_topics([NewTopic(name, 3, 3)]).values():
        future.result(LIMIT_S)


def produce(bootstrap: str, topic: str, count: int) -> None:
    """Write records with acks=all; each is acknowledged."""
    errors: list[object] = []
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 1000 * LIMIT_S}
    producer = Producer({**settings, "topic.metadata.refresh.interval.ms": 500})
    for number in range(count):
        producer.produce(topic, str(number), on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(LIMIT_S) == 0
    assert errors == []


def consume(bootstrap: str, topic: str, count: int) -> int:
    """How many of the expected records there are."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    got = 0
    deadline_s = time.monotonic() + LIMIT_S
    while got < count and time.monotonic() < deadline_s:
        message = consumer.poll(1)
        got += message is not None and message.error() is None
    consumer.close()
    return got
