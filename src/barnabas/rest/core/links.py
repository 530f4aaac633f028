"""The documents of version 3: each has its kind, its own address and name, and the addresses of
what belongs to it. Pure.

Source: the OpenAPI description of Confluent's REST API, version 3.

In Confluent's proxy: UrlFactory, CrnFactory and the classes of entities.v3.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from barnabas.client.admin.acls import Acl
from barnabas.client.admin.configurations import ConfigEntry
from barnabas.client.admin.groups import GroupDescription, GroupMember
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.admin.topics import PartitionDescription, TopicDescription
from barnabas.client.cluster.admin_connection import Broker, ClusterDescription

__all__ = ["Document", "ResourceLinks"]

Document = dict[str, Any]
_STATES = {
    "Stable": "STABLE",
    "Empty": "EMPTY",
    "Dead": "DEAD",
    "PreparingRebalance": "PREPARING_REBALANCE",
    "CompletingRebalance": "COMPLETING_REBALANCE",
    "Assigning": "ASSIGNING",
    "Reconciling": "RECONCILING",
}


class ResourceLinks:
    """Makes the documents of one cluster, with addresses that begin with ``base``."""

    def __init__(self, base: str, cluster_id: str) -> None:
        self._base = f"{base}/v3/clusters"
        self.cluster_id = cluster_id

    def url(self, *parts: object) -> str:
        """The address of something in the cluster."""
        return "/".join([self._base, *(quote(str(part), safe="-.~_") for part in (self.cluster_id, *parts))])

    def _name(self, **parts: object) -> str:
        named = {"kafka": self.cluster_id, **{name.replace("_", "-"): value for name, value in parts.items()}}
        return "crn:///" + "/".join(f"{name}={quote(str(value), safe='')}" for name, value in named.items())

    def _related(self, *parts: object) -> Document:
        return {"related": self.url(*parts)}

    def _resource(self, kind: str, path: Sequence[object], name: str, fields: Mapping[str, Any]) -> Document:
        metadata = {"self": self.url(*path), "resource_name": name}
        return {"kind": f"Kafka{kind}", "metadata": metadata, "cluster_id": self.cluster_id, **fields}

    def list_of(self, kind: str, path: Sequence[object], documents: Iterable[Document]) -> Document:
        """A list of such documents."""
        return {"kind": f"Kafka{kind}List", "metadata": {"self": self.url(*path), "next": None}, "data": [*documents]}

    def cluster(self, found: ClusterDescription) -> Document:
        """The cluster itself."""
        controller = found.controller_id
        fields = {
            "controller": self._related("brokers", controller) if controller >= 0 else None,
            "acls": self._related("acls"),
            "brokers": self._related("brokers"),
            "broker_configs": self._related("broker-configs"),
            "consumer_groups": self._related("consumer-groups"),
            "topics": self._related("topics"),
            "partition_reassignments": self._related("topics", "-", "partitions", "-", "reassignment"),
        }
        return self._resource("Cluster", (), self._name(), fields)

    def clusters(self, found: ClusterDescription) -> Document:
        """The list of clusters: there is one."""
        metadata = {"self": self._base, "next": None}
        return {"kind": "KafkaClusterList", "metadata": metadata, "data": [self.cluster(found)]}

    def broker(self, broker: Broker) -> Document:
        """A broker."""
        fields = {
            "broker_id": broker.id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "configs": self._related("brokers", broker.id, "configs"),
            "partition_replicas": self._related("brokers", broker.id, "partition-replicas"),
        }
        return self._resource("Broker", ("brokers", broker.id), self._name(broker=broker.id), fields)

    def topic(self, topic: TopicDescription) -> Document:
        """A topic."""
        name, path = topic.name, ("topics", topic.name)
        fields = {
            "topic_name": name,
            "is_internal": topic.is_internal,
            "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
            "partitions_count": len(topic.partitions),
            "partitions": self._related(*path, "partitions"),
            "configs": self._related(*path, "configs"),
            "partition_reassignments": self._related(*path, "partitions", "-", "reassignment"),
            "authorized_operations": [],
        }
        return self._resource("Topic", path, self._name(topic=name), fields)

    def planned_topic(self, name: str, partitions: int, replicas: int) -> Document:
        """A topic that is not there: the answer to a trial of its creation."""
        made = TopicDescription(
            name,
            topic_id=None,  # type: ignore[arg-type]  # it has none yet, and documents do not show it
            is_internal=False,
            partitions=[PartitionDescription(number, None, 0, [0] * replicas, [], []) for number in range(partitions)],
        )
        return self.topic(made)

    def partition(self, topic: str, partition: PartitionDescription) -> Document:
        """A partition."""
        path = ("topics", topic, "partitions", partition.partition)
        leader = partition.leader
        fields = {
            "topic_name": topic,
            "partition_id": partition.partition,
            "leader": None if leader is None else self._related(*path, "replicas", leader),
            "replicas": self._related(*path, "replicas"),
            "reassignment": self._related(*path, "reassignment"),
        }
        return self._resource("Partition", path, self._name(topic=topic, partition=partition.partition), fields)

    def partition_with_offsets(self, topic: str, partition: int, first: int, end: int) -> Document:
        """A partition's first offset and its end."""
        path = ("topics", topic, "partitions", partition, "offset")
        fields = {"topic_name": topic, "partition_id": partition, "earliest_offset": first, "latest_offset": end}
        name = self._name(topic=topic, partition=partition) + "/offset"
        return self._resource("PartitionWithOffsets", path, name, fields)

    def replica(self, topic: str, partition: PartitionDescription, broker_id: int) -> Document:
        """A replica of a partition."""
        number = partition.partition
        path = ("topics", topic, "partitions", number, "replicas", broker_id)
        fields = {
            "topic_name": topic,
            "partition_id": number,
            "broker_id": broker_id,
            "is_leader": partition.leader == broker_id,
            "is_in_sync": broker_id in partition.isr,
            "broker": self._related("brokers", broker_id),
        }
        return self._resource("Replica", path, self._name(topic=topic, partition=number, replica=broker_id), fields)

    def reassignment(self, topic: str, partition: int, found: Reassignment) -> Document:
        """A partition whose replicas are moved."""
        path = ("topics", topic, "partitions", partition)
        fields = {
            "topic_name": topic,
            "partition_id": partition,
            "adding_replicas": found.adding,
            "removing_replicas": found.removing,
            "replicas": self._related(*path, "replicas"),
        }
        name = self._name(topic=topic, partition=partition) + "/reassignment"
        return self._resource("Reassignment", (*path, "reassignment"), name, fields)

    # Configurations

    def topic_config(self, topic: str, entry: ConfigEntry) -> Document:
        """A property of a topic."""
        path, name = ("topics", topic, "configs", entry.name), self._name(topic=topic, config=entry.name)
        return self._resource("TopicConfig", path, name, {"topic_name": topic, **_config(entry)})

    def broker_config(self, broker_id: int, entry: ConfigEntry) -> Document:
        """A property of a broker."""
        path, name = ("brokers", broker_id, "configs", entry.name), self._name(broker=broker_id, config=entry.name)
        return self._resource("BrokerConfig", path, name, {"broker_id": broker_id, **_config(entry)})

    def cluster_config(self, entry: ConfigEntry) -> Document:
        """A property of all brokers."""
        path, name = ("broker-configs", entry.name), self._name(broker_config=entry.name)
        return self._resource("ClusterConfig", path, name, {"config_type": "BROKER", **_config(entry)})

    # Access control lists

    def acl(self, acl: Acl) -> Document:
        """An entry; it has no name."""
        fields = {
            "resource_type": acl.resource_type,
            "resource_name": acl.resource_name,
            "pattern_type": acl.pattern_type,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission": acl.permission,
        }
        metadata = {"self": self.acl_url(fields)}
        return {"kind": "KafkaAcl", "metadata": metadata, "cluster_id": self.cluster_id, **fields}

    def acl_url(self, fields: Mapping[str, str]) -> str:
        """The address that finds such entries."""
        query = "&".join(f"{name}={quote(value, safe='*-._~')}" for name, value in fields.items())
        return f"{self.url('acls')}?{query}" if query else self.url("acls")

    # Groups

    def group(self, group: GroupDescription, kind: str) -> Document:
        """A consumer group."""
        path = ("consumer-groups", group.group_id)
        fields = {
            "consumer_group_id": group.group_id,
            "is_simple": not group.members and not group.assignor,
            "partition_assignor": group.assignor,
            "state": _STATES.get(group.state, "UNKNOWN"),
            "type": kind.upper() or "UNKNOWN",
            "is_mixed_consumer_group": False,
            "coordinator": self._related("brokers", group.coordinator.id),
            "consumers": self._related(*path, "consumers"),
            "lag_summary": self._related(*path, "lag-summary"),
        }
        return self._resource("ConsumerGroup", path, self._name(consumer_group=group.group_id), fields)

    def consumer(self, group_id: str, member: GroupMember) -> Document:
        """A member of a group."""
        path = ("consumer-groups", group_id, "consumers", member.member_id)
        fields = {
            "consumer_group_id": group_id,
            "consumer_id": member.member_id,
            "instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "assignments": self._related(*path, "assignments"),
        }
        name = self._name(consumer_group=group_id, consumer=member.member_id)
        return self._resource("Consumer", path, name, fields)

    def assignment(self, group_id: str, member_id: str, topic: str, partition: int) -> Document:
        """A partition that a member reads."""
        group = ("consumer-groups", group_id)
        path = (*group, "consumers", member_id, "assignments", topic, "partitions", partition)
        fields = {
            "consumer_group_id": group_id,
            "consumer_id": member_id,
            "topic_name": topic,
            "partition_id": partition,
            "partition": self._related("topics", topic, "partitions", partition),
            "lag": self._related(*group, "lags", topic, "partitions", partition),
        }
        name = self._name(consumer_group=group_id, consumer=member_id, assignment=topic, partition=partition)
        return self._resource("ConsumerAssignment", path, name, fields)

    def lag(
        self, group_id: str, topic: str, partition: int, committed: int, end: int, member: GroupMember | None
    ) -> Document:
        """How far a group is behind in a partition."""
        path = ("consumer-groups", group_id, "lags", topic, "partitions", partition)
        fields = {
            "consumer_group_id": group_id,
            "topic_name": topic,
            "partition_id": partition,
            "consumer_id": "" if member is None else member.member_id,
            "instance_id": None if member is None else member.group_instance_id,
            "client_id": "" if member is None else member.client_id,
            "current_offset": committed,
            "log_end_offset": end,
            "lag": max(0, end - committed),
        }
        name = self._name(consumer_group=group_id, lag=topic, partition=partition)
        return self._resource("ConsumerLag", path, name, fields)

    def lag_summary(self, group_id: str, lags: Sequence[Document]) -> Document:
        """The largest lag of a group, and all together."""
        largest = max(lags, key=lambda each: int(each["lag"]))
        consumer, topic, partition = largest["consumer_id"], largest["topic_name"], largest["partition_id"]
        group = ("consumer-groups", group_id)
        fields = {
            "consumer_group_id": group_id,
            "max_lag_consumer_id": consumer,
            "max_lag_instance_id": largest["instance_id"],
            "max_lag_client_id": largest["client_id"],
            "max_lag_topic_name": topic,
            "max_lag_partition_id": partition,
            "max_lag": largest["lag"],
            "total_lag": sum(int(each["lag"]) for each in lags),
            "max_lag_consumer": self._related(*group, "consumers", consumer),
            "max_lag_partition": self._related("topics", topic, "partitions", partition),
        }
        name = self._name(consumer_group=group_id) + "/lag-summary"
        return self._resource("ConsumerGroupLagSummary", (*group, "lag-summary"), name, fields)


def _config(entry: ConfigEntry) -> Document:
    return {
        "name": entry.name,
        "value": entry.value,
        "is_default": entry.is_default,
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
        "source": entry.source.name,
        "synonyms": [{"name": one.name, "value": one.value, "source": one.source.name} for one in entry.synonyms],
    }
