"""Servers under a load of topics, groups, producers and connections that come and go:
their memory does not grow.

A round makes a topic, produces to it, reads it in a group that commits, opens connections, and
removes all of it again. What a round leaves behind for good is a leak. The first rounds fill caches
and arenas, so growth is counted from the end of the first third on.
"""

import socket
import time
from collections.abc import Callable
from os import environ
from pathlib import Path
from statistics import median

import pytest

from barnabas.client import Consumer, Producer
from barnabas.client.admin.topics import create_topic, delete_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing.processes import ProcessCluster
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from support.raw import ask
from support.waiting import eventually

MINUTES = float(environ.get("BARNABAS_MINUTES", "0.2"))
pytestmark = [pytest.mark.fault, pytest.mark.timeout(MINUTES * 60 + 600)]
GROWTH = 1.1
SLACK_MIB = 6
"""What one full arena and one buffer of the allocator are: at 40 MiB in all, 10% are
little more than that."""
_SETTINGS = {
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "log.retention.bytes": "800000",
    "log.segment.bytes": "400000",
    "offsets.topic.num.partitions": "4",
    "producer.id.expiration.ms": "10000",
}
_CONNECTIONS = 20
_RECORDS = 200


def resident_mib(pid: int) -> float:
    """The memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def one_round(number: int, bootstrap: str, admin: AdminConnection) -> None:
    """Make a topic, use it, and remove it."""
    topic, group = f"topic-{number}", f"group-{number}"
    ports = [int(server.rpartition(":")[2]) for server in bootstrap.split(",")]
    create_topic(admin, topic, partitions=4, replication_factor=min(3, len(ports)))
    with Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}) as producer:
        producer.send_many(topic, ["v" * 100] * _RECORDS)
        producer.send_many("steady", ["v" * 1000] * _RECORDS)
    with Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        read = 0
        while read < _RECORDS:
            read += len(consumer.consume(_RECORDS, timeout_s=30))
        consumer.commit()
    for index in range(_CONNECTIONS):
        ask(ports[index % len(ports)], ApiVersionsRequest(), 2)
        with socket.create_connection(("127.0.0.1", ports[index % len(ports)]), 30) as silent:
            silent.sendall(b"\0\0")

    def group_is_deleted() -> bool:
        found = ask(ports[0], FindCoordinatorRequest(key=group, key_type=0), 2)
        if found.error_code:
            return False
        response = ask(found.port, DeleteGroupsRequest(groups_names=[group]), 1)
        return response.results[0].error_code == 0

    eventually(group_is_deleted, timeout_s=60, what=f"{group} is deleted")
    delete_topics(admin, [topic])


def test_memory_does_not_grow_while_topics_groups_and_connections_come_and_go(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Three brokers and their coordination server, from the end of the first third
    to the end: at most 10%."""
    sizes: dict[str, list[float]] = {}
    with (
        ProcessCluster(3, settings=_SETTINGS, data_dir=tmp_path) as cluster,
        AdminConnection(cluster.bootstrap_servers, {"request.timeout.ms": "60000"}) as admin,
    ):
        create_topic(admin, "steady", partitions=3, replication_factor=3)
        began, number = time.monotonic(), 0
        times: list[float] = []
        while time.monotonic() - began < MINUTES * 60 or number < 6:
            one_round(number, cluster.bootstrap_servers, admin)
            number += 1
            times.append(time.monotonic() - began)
            for name, pid in cluster.pids.items():
                sizes.setdefault(name, []).append(resident_mib(pid))
    third = next(index for index, at in enumerate(times) if at >= times[-1] / 3)
    width = max(1, len(times) // 10)
    rows, grown = [], []
    for name, found in sorted(sizes.items()):
        before, after = median(found[third : third + width]), median(found[-width:])
        rows.append(f"{name}: {found[0]:.1f}, {before:.1f}, {after:.1f} MiB")
        if after > max(GROWTH * before, before + SLACK_MIB):
            grown.append(rows[-1])
    record_property("rounds", f"{number} in {times[-1]:.0f} s")
    record_property("memory after the first round, a third, all", "; ".join(rows))
    print(number, "rounds", f"{times[-1]:.0f} s", *rows, sep="\n")
    assert grown == []
