"""Reads the brokers' znodes by a session: how long lists are, and who registered when.

In ZooKeeper: `ZooKeeper.getChildren`, `exists`, `getACL`. In Kafka: `ZkData`.
"""

import json
from contextlib import suppress
from typing import Any

from barnabas.broker.cluster.znodes import BROKER_IDS, BROKER_TOPICS, broker_path, topic_path
from barnabas.coordination.client import ConnectString
from barnabas.coordination.client.connection import CoordinationClient
from barnabas.coordination.client.operations import exists, get, get_acl, get_children
from barnabas.doctor.evidence.cluster import TopicsPart
from barnabas.doctor.evidence.coordination import Registration, ZnodeList, ZnodesPart
from barnabas.doctor.evidence.part import Absent, Gap, Why
from barnabas.doctor.reading.ensemble import coordination_place, in_session
from barnabas.doctor.reading.registration import ClusterReading, reads
from barnabas.wire.jute.errors import KeeperError

__all__ = ["read_znodes"]

_LISTS = (
    BROKER_TOPICS,
    "/config/topics",
    "/config/users",
    "/config/clients",
    "/admin/delete_topics",
    "/kafka-acl/Topic",
    "/kafka-acl/Group",
)
_OF_USERS = ("/kafka-acl", "/config/users", BROKER_TOPICS, "/config/topics")
_REPLY_BYTES, _STAT_BYTES, _PREFIX_BYTES = 20, 68, 4
"""Of an answer with children: header and count, stat, and the length before each name."""
_MOST_TOPICS = 10
_READ = 1
_ANYONE = ("world", "anyone")


@reads()
def read_znodes(reading: ClusterReading) -> ZnodesPart:
    """The lists that grow, the largest znodes of topics, the registrations, the open ACLs."""
    place = coordination_place(reading)
    topics = reading.get(TopicsPart)
    names = [] if isinstance(topics, Absent) else sorted(topics.topics, key=lambda each: -len(each.partitions))
    largest = [topic_path(each.name) for each in names[:_MOST_TOPICS]]

    async def read(client: CoordinationClient) -> ZnodesPart:
        return await _read(client, place, largest)

    return in_session(reading, place, read)


async def _read(client: CoordinationClient, place: ConnectString, largest: list[str]) -> ZnodesPart:
    def full(path: str) -> str:
        return f"{place.chroot}{path}"

    gaps = []
    children = await client.batch([get_children(full(path)) for path in (*_LISTS, BROKER_IDS)])
    stats = await client.batch([exists(full(path)) for path in largest])
    acls = await client.batch([get_acl(full(path)) for path in _OF_USERS])
    lists = {}
    for path, found in zip(_LISTS, children[:-1], strict=True):
        if not isinstance(found, Exception):
            names, _ = found
            size = sum(len(name.encode()) + _PREFIX_BYTES for name in names)
            lists[path] = ZnodeList(len(names), _REPLY_BYTES + _STAT_BYTES + size)
        elif gap := _gap(path, found):
            gaps.append(gap)
    ids = [] if isinstance(children[-1], Exception) else [each for each in children[-1][0] if each.isdecimal()]
    if isinstance(children[-1], Exception) and (gap := _gap(BROKER_IDS, children[-1])):
        gaps.append(gap)
    registered = await client.batch([get(full(broker_path(int(each)))) for each in ids])
    writable = []
    for path, found in zip(_OF_USERS, acls, strict=True):
        if not isinstance(found, Exception) and _is_writable(found[0]):
            writable.append(path)
    return ZnodesPart(
        lists=lists,
        data_bytes={
            path: stat.data_length
            for path, stat in zip(largest, stats, strict=True)
            if stat is not None and not isinstance(stat, Exception)
        },
        registrations=tuple(
            Registration(int(each), _timestamp(found[0]), found[1].ctime, found[1].ephemeral_owner)
            for each, found in zip(ids, registered, strict=True)
            if not isinstance(found, Exception)
        ),
        writable=tuple(writable),
        gaps=tuple(gaps),
    )


def _gap(path: str, error: Exception) -> Gap | None:
    """None for a znode that is not there."""
    if isinstance(error, KeeperError) and error.code.name == "NO_NODE":
        return None
    if isinstance(error, KeeperError) and error.code.name == "NO_AUTH":
        return Gap(path, Absent(Why.NO_RIGHT, "the session may not read it: give --zk-tls-config-file"))
    return Gap(path, Absent(Why.UNREACHABLE, str(error)))


def _is_writable(acl: Any) -> bool:
    return any((each.id.scheme, each.id.id) == _ANYONE and each.perms & ~_READ for each in acl)


def _timestamp(data: bytes | None) -> int | None:
    """The broker's time in its registration, in ms."""
    with suppress(ValueError, TypeError, KeyError):
        value = json.loads(data or b"")
        return int(value["timestamp"])
    return None
