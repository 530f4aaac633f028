"""Reads the cluster's members, topics and configurations.

In Kafka: `Admin.describeCluster`, `describeTopics`, `describeConfigs`.
"""

import time

from barnabas.client.admin.configurations import ConfigEntry, Resource, ResourceType, configs_in_part
from barnabas.client.admin.features import describe_features
from barnabas.client.admin.topics import describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection, Broker
from barnabas.client.cluster.each_broker import ask_each
from barnabas.client.errors import ClientError
from barnabas.doctor.evidence.cluster import BrokersPart, BrokerView, MomentPart, TopicsPart
from barnabas.doctor.evidence.configs import JUDGED_SETTINGS, BrokerConfigsPart, TopicConfigsPart
from barnabas.doctor.evidence.part import Absent, Gap, Why
from barnabas.doctor.evidence.storage import LogDirsPart
from barnabas.doctor.reading.registration import ClusterReading, UnreadError, absent_for, reads
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse

__all__ = ["read_broker_configs", "read_broker_views", "read_moment", "read_topic_configs", "read_topics"]

_KRAFT_FEATURE = "metadata.version"
_DESCRIBE_TOPIC = "Describe on the topic"
_TOPIC_RIGHT = "DescribeConfigs on the topic"
_BROKER_RIGHT = "DescribeConfigs on the cluster"


@reads()
def read_moment(_: ClusterReading) -> MomentPart:
    """The reader's clock."""
    return MomentPart(now_ms=time.time_ns() // 1_000_000)


@reads()
def read_broker_views(reading: ClusterReading) -> BrokersPart:
    """The registered brokers, and what each of them answers itself."""
    connection = reading.connection
    cluster = connection.describe_cluster()
    members = {broker.id: broker for broker in cluster.brokers}
    answers = ask_each(connection, members, lambda asking, broker_id: _view(asking, members[broker_id]))
    features = describe_features(connection).features
    return BrokersPart(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        views={
            broker_id: _without_answer(members[broker_id], answer) if isinstance(answer, ClientError) else answer
            for broker_id, answer in answers.items()
        },
        is_kraft=any(each.name == _KRAFT_FEATURE and each.finalized for each in features),
        features={each.name: each.finalized for each in features if each.finalized},
    )


def _without_answer(member: Broker, error: ClientError) -> BrokerView:
    return BrokerView(member.id, member.host, member.port, member.rack, error=str(error))


def _view(connection: AdminConnection, member: Broker) -> BrokerView:
    asked = ApiVersionsRequest(client_software_name="barnabas", client_software_version="doctor")
    offered = connection.send(asked, ApiVersionsResponse, member.id)
    known = connection.send(MetadataRequest(topics=[]), MetadataResponse, member.id)
    return BrokerView(
        member.id,
        member.host,
        member.port,
        member.rack,
        controller_id=known.controller_id,
        knows=frozenset(broker.node_id for broker in known.brokers),
        api_versions=tuple(sorted((api.api_key, api.min_version, api.max_version) for api in offered.api_keys)),
    )


@reads(right=_DESCRIBE_TOPIC)
def read_topics(reading: ClusterReading) -> TopicsPart:
    """All topics. Brokers leave out those that the user may not describe, and do not say so; the
    log dirs show that there are some."""
    topics = tuple(describe_topics(reading.connection))
    log_dirs = reading.get(LogDirsPart)
    if isinstance(log_dirs, Absent):
        hidden = f"topics that this user may not describe are not seen, and how many is not known: {log_dirs.reason}"
        gaps = (Gap("some topics", Absent(log_dirs.why, hidden)),) if log_dirs.why is Why.NO_RIGHT else ()
        return TopicsPart(topics=topics, gaps=gaps)
    seen = {topic.name for topic in topics}
    stored = {each.topic for dirs in log_dirs.dirs.values() for log_dir in dirs for each in log_dir.replicas}
    right = Absent(Why.NO_RIGHT, f"the right {_DESCRIBE_TOPIC} is missing")
    return TopicsPart(topics=topics, gaps=tuple(Gap(f"topic {name}", right) for name in sorted(stored - seen)))


@reads(right=_TOPIC_RIGHT)
def read_topic_configs(reading: ClusterReading) -> TopicConfigsPart:
    """The settings of each topic that some rule judges. Each broker knows those of all topics, so
    each is asked for a share of them; one that does not answer leaves its share to another one.

    A broker's own settings are read before: without the coordination service a broker answers for
    itself, and waits with the settings of topics, which are there."""
    reading.get(BrokerConfigsPart)
    topics = [Resource(ResourceType.TOPIC, topic.name) for topic in reading.require(TopicsPart).topics]
    alive = [view.broker_id for view in reading.require(BrokersPart).alive]
    shares = {broker_id: topics[number :: len(alive)] for number, broker_id in enumerate(alive)}

    def ask(connection: AdminConnection, broker_id: int) -> dict[Resource, list[ConfigEntry] | ClientError]:
        return configs_in_part(connection, shares[broker_id], names=JUDGED_SETTINGS, any_broker=broker_id)

    entries, gaps = {}, []
    for broker_id, answers in ask_each(reading.connection, shares, ask).items():
        if isinstance(answers, ClientError):
            answers = configs_in_part(reading.connection, shares[broker_id], names=JUDGED_SETTINGS)
        for resource, answer in answers.items():
            if isinstance(answer, ClientError):
                gaps.append(Gap(f"topic {resource.name}", absent_for(answer, _TOPIC_RIGHT)))
            else:
                entries[resource.name] = {entry.name: entry for entry in answer}
    return TopicConfigsPart(entries=entries, gaps=tuple(gaps))


@reads(right=_BROKER_RIGHT)
def read_broker_configs(reading: ClusterReading) -> BrokerConfigsPart:
    """All settings of each broker, asked of itself."""

    def ask(connection: AdminConnection, broker_id: int) -> list[ConfigEntry] | ClientError:
        (answer,) = configs_in_part(
            connection, [Resource(ResourceType.BROKER, str(broker_id))], synonyms=True, documentation=True
        ).values()
        return answer

    entries, gaps = {}, []
    for broker_id, answer in ask_each(reading.connection, reading.require(BrokersPart).views, ask).items():
        if isinstance(answer, ClientError):
            gaps.append(Gap(f"broker {broker_id}", absent_for(answer, _BROKER_RIGHT)))
        else:
            entries[broker_id] = {entry.name: entry for entry in answer}
    if gaps and not entries:
        raise UnreadError(gaps[0].absent.why, gaps[0].absent.reason)
    return BrokerConfigsPart(entries=entries, gaps=tuple(gaps))
