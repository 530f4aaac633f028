"""Brokers on an ensemble whose members are killed in turn, the leader first, under an
idempotent acks=all load.

``BARNABAS_KILLS`` sets how many members are killed (default 3).
"""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from barnabas.client.admin.topics import create_topic
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing import ProcessCluster
from support.ensemble import ensemble
from support.knowing import members_known
from support.load import PARTITIONS, Load, assert_exactly_once_in_order, read_all
from support.mixed import OURS, MixedCluster
from support.needs import needs_reference
from support.ports import free_ports
from support.waiting import eventually

KILLS = int(os.environ.get("BARNABAS_KILLS", "3"))
BROKERS = 3
pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(600 + 60 * KILLS)]


def mode(cluster: ProcessCluster, server_id: int) -> str:
    """leader, follower, or nothing while the server does not serve."""
    host, _, port = cluster.zookeeper_connect.split(",")[server_id - 1].partition(":")
    try:
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.sendall(b"srvr")
            text = connection.makefile("rb").read().decode()
    except OSError:
        return ""
    return next((line.removeprefix("Mode: ") for line in text.splitlines() if line.startswith("Mode: ")), "")


def leader_and_follower(cluster: ProcessCluster) -> tuple[int, int]:
    """Once all three serve."""
    modes = eventually(
        lambda: (found := {n: mode(cluster, n) for n in (1, 2, 3)}) and all(found.values()) and found,
        timeout_s=60,
        what="all members serve",
    )
    (leader,) = (n for n, each in modes.items() if each == "leader")
    return leader, min(modes.keys() - {leader})


def registrations(client: KazooClient) -> dict[str, int]:
    """The zxid of each broker's registration: another one is another session."""
    return {name: client.exists(f"/brokers/ids/{name}").czxid for name in client.get_children("/brokers/ids")}


def seconds_without_writes(client: KazooClient, path: str) -> float:
    """Create until a server acknowledges."""
    began = time.monotonic()
    while True:
        try:
            client.create(path, b"", makepath=True)
        except KazooException:
            time.sleep(0.01)
        else:
            return time.monotonic() - began


def check_while_members_are_killed(
    directory: Path,
    bootstrap: str,
    zookeeper: str,
    kills: int,
    roles: Callable[[], tuple[int, int]],
    kill: Callable[[int], None],
    start: Callable[[int], None],
) -> dict[str, list[float]]:
    """Kill the leader, again and again, and each third time a follower; how long no write
    was acknowledged, by role.

    The brokers' log dirs are below ``directory``. ``roles`` returns the ids of the leader and a
    follower once all members serve.
    """
    with AdminConnection(bootstrap) as admin:
        create_topic(admin, "load", partitions=PARTITIONS, replication_factor=3)
    client = KazooClient(zookeeper, timeout=20, connection_retry={"max_tries": -1, "delay": 0.02})
    client.start(30)
    before = registrations(client)
    assert len(before) == BROKERS
    load = Load(bootstrap, "load")
    load.goes_on(500, "the load begins")
    gaps_s: dict[str, list[float]] = {"leader": [], "follower": []}
    for number in range(kills):
        leader, follower = roles()
        role, victim = ("follower", follower) if number % 3 == 2 else ("leader", leader)
        kill(victim)
        gaps_s[role].append(round(seconds_without_writes(client, f"/killed-{number}"), 2))
        with AdminConnection(bootstrap) as admin:
            create_topic(admin, f"made-{number}", partitions=1, replication_factor=3)
        load.goes_on(500, "the load goes on")
        start(victim)
    load.finish()
    client.sync("/")
    assert registrations(client) == before
    client.stop()
    client.close()
    assert load.failed == []
    assert_exactly_once_in_order(load, read_all(bootstrap, "load"), directory)
    return gaps_s


def test_brokers_keep_their_sessions_and_records_while_members_are_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """No broker registers again, no record is lost or doubled, and topics are made
    while a member is away."""
    with ProcessCluster(BROKERS, zk_servers=3, data_dir=tmp_path) as cluster:
        gaps_s = check_while_members_are_killed(
            tmp_path,
            cluster.bootstrap_servers,
            cluster.zookeeper_connect,
            KILLS,
            lambda: leader_and_follower(cluster),
            cluster.kill_zookeeper,
            cluster.start_zookeeper,
        )
        for role, gaps in gaps_s.items():
            record_property(f"seconds without writes after a {role}'s death", gaps)
        print("seconds until a write was acknowledged:", gaps_s)


@pytest.mark.java
@needs_reference
def test_our_brokers_keep_their_sessions_and_records_on_an_ensemble_of_apaches(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The same on three servers of ZooKeeper 3.9.

    CI kills a leader alone, because its JVM is slow to come back."""
    (tmp_path / "members").mkdir()
    with ensemble(tmp_path / "members", (1, 2, 3), release="3.9", maxClientCnxns=0) as members:

        def roles() -> tuple[int, int]:
            members.until_serving()
            leader = eventually(members.leader, timeout_s=60, what="a member leads").server_id
            return leader, min(members.members.keys() - {leader})

        roles()
        patient = {"zookeeper.session.timeout.ms": "30000"}
        ports = free_ports(BROKERS, consecutive=True)
        with contextlib.closing(
            MixedCluster(tmp_path, SimpleNamespace(address=members.addresses), ports, patient)
        ) as cluster:
            for number in range(BROKERS):
                cluster.launch(number, OURS)
            for number in range(BROKERS):
                cluster.await_registered(number)
            members_known(cluster.bootstrap, BROKERS)
            gaps_s = check_while_members_are_killed(
                tmp_path,
                cluster.bootstrap,
                members.addresses,
                max(1, KILLS // 3),
                roles,
                lambda number: members.members[number].stop(signal.SIGKILL),
                lambda number: members.members[number].start(),
            )
            for role, gaps in gaps_s.items():
                record_property(f"seconds without writes after a {role}'s death (Apache's)", gaps)
