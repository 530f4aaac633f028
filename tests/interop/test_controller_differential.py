"""The same requests to Apache's broker and to ours, field by field, in every version both speak."""

import re
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.frames import decode_response_header, encode_request
from barnabas.wire.kafka.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from barnabas.wire.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.wire.kafka.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.needs import needs_reference
from support.reference import apache_cluster
from support.servers import up
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]


class Wire:
    """One connection that speaks raw requests."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.port = port
        self.socket = socket.create_connection((host, int(port)), 30)
        self.file = self.socket.makefile("rb")

    def ask(self, request: Any, response: type, version: int) -> Any:
        self.socket.sendall(b"".join(bytes(part) for part in encode_request(request, version, 7, "differential")))
        (size,) = struct.unpack(">i", self.file.read(4))
        data = self.file.read(size)
        header = decode_response_header(data, request.API_KEY, version)
        return decode(response, version, data, header.body_offset)

    def shown(self, answer: Any) -> str:
        """The answer as text, without what must differ; sets and maps of Java have no order."""
        text = re.sub(r"(topic_id|cluster_id)=(b?'(?:[^'\\]|\\.)*'|b\"[^\"]*\")", r"\1=*", repr(answer))
        return text.replace(self.port, "PORT")

    def close(self) -> None:
        self.file.close()
        self.socket.close()


OUR_OWN_CONFIGS = {"compression.check", "flush.before.ack"}


def creatable(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=entries)


def requests(version: int) -> list[tuple[Any, type, int]]:
    """A day in one version; names carry it, so that versions do not disturb each other."""
    name = f"v{version}"
    manual = creatable(f"{name}-manual", -1, -1)
    manual.assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[0]) for index in (0, 1)]
    gap = creatable(f"{name}-gap", -1, -1)
    gap.assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[0]) for index in (0, 2)]
    create = [
        [creatable(name, 2)],
        [creatable(name)],
        [manual],
        [gap],
        [creatable(f"{name}.dot")],
        [creatable(f"{name}_dot")],
        [creatable("bad/name")],
        [creatable("")],
        [creatable(f"{name}-none", 0)],
        [creatable(f"{name}-factor", 1, 0)],
        [creatable(f"{name}-factor", 1, 9)],
        [creatable(f"{name}-config", retention_ms="x")],
        [creatable(f"{name}-config", no_such="1")],
        [creatable(f"{name}-config", retention_ms=None)],
        [creatable(f"{name}-twice"), creatable(f"{name}-twice")],
        [creatable(f"{name}-set", retention_ms="1000", cleanup_policy="compact")],
    ]
    day: list[tuple[Any, type, int]] = []
    at = min(max(version, 2), 7)
    day += [(CreateTopicsRequest(topics=topics, timeout_ms=60000), CreateTopicsResponse, at) for topics in create]
    dry = CreateTopicsRequest(topics=[creatable(f"{name}-dry", 3)], timeout_ms=60000, validate_only=True)
    day.append((dry, CreateTopicsResponse, at))
    at = min(version, 12)
    for asked in ([name], [f"{name}-absent"], ["bad/name"]):
        topics = [MetadataRequestTopic(name=topic) for topic in asked]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=at < 4)
        if at >= 4:
            day.append((request, MetadataResponse, at))
    at = min(version, 3)
    for topic, count, assignments in (
        (name, 3, None),
        (name, 3, None),
        (name, 2, None),
        (f"{name}-absent", 3, None),
        (name, 4, [CreatePartitionsAssignment(broker_ids=[9])]),
        (name, 5, [CreatePartitionsAssignment(broker_ids=[0])]),
        (name, 4, [CreatePartitionsAssignment(broker_ids=[0, 0])]),
    ):
        grown = [CreatePartitionsTopic(name=topic, count=count, assignments=assignments)]
        day.append((CreatePartitionsRequest(topics=grown, timeout_ms=60000), CreatePartitionsResponse, at))
    at = min(version, 2)
    for kind, entity, key, value in (
        (2, name, "retention.ms", "5000"),
        (2, name, "retention.ms", "x"),
        (2, name, "no.such", "1"),
        (2, f"{name}-absent", "retention.ms", "1"),
        (2, "", "retention.ms", "1"),
        (4, "9", "log.retention.ms", "1"),
        (4, "x", "log.retention.ms", "1"),
        (4, "0", "log.dirs", "1"),
    ):
        resource = AlterConfigsResource(
            resource_type=kind, resource_name=entity, configs=[AlterableConfig(name=key, value=value)]
        )
        day.append((AlterConfigsRequest(resources=[resource]), AlterConfigsResponse, at))
    day.append((DescribeClusterRequest(), DescribeClusterResponse, min(version, 1)))
    at = min(max(version, 1), 6)
    for topic in (f"{name}-manual", f"{name}-absent"):
        by_state = at >= 6
        deleted = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic)] if by_state else [],
            topic_names=[] if by_state else [topic],
            timeout_ms=60000,
        )
        day.append((deleted, DeleteTopicsResponse, at))
    return day


def normal(wire: Wire, answer: Any) -> str:
    """Without what Apache's brokers choose by themselves, and without what ours have
    beside Kafka's."""
    for topic in getattr(answer, "topics", None) or ():
        for part in ("configs", "partitions"):
            items = getattr(topic, part, None)
            if items:
                items[:] = [item for item in items if getattr(item, "name", None) not in OUR_OWN_CONFIGS]
                items.sort(key=lambda item: getattr(item, "name", None) or getattr(item, "partition_index", 0))
    return wire.shown(answer)


def test_answers_equal_apaches_field_by_field(tmp_path: Path) -> None:
    """Errors and their words included."""
    single = {"offsets.topic.replication.factor": "1"}
    with apache_cluster(tmp_path / "apache", settings=single) as theirs, up(tmp_path / "ours") as ours:
        wires = [Wire(theirs.bootstrap), Wire(ours.bootstrap)]
        eventually(lambda: wires[0].ask(MetadataRequest(topics=[]), MetadataResponse, 4).controller_id == 0)
        different = []
        for version in (2, 4, 5, 7, 12):
            for request, response, at in requests(version):
                answers = [normal(wire, wire.ask(request, response, at)) for wire in wires]
                if answers[0] != answers[1]:
                    different.append(f"{request!r} v{at}\n  apache {answers[0]}\n  ours   {answers[1]}")
        for wire in wires:
            wire.close()
        assert not different, "\n".join(different)
