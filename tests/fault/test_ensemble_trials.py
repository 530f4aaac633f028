"""Brokers on an ensemble whose members are killed in turn, the leader first, under an idempotent acks=all load.

``BARNABAS_KILLS`` sets how many members are killed (default 3).
"""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from barnabas.client.admin_connection import AdminConnection
from barnabas.client.topics import create_topic
from barnabas.testing import ProcessCluster
from support.load import PARTITIONS, Load, assert_exactly_once_in_order, read_all
from support.waiting import eventually

KILLS = int(os.environ.get("BARNABAS_KILLS", "3"))
BROKERS = 3
pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(180 + 60 * KILLS)]


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


def test_brokers_keep_their_sessions_and_records_while_members_are_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """No broker registers again, no record is lost or doubled, and topics are made while a member is away."""
    with ProcessCluster(BROKERS, zk_servers=3, data_dir=tmp_path) as cluster:
        with AdminConnection(cluster.bootstrap_servers) as admin:
            create_topic(admin, "load", partitions=PARTITIONS, replication_factor=3)
        client = KazooClient(cluster.zookeeper_connect, timeout=20, connection_retry={"max_tries": -1, "delay": 0.02})
        client.start(30)
        before = registrations(client)
        assert len(before) == BROKERS
        load = Load(cluster.bootstrap_servers, "load")
        load.goes_on(500, "the load begins")
        gaps = []
        for number in range(KILLS):
            leader, follower = leader_and_follower(cluster)
            victim = follower if number % 3 == 2 else leader
            cluster.kill_zookeeper(victim)
            gaps.append((victim == leader, seconds_without_writes(client, f"/killed-{number}")))
            with AdminConnection(cluster.bootstrap_servers) as admin:
                create_topic(admin, f"made-{number}", partitions=1, replication_factor=3)
            load.goes_on(500, "the load goes on")
            cluster.start_zookeeper(victim)
        load.finish()
        client.sync("/")
        assert registrations(client) == before
        client.stop()
        client.close()
        assert load.failed == []
        assert_exactly_once_in_order(load, read_all(cluster.bootstrap_servers, "load"))
        for role, led in (("leader", True), ("follower", False)):
            gaps_s = [round(gap_s, 2) for was_leader, gap_s in gaps if was_leader is led]
            record_property(f"seconds without writes after a {role}'s death", gaps_s)
        print("seconds until a write was acknowledged:", gaps)
