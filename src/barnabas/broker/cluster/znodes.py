"""The znodes of a Kafka cluster: their paths and contents, as Apache Kafka 3.9
writes them in ZooKeeper mode.

Contents are JSON with Apache's keys, versions and key order, so that either kind of broker reads
the other's. Decoders take what older versions wrote too, and raise `ZnodeFormatError` for anything
else: a znode is written by any client of the ensemble, so its bytes are not to be trusted. A znode
without data holds ``None``.

In Kafka: `ZkData`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.base.errors import ConfigError, CorruptDataError
from barnabas.base.ids import TopicPartition, Uuid, uuid_from_text, uuid_text
from barnabas.base.tasks import Task, done_here

__all__ = [
    "ADMIN_DELETE_TOPICS",
    "BROKER_IDS",
    "BROKER_SEQUENCE",
    "BROKER_TOPICS",
    "CLUSTER_ID",
    "CONFIG",
    "CONFIG_CHANGES",
    "CONFIG_CHANGE_PREFIX",
    "CONTROLLER",
    "CONTROLLER_EPOCH",
    "DEFAULT_ENTITY",
    "FEATURE",
    "ISR_CHANGES",
    "LOG_DIR_EVENTS",
    "MAX_ASSIGNMENT_BYTES",
    "NO_LEADER",
    "PREFERRED_ELECTION",
    "PRODUCER_IDS",
    "REASSIGN_PARTITIONS",
    "TOP_LEVEL_PATHS",
    "BrokerInfo",
    "Endpoint",
    "LeaderAndIsr",
    "LeaderIsrAndControllerEpoch",
    "ProducerIdBlock",
    "ReplicaAssignment",
    "TopicAssignment",
    "ZnodeFormatError",
    "broker_path",
    "config_path",
    "decode_broker",
    "decode_cluster_id",
    "decode_config",
    "decode_config_change",
    "decode_controller",
    "decode_controller_epoch",
    "decode_log_dir_event",
    "decode_partition_state",
    "decode_partitions",
    "decode_producer_ids",
    "decode_reassignments",
    "decode_topic",
    "decode_topic_in_slices",
    "delete_topic_path",
    "encode_broker",
    "encode_cluster_id",
    "encode_config",
    "encode_config_change",
    "encode_controller",
    "encode_controller_epoch",
    "encode_log_dir_event",
    "encode_partition_state",
    "encode_partitions",
    "encode_producer_ids",
    "encode_reassignments",
    "encode_topic",
    "encode_topic_in_slices",
    "partition_path",
    "partition_state_path",
    "partitions_path",
    "topic_path",
]

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
BROKER_SEQUENCE = "/brokers/seqid"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
FEATURE = "/feature"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
ADMIN_DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
PRODUCER_IDS = "/latest_producer_id_block"
DEFAULT_ENTITY = "<default>"
"""The name under ``/config/brokers`` of what holds for every broker."""

TOP_LEVEL_PATHS = (
    "/consumers",
    BROKER_IDS,
    BROKER_TOPICS,
    CONFIG_CHANGES,
    ADMIN_DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""Persistent znodes that every broker makes sure of when it starts."""

MAX_ASSIGNMENT_BYTES = 1_000_000
"""The most that a topic's znode may have. A coordination server ends the connection of a request
with more bytes than jute.maxbuffer, which is 1,048,575 unless it is changed."""

NO_LEADER = -1
_RECOVERED = 0
_PARTITIONS = b'"partitions":{'
_PARTITION = re.compile(rb'"([0-9]{1,10})":\[([0-9,]*)\](?:,(?=")|\Z)')
_MAX_INT = 2**31 - 1


class ZnodeFormatError(CorruptDataError):
    """A znode whose contents are not what Kafka writes there."""


class Endpoint(NamedTuple):
    """Where a broker listens: one of its advertised listeners."""

    host: str
    port: int
    listener: str
    security_protocol: str

    def text(self) -> str:
        """``LISTENER://host:port``, an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as it registered.

    ``epoch`` is the znode's czxid (KIP-380), -1 before it is known."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    epoch: int = -1
    features: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener by its name."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


class ReplicaAssignment(NamedTuple):
    """A partition's replicas, the preferred leader first.

    The last two are those of a reassignment under way. While one is, ``replicas`` are those that
    stay or come, in the order wanted, and then those that go.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when the reassignment is done."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment began, as far as their order is still known."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    def reassigned(self, target: Iterable[int]) -> "ReplicaAssignment":
        """The assignment on its way to ``target``, whatever way it was on before."""
        # Dicts, not tuples, to look into: what is wanted may come from any client, and be long.
        wanted, origin = dict.fromkeys(target), dict.fromkeys(self.origin)
        replicas = tuple(wanted | origin)
        return ReplicaAssignment(
            replicas,
            tuple(replica for replica in replicas if replica not in origin),
            tuple(replica for replica in replicas if replica not in wanted),
        )

    def without(self, replica: int) -> "ReplicaAssignment":
        """The assignment with one replica gone from every list."""
        return ReplicaAssignment(*(tuple(other for other in replicas if other != replica) for replicas in self))


class TopicAssignment(NamedTuple):
    """A topic's znode: its id (None in znodes older than Kafka 2.8) and its
    partitions' assignments."""

    topic_id: Uuid | None
    partitions: dict[int, ReplicaAssignment]


class LeaderAndIsr(NamedTuple):
    """Who leads a partition.

    ``version`` is the state znode's version, which Kafka calls the partition epoch."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery_state: int = _RECOVERED
    version: int = 0

    def with_leader(self, leader: int, isr: Iterable[int] | None = None) -> "LeaderAndIsr":
        """The next leader epoch, under ``leader`` (or `NO_LEADER`)."""
        return self._replace(
            leader=leader, leader_epoch=self.leader_epoch + 1, isr=self.isr if isr is None else tuple(isr)
        )


class LeaderIsrAndControllerEpoch(NamedTuple):
    """A partition's state znode: its leadership and the epoch of the controller that wrote it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int


class ProducerIdBlock(NamedTuple):
    """Producer ids ``first`` to ``last``, both included, given to one broker."""

    broker: int
    first: int
    last: int


def broker_path(broker: int) -> str:
    """The registration of a broker."""
    return f"{BROKER_IDS}/{broker}"


def topic_path(topic: str) -> str:
    """A topic's id and assignment."""
    return f"{BROKER_TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{BROKER_TOPICS}/{topic}/partitions"


def partition_path(topic_partition: TopicPartition) -> str:
    """The parent of a partition's state."""
    return f"{BROKER_TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}"


def partition_state_path(topic_partition: TopicPartition) -> str:
    """Who leads a partition."""
    return f"{BROKER_TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}/state"


def config_path(entity_type: str, entity: str) -> str:
    """``entity_type`` is ``topics``, ``brokers``, ``clients``, ``users`` or ``ips``."""
    return f"{CONFIG}/{entity_type}/{entity}"


def delete_topic_path(topic: str) -> str:
    """The place of a topic in the queue of deletions."""
    return f"{ADMIN_DELETE_TOPICS}/{topic}"


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _load(what: str, data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"null")
    except (ValueError, RecursionError) as error:
        raise ZnodeFormatError(f"{what} is not JSON: {bytes(data or b'')[:200]!r}") from error
    if not isinstance(value, dict):
        raise ZnodeFormatError(f"{what} is not a JSON object: {bytes(data or b'')[:200]!r}")
    return value


def _int(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -_MAX_INT - 1 <= value <= _MAX_INT:
        raise ZnodeFormatError(f"{what} is not a 32-bit integer: {value!r}")
    return value


def _ints(what: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ZnodeFormatError(f"{what} is not a list: {value!r}")
    for item in value:  # in place: a topic's znode has tens of thousands of them
        if type(item) is not int or not -_MAX_INT - 1 <= item <= _MAX_INT:
            _int(what, item)
    return tuple(value)


# Brokers


def encode_broker(info: BrokerInfo, timestamp_ms: int) -> bytes:
    """Version 5.

    ``host`` and ``port`` are those of the first PLAINTEXT listener, for clients older than 0.9."""
    plaintext = next((end for end in info.endpoints if end.security_protocol == "PLAINTEXT"), None)
    value: dict[str, Any] = {
        "features": {name: dict(versions) for name, versions in info.features.items()},
        "listener_security_protocol_map": {end.listener: end.security_protocol for end in info.endpoints},
        "endpoints": [end.text() for end in info.endpoints],
        "jmx_port": info.jmx_port,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "version": 5,
        "timestamp": str(timestamp_ms),
    }
    if info.rack is not None:
        value["rack"] = info.rack
    return _dump(value)


def decode_broker(broker: int, data: bytes | None, epoch: int) -> BrokerInfo:
    """Versions 1 to 5; ``epoch`` is the znode's czxid."""
    what = f"The registration of broker {broker}"
    value = _load(what, data)
    if _int(f"{what}: version", value.get("version")) < 2:
        endpoints: tuple[Endpoint, ...] = (
            Endpoint(str(value.get("host")), _int(f"{what}: port", value.get("port")), "PLAINTEXT", "PLAINTEXT"),
        )
    else:
        protocols = value.get("listener_security_protocol_map") or {}
        texts = value.get("endpoints")
        if not isinstance(texts, list) or not isinstance(protocols, dict):
            raise ZnodeFormatError(f"{what} has no endpoints: {bytes(data or b'')[:200]!r}")
        endpoints = tuple([_endpoint(what, text, protocols) for text in texts])
    rack = value.get("rack")
    features = value.get("features")
    return BrokerInfo(
        broker,
        endpoints,
        None if rack is None else str(rack),
        _int(f"{what}: jmx_port", value.get("jmx_port", -1)),
        epoch,
        features if isinstance(features, dict) else {},
    )


def _endpoint(what: str, text: Any, protocols: Mapping[str, Any]) -> Endpoint:
    listener, scheme, address = str(text).partition("://")
    host, colon, port = address.rpartition(":")
    if not scheme or not colon or not port.lstrip("-").isdecimal():
        raise ZnodeFormatError(f"{what}: {text!r} is not an endpoint of the form LISTENER://host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Endpoint(host, int(port), listener.upper(), str(protocols.get(listener, listener)))


def encode_cluster_id(cluster_id: str) -> bytes:
    """Version 1."""
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    """The cluster's id."""
    cluster_id = _load(CLUSTER_ID, data).get("id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise ZnodeFormatError(f"{CLUSTER_ID} has no id: {bytes(data or b'')[:200]!r}")
    return cluster_id


def encode_controller(broker: int, timestamp_ms: int) -> bytes:
    """Version 2, of a controller in ZooKeeper mode."""
    return _dump({"version": 2, "brokerid": broker, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes | None) -> int:
    """The id of the broker that is controller."""
    return _int("/controller: brokerid", _load(CONTROLLER, data).get("brokerid"))


def encode_controller_epoch(epoch: int) -> bytes:
    """Plain digits."""
    return b"%d" % epoch


def decode_controller_epoch(data: bytes | None) -> int:
    """The number of controllers elected so far."""
    try:
        return int(data or b"")
    except ValueError as error:
        raise ZnodeFormatError(f"{CONTROLLER_EPOCH} has no number: {data!r}") from error


# Topics


def encode_topic(topic_id: Uuid | None, partitions: Mapping[int, ReplicaAssignment]) -> bytes:
    """Version 3, with the topic's id (KIP-516).

    20,000 partitions take 6 ms, half of what json takes for them."""
    return done_here(encode_topic_in_slices(topic_id, partitions))


def encode_topic_in_slices(topic_id: Uuid | None, partitions: Mapping[int, ReplicaAssignment]) -> Task[bytes]:
    """Like `encode_topic`, with a slice of less than 1 us for each partition."""
    texts: dict[tuple[int, ...], str] = {}
    current: list[str] = []
    moving: list[tuple[int, ReplicaAssignment]] = []
    for index in sorted(partitions):
        yield None
        assignment = partitions[index]
        replicas = assignment.replicas
        if assignment.is_reassigning:
            moving.append((index, assignment))
        # A cluster has few brokers, so many partitions have the same ones.
        text = texts.get(replicas)
        if text is None:
            text = texts[replicas] = ",".join(map(str, replicas))
        current.append(f'"{index}":[{text}]')
    adding = {str(index): adding for index, (_, adding, _) in moving if adding}
    removing = {str(index): removing for index, (_, _, removing) in moving if removing}
    id_field = "" if topic_id is None else f'"topic_id":"{uuid_text(topic_id)}",'
    return b'{"partitions":{%b},%b"adding_replicas":%b,"removing_replicas":%b,"version":3}' % (
        ",".join(current).encode(),
        id_field.encode(),
        _dump(adding),
        _dump(removing),
    )


def decode_topic(topic: str, data: bytes | None) -> TopicAssignment:
    """Versions 1 to 3."""
    return done_here(decode_topic_in_slices(topic, data))


def decode_topic_in_slices(topic: str, data: bytes | None) -> Task[TopicAssignment]:
    """Like `decode_topic`, with a slice of less than 1 us for each partition."""
    what = f"The assignment of topic {topic}"
    rest, plain = yield from _plain_partitions(what, data or b"")
    value = _load(what, rest)
    if plain and value.get("partitions") != {}:  # they were another field's
        plain, value = None, _load(what, data)
    parts = [value.get(key) or {} for key in ("partitions", "adding_replicas", "removing_replicas")]
    if not all(isinstance(part, dict) for part in parts):
        raise ZnodeFormatError(f"{what} is malformed: {bytes(data or b'')[:200]!r}")
    current, adding, removing = parts
    partitions: dict[int, ReplicaAssignment] = plain or {}
    for name, replicas in current.items():
        yield None
        if not name.isdecimal() or len(name) > 10:
            raise ZnodeFormatError(f"{what}: {name!r} is not a partition number")
        partitions[int(name)] = ReplicaAssignment(_ints(what, replicas))
    for field_number, moving in ((1, adding), (2, removing)):
        for name, replicas in moving.items():
            yield None
            number = int(name) if name.isdecimal() and len(name) <= 10 else -1
            if number in partitions:
                fields = list(partitions[number])
                fields[field_number] = _ints(what, replicas)
                partitions[number] = ReplicaAssignment(*fields)
    text = value.get("topic_id")
    try:
        topic_id = None if text is None else uuid_from_text(str(text))
    except ConfigError as error:
        raise ZnodeFormatError(f"{what}: {error}") from error
    return TopicAssignment(topic_id, partitions)


def _plain_partitions(what: str, data: bytes) -> Task[tuple[bytes, dict[int, ReplicaAssignment] | None]]:
    """The partitions of a znode in the form in which controllers write it, and the rest of the
    znode; None in other forms.

    To make Python objects of the JSON of 20,000 partitions takes 6 to 10 ms that
    cannot be interrupted.
    """
    start = data.find(_PARTITIONS) + len(_PARTITIONS)
    end = data.find(b"}", start)
    if start < len(_PARTITIONS) or end < 0 or b'"partitions"' in data[end:]:
        return data, None
    partitions: dict[int, ReplicaAssignment] = {}
    # A cluster has few brokers, so many partitions have the same ones.
    shared: dict[bytes, ReplicaAssignment] = {}
    position = start
    for entry in _PARTITION.finditer(data, start, end):
        yield None
        if entry.start() != position:
            return data, None
        position = entry.end()
        name, text = entry.groups()
        assignment = shared.get(text)
        if assignment is None:
            assignment = shared[text] = ReplicaAssignment(
                _ints(what, _load(what, b'{"replicas":[%b]}' % text)["replicas"])
            )
        partitions[int(name)] = assignment
    return (data[:start] + data[end:], partitions) if position == end else (data, None)


def encode_partition_state(state: LeaderAndIsr, controller_epoch: int) -> bytes:
    """Version 1. The recovery state is written only if it is not RECOVERED."""
    recovery = "" if state.recovery_state == _RECOVERED else f',"leader_recovery_state":{state.recovery_state}'
    isr = ",".join(map(str, state.isr))
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]{recovery}}}'
    ).encode()


def decode_partition_state(what: str, data: bytes | None, version: int) -> LeaderIsrAndControllerEpoch:
    """``what`` is the znode's path, for errors; ``version`` its version."""
    value = _load(what, data)
    return LeaderIsrAndControllerEpoch(
        LeaderAndIsr(
            _int(what, value.get("leader")),
            _int(what, value.get("leader_epoch")),
            _ints(what, value.get("isr")),
            _int(what, value.get("leader_recovery_state", _RECOVERED)),
            version,
        ),
        _int(what, value.get("controller_epoch")),
    )


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """A set of partitions: an ISR change notification, or a request for preferred leaders."""
    return _dump({"version": 1, "partitions": [{"topic": p.topic, "partition": p.partition} for p in partitions]})


def decode_partitions(what: str, data: bytes | None) -> list[TopicPartition]:
    """The reverse of `encode_partitions`."""
    items = _load(what, data).get("partitions")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ZnodeFormatError(f"{what} names no partitions: {bytes(data or b'')[:200]!r}")
    return [TopicPartition(str(item.get("topic")), _int(what, item.get("partition"))) for item in items]


def encode_reassignments(targets: Mapping[TopicPartition, Iterable[int]]) -> bytes:
    """Version 1: the reassignments in ``/admin/reassign_partitions``, which tools
    older than Kafka 2.4 write."""
    partitions = [{"topic": p.topic, "partition": p.partition, "replicas": list(r)} for p, r in targets.items()]
    return _dump({"version": 1, "partitions": partitions})


def decode_reassignments(what: str, data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """The reverse of `encode_reassignments`."""
    items = _load(what, data).get("partitions")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ZnodeFormatError(f"{what} names no partitions: {bytes(data or b'')[:200]!r}")
    return {
        TopicPartition(str(item.get("topic")), _int(what, item.get("partition"))): _ints(what, item.get("replicas"))
        for item in items
    }


def encode_log_dir_event(broker: int) -> bytes:
    """One of the broker's log dirs failed."""
    return _dump({"version": 1, "broker": broker, "event": 1})


def decode_log_dir_event(what: str, data: bytes | None) -> int:
    """The broker one of whose log dirs failed."""
    return _int(what, _load(what, data).get("broker"))


# Configurations


def encode_config(texts: Mapping[str, str]) -> bytes:
    """Version 1."""
    return _dump({"version": 1, "config": dict(texts)})


def decode_config(what: str, data: bytes | None) -> dict[str, str]:
    """Property texts; a znode without data or config holds none."""
    if not data:
        return {}
    config = _load(what, data).get("config") or {}
    if not isinstance(config, dict) or not all(isinstance(value, str) for value in config.values()):
        raise ZnodeFormatError(f"{what} has no texts: {bytes(data)[:200]!r}")
    return config


def encode_config_change(entity_path: str) -> bytes:
    """``entity_path`` is ``topics/NAME`` or ``brokers/ID``, for instance."""
    return _dump({"version": 2, "entity_path": entity_path})


def decode_config_change(what: str, data: bytes | None) -> str:
    """The entity's path below ``/config``; versions 1 and 2."""
    value = _load(what, data)
    if value.get("version") == 1:
        return f"{value.get('entity_type')}/{value.get('entity_name')}"
    path = value.get("entity_path")
    if not isinstance(path, str) or "/" not in path:
        raise ZnodeFormatError(f"{what} names no entity: {bytes(data or b'')[:200]!r}")
    return path


# Producer ids


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Version 1."""
    value = {"version": 1, "broker": block.broker, "block_start": str(block.first), "block_end": str(block.last)}
    return _dump(value)


def decode_producer_ids(data: bytes | None) -> ProducerIdBlock:
    """The block that was given out last."""
    value = _load(PRODUCER_IDS, data)
    try:
        first, last = int(str(value.get("block_start"))), int(str(value.get("block_end")))
    except ValueError as error:
        raise ZnodeFormatError(f"{PRODUCER_IDS} has no block of producer ids: {bytes(data or b'')[:200]!r}") from error
    return ProducerIdBlock(_int(PRODUCER_IDS, value.get("broker")), first, last)
