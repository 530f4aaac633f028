"""Apache Kafka 3.9.1 and Barnabas, each with an authorizer, one user without rights and the same
topics, groups and transactional ids; rights that are given and taken back by each one's own APIs;
answers made comparable.

The listener PLAINTEXT is the administrator's, whose principal ANONYMOUS is a super user. The user
under test, ann, logs in to SASL_PLAINTEXT.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from barnabas.base.ids import ZERO_UUID, Uuid
from barnabas.security.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from barnabas.security.plain import plain_message
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.frames import decode_response_header, encode_request
from barnabas.wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.kafka.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.kafka.records.records import Record, build_batch
from barnabas.wire.kafka.schema import Message, Struct
from support.ports import free_ports
from support.raw import receive
from support.reference import apache_cluster, apache_single
from support.servers import Server
from support.waiting import eventually

USER, PASSWORD = "ann", "pw"
PRINCIPAL = f"User:{USER}"
TOPICS = ("orders", "secret")
"""Those that exist, each with one partition and three records."""
GROUPS = ("readers-café", "others")
"""Groups with committed offsets of both topics."""
RUNNING = ("running", "hidden-running")
"""Transactional ids with a transaction that has both topics' partitions and does not end."""
FINISHED = ("payments-café", "hidden-payments")
"""Transactional ids without one."""
_LISTENER = "listener.name.sasl_plaintext."
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    f"{_LISTENER}sasl.enabled.mechanisms": "PLAIN",
    f"{_LISTENER}plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}";',
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
ANY_ACL: dict[str, Any] = {
    "resource_type_filter": ResourceType.ANY,
    "pattern_type_filter": PatternType.ANY,
    **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")),
    "operation": AclOperation.ANY,
    "permission_type": AclPermissionType.ANY,
}
"""A filter for all entries."""
CLOSED = "closed"
"""In place of an answer."""
NO_ANSWER = "no answer"
"""To a Produce request with acks 0; the connection stays."""


def facts(entry: AclCreation) -> tuple[object, ...]:
    """What makes two entries the same."""
    pattern = (entry.resource_type, entry.resource_name, entry.resource_pattern_type)
    return (*pattern, entry.principal, entry.host, entry.operation, entry.permission_type)


class Link:
    """A connection that is made again after the broker closed it; with a login, or without."""

    def __init__(self, port: int, *, login: bool) -> None:
        self.port = port
        self.login = login
        self._connection: socket.socket | None = None

    def ask(self, message: Message, version: int) -> Any:
        """The response, or `CLOSED`."""
        try:
            if self._connection is None:
                self._connect()
            return self._exchange(message, version)
        except ConnectionError:
            self.close()
            return CLOSED

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> None:
        self._connection = socket.create_connection(("127.0.0.1", self.port), 90)
        if self.login:
            assert self._exchange(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            token = SaslAuthenticateRequest(auth_bytes=plain_message(USER, PASSWORD))
            assert self._exchange(token, 1).error_code == 0

    def _exchange(self, message: Message, version: int) -> Any:
        self._send(message, version)
        if isinstance(message, ProduceRequest) and not message.acks:
            # What the broker does with the connection is the only sign there is.
            message, version = ApiVersionsRequest(), 0
            self._send(message, version)
            self._receive(message, version)
            return NO_ANSWER
        return self._receive(message, version)

    def _send(self, message: Message, version: int) -> None:
        self._connection.sendall(b"".join(bytes(part) for part in encode_request(message, version, 1, "matrix")))

    def _receive(self, message: Message, version: int) -> Any:
        prefix = receive(self._connection, 4)
        if len(prefix) < 4:
            raise ConnectionError("closed without an answer")
        frame = receive(self._connection, struct.unpack(">i", prefix)[0])
        header = decode_response_header(frame, message.API_KEY, version)
        return decode(api(message.API_KEY).response, version, memoryview(frame), header.body_offset)


class Side:
    """One of the two clusters."""

    def __init__(self, name: str, admin_port: int, user_port: int, zookeeper: str | None) -> None:
        """``zookeeper`` is None where the cluster has none."""
        self.name = name
        self.admin = Link(admin_port, login=False)
        self.user = Link(user_port, login=True)
        self._names: dict[Uuid, str] = {}
        self._znodes = None if zookeeper is None else KazooClient(zookeeper)
        if self._znodes is not None:
            self._znodes.start()

    def close(self) -> None:
        if self._znodes is not None:
            self._znodes.stop()
            self._znodes.close()
        self.admin.close()
        self.user.close()

    def versions(self) -> dict[int, range]:
        """Of the APIs that it serves."""
        keys = self.admin.ask(ApiVersionsRequest(), 0).api_keys
        return {key.api_key: range(key.min_version, key.max_version + 1) for key in keys}

    # Rights

    def set_acls(self, wanted: Iterable[AclCreation]) -> None:
        """Have these entries and no others; returns once the authorizer has them."""
        entries = list(wanted)
        everything = DeleteAclsFilter(**ANY_ACL)
        for result in self.admin.ask(DeleteAclsRequest(filters=[everything]), 3).filter_results:
            assert not result.error_code, result.error_message
        for made in self.admin.ask(CreateAclsRequest(creations=entries), 3).results if entries else []:
            assert not made.error_code, made.error_message
        expected = {facts(entry) for entry in entries}
        every = DescribeAclsRequest(**ANY_ACL)
        eventually(lambda: self._acls(every) == expected, what=f"the entries are in effect at {self.name}")

    def _acls(self, every: DescribeAclsRequest) -> set[tuple[object, ...]]:
        answer = self.admin.ask(every, 3)
        assert not answer.error_code, answer.error_message
        return {
            (
                *(resource.resource_type, resource.resource_name, resource.pattern_type),
                *(acl.principal, acl.host, acl.operation, acl.permission_type),
            )
            for resource in answer.resources
            for acl in resource.acls
        }

    # What is there

    def fill(self) -> None:
        """Make the topics, groups and transactional ids."""
        eventually(lambda: self.admin.ask(MetadataRequest(topics=[]), 8).controller_id >= 0, what="a controller")
        for topic in TOPICS:
            self.have_topic(topic)
            batch = bytes(build_batch([Record(n, int(time.time() * 1000), None, b"v") for n in range(3)]))
            data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
            answer = self.admin.ask(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        for group in GROUPS:
            eventually(lambda name=group: self.has_coordinator(0, name), what="the group's coordinator")
            self.have_group(group)
        for transactional_id in (*RUNNING, *FINISHED):
            eventually(
                lambda name=transactional_id: self.has_coordinator(1, name), what="the transaction's coordinator"
            )
            began = eventually(lambda name=transactional_id: self.init(name), what="a producer id")
            if transactional_id in RUNNING:
                self._begin(transactional_id, began.producer_id, began.producer_epoch)

    def _begin(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in TOPICS],
        )

        def added() -> bool:
            topics = self.admin.ask(request, 3).results_by_topic_v3_and_below
            return all(each.partition_error_code == 0 for topic in topics for each in topic.results_by_partition)

        eventually(added, what="the partitions are part of the transaction")

    def init(self, transactional_id: str) -> Any:
        """The answer with a producer id, or None as long as there is none."""
        answer = self.admin.ask(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=900_000), 4
        )
        return None if answer.error_code else answer

    def has_coordinator(self, kind: int, key: str) -> bool:
        return bool(self.admin.ask(FindCoordinatorRequest(key=key, key_type=kind), 3).error_code == 0)

    def have_group(self, group: str) -> None:
        """Commit offsets of both topics."""
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")],
            )
            for name in TOPICS
        ]

        def committed() -> bool:
            answer = self.admin.ask(OffsetCommitRequest(group_id=group, topics=topics), 8)
            return all(each.error_code == 0 for topic in answer.topics for each in topic.partitions)

        eventually(committed, what=f"offsets of {group}")

    def have_topic(self, name: str) -> None:
        """Create it where it is not there, and wait until its leader has it."""
        if self.topic_id(name) == ZERO_UUID:
            # Apache's controller deletes what is created before a deletion has ended.
            eventually(lambda: not self._is_stored(name), what=f"the deletion of {name} has ended")
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            made = self.admin.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
            assert made.topics[0].error_code == 0, made.topics[0].error_message
        wanted = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        look = ListOffsetsRequest(replica_id=-1, topics=[wanted])
        eventually(lambda: not self.admin.ask(look, 5).topics[0].partitions[0].error_code, what=f"{name} is led")
        eventually(lambda: self.topic_id(name) != ZERO_UUID, what=f"the id of {name}")

    def have_no_topic(self, name: str) -> None:
        """Delete it where it is there, and wait until nothing is left of it."""
        if self.topic_id(name) != ZERO_UUID:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000)
            deleted = self.admin.ask(request, 6)
            assert deleted.responses[0].error_code == 0, deleted.responses[0].error_message
        eventually(lambda: self.topic_id(name) == ZERO_UUID and not self._is_stored(name), what=f"{name} is gone")

    def _is_stored(self, name: str) -> bool:
        paths = (f"/brokers/topics/{name}", f"/admin/delete_topics/{name}")
        return self._znodes is not None and any(self._znodes.exists(path) for path in paths)

    def topic_id(self, name: str) -> Uuid:
        """As the broker has it now; zero for a topic that is not there."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        found: Uuid = self.admin.ask(wanted, 12).topics[0].topic_id
        if found != ZERO_UUID:
            self._names[found] = name
        return found

    # Answers

    def comparable(self, answer: Any) -> Any:
        """The answer as tuples and dictionaries, without what differs from cluster to cluster; the
        order of lists does not count."""
        if isinstance(answer, Struct | Message):
            return {name: self._field(name, getattr(answer, name)) for name in type(answer).__annotations__}
        if isinstance(answer, list):
            return sorted(_merged([self.comparable(item) for item in answer]), key=repr)
        return answer

    def _field(self, name: str, value: Any) -> Any:
        if name == "topic_id":
            return self._names.get(value, "zero" if value == ZERO_UUID else "another")
        return _RULES[name](value) if name in _RULES else self.comparable(value)


def _merged(items: list[Any]) -> list[Any]:
    """With each topic of a Fetch response once: its partitions may stand in several places."""
    topics: dict[tuple[str, str], Any] = {}
    for item in items:
        if not isinstance(item, dict) or not {"topic", "topic_id", "partitions"} <= set(item):
            return items
        known = topics.setdefault((item["topic"], item["topic_id"]), {**item, "partitions": []})
        known["partitions"] = sorted(known["partitions"] + item["partitions"], key=repr)
    return list(topics.values())


def _is_given(value: Any) -> bool:
    return bool(value)


def _is_counted(value: int) -> bool:
    return value >= 0


def _any(_: object) -> str:
    return "any"


_RULES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("throttle_time_ms", "session_lifetime_ms", "log_append_time_ms"), _any),
    **dict.fromkeys(("cluster_id", "member_id", "session_id", "port", "records", "log_dir"), _is_given),
    # Where a log ends depends on what was written before.
    **dict.fromkeys(("base_offset", "high_watermark", "last_stable_offset", "offset", "end_offset"), _is_counted),
    **dict.fromkeys(("timestamp", "last_timestamp", "transaction_start_time_ms"), _is_counted),
    **dict.fromkeys(("producer_id", "producer_epoch", "producer_id_start", "leader_epoch"), _is_counted),
    **dict.fromkeys(("partition_size", "total_bytes", "usable_bytes"), _is_counted),
    # Which settings there are is compared elsewhere.
    "configs": _is_given,
    "api_keys": _is_given,
    **dict.fromkeys(("supported_features", "finalized_features_epoch"), _any),
    # Words are each one's own, and clients have some for each code; Apache's may print the request.
    "error_message": _any,
}
"""Fields that differ from cluster to cluster, and what of them is compared."""


@contextlib.contextmanager
def apache_side(directory: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[Side]:
    """Apache Kafka in ZooKeeper mode with AclAuthorizer."""
    (port,) = free_ports(1)
    with apache_cluster(directory, settings=dict(settings), listeners={"SASL_PLAINTEXT": port}) as cluster:
        side = Side("apache", int(cluster.bootstrap.rpartition(":")[2]), port, cluster.zookeeper)
        with contextlib.closing(side):
            side.fill()
            yield side


@contextlib.contextmanager
def newer_apache_side(directory: Path) -> Iterator[Side]:
    """Apache Kafka 4.4.0 with StandardAuthorizer, for versions that 3.9.1 does not have."""
    (port,) = free_ports(1)
    settings = {**SETTINGS, "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    listeners = {"SASL_PLAINTEXT": port}
    with apache_single(directory, "4.4.0", settings, listeners, first_id=-1) as cluster:
        side = Side("apache 4.4.0", int(cluster.bootstrap.rpartition(":")[2]), port, None)
        with contextlib.closing(side):
            side.fill()
            yield side


@contextlib.contextmanager
def our_side(directory: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[Side]:
    """A broker and a coordination server of ours, as processes."""
    directory.mkdir(parents=True, exist_ok=True)
    zk_port, port, user_port = free_ports(3)
    zoo = directory / "zoo.cfg"
    zoo.write_text(f"tickTime=2000\ndataDir={directory}/zk\nclientPort={zk_port}\nclientPortAddress=127.0.0.1\n")
    properties = {
        "broker.id": 0,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{user_port}",
        "log.dirs": directory / "logs",
        "zookeeper.connect": f"127.0.0.1:{zk_port}",
        "group.initial.rebalance.delay.ms": 0,
        **dict.fromkeys(("offsets.topic.replication.factor", "transaction.state.log.replication.factor"), 1),
        "transaction.state.log.min.isr": 1,
        **settings,
    }
    path = directory / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    zookeeper = Server(["zookeeper-server-start", str(zoo)], directory / "zk.log", zk_port)
    broker = Server(["server-start", str(path)], directory / "broker.log", port)
    try:
        for server in (zookeeper, broker):
            server.start()
            eventually(lambda at=server: _listens(at), what=f"something at {server.port}, see {directory}")
        with contextlib.closing(Side("ours", port, user_port, f"127.0.0.1:{zk_port}")) as side:
            side.fill()
            yield side
    finally:
        for server in (broker, zookeeper):
            if server.process is not None:
                server.stop()


def _listens(server: Server) -> bool:
    assert server.process is not None
    assert server.process.poll() is None, f"ended with {server.process.returncode}, see {server.log}"
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", server.port)) == 0


def served(sides: Iterable[Side]) -> dict[ApiKey, range]:
    """The versions that all sides serve."""
    known = set(map(int, ApiKey))
    first, *others = [side.versions() for side in sides]
    both = {}
    for key, versions in first.items():
        ranges = [versions, *(other.get(key, range(0)) for other in others)]
        common = range(max(each.start for each in ranges), min(each.stop for each in ranges))
        if common and key in known:
            readable = api(key).versions
            both[ApiKey(key)] = range(max(common.start, readable.first), min(common.stop, readable.last + 1))
    return both
