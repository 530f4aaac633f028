"""`Admin`: topics, configurations, groups, offsets, replicas and transactions, for Python programs.

A typed face of the functions in `topics`, `configurations`, `groups`, `offsets`, `elections`,
`reassignments`, `log_dirs`, `transactions` and `features`, on one `AdminConnection`. What a broker
refuses is a `RefusedError` of the class of its code, such as `UnknownTopicError`; a broker that
cannot be reached a `ConnectError`.

In Kafka: `KafkaAdminClient`.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from barnabas.base.ids import TopicPartition
from barnabas.client.admin import (
    acls,
    configurations,
    elections,
    features,
    groups,
    log_dirs,
    offsets,
    reassignments,
    topics,
    transactions,
)
from barnabas.client.admin.acls import Acl, AclFilter
from barnabas.client.admin.active_producers import ActiveProducer, describe_producers, describe_producers_of
from barnabas.client.admin.client_quotas import QuotaEntity, alter_client_quotas, describe_client_quotas
from barnabas.client.admin.configurations import ConfigEntry, Resource, ResourceType
from barnabas.client.admin.features import Features, LevelChange
from barnabas.client.admin.groups import GroupDescription, GroupListing
from barnabas.client.admin.log_dirs import LogDirContents
from barnabas.client.admin.offsets import LATEST, FoundOffset
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.admin.scram_users import ScramPassword, alter_scram_users, describe_scram_users
from barnabas.client.admin.topics import TopicDescription
from barnabas.client.admin.transactions import FencedProducer, TransactionDescription, TransactionListing
from barnabas.client.arguments import check_offsets
from barnabas.client.cluster.admin_connection import AdminConnection, ClusterDescription
from barnabas.client.errors import ClientError, RefusedError, refusal
from barnabas.client.properties.config_providers import resolved
from barnabas.client.properties.names import check_all_known, check_properties
from barnabas.client.properties.translation import RENAMED_IN_ALL, property_text, require_servers
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["Admin"]


class Admin:
    """Manages a cluster. Not for several threads at once."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        check_properties(properties, "Admin")
        given = {
            RENAMED_IN_ALL.get(name, name): property_text(value, name) for name, value in resolved(properties).items()
        }
        require_servers(given)
        check_all_known(given)
        self.connection = AdminConnection(given["bootstrap.servers"], given)
        """The connection underneath, for requests that this class does not wrap."""

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        return self.connection.describe_cluster(fresh=True)

    # Topics

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """Names of topics; with ``internal`` the cluster's own too."""
        return [topic.name for topic in self.describe_topics() if internal or not topic.is_internal]

    def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """All topics, or those named, with their partitions."""
        return topics.describe_topics(self.connection, names)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        assignment: Sequence[Sequence[int]] = (),
        configs: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
    ) -> bool:
        """Make a topic; -1 takes the cluster's default.

        Returns whether it was made (see ``if_not_exists``). ``assignment`` lists the replicas of
        each partition instead, the preferred leader first.
        """
        try:
            topics.create_topic(
                self.connection,
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                assignment=assignment,
                configs={key: property_text(value) for key, value in (configs or {}).items()},
            )
        except RefusedError as error:
            if if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their records."""
        topics.delete_topics(self.connection, names)

    def create_partitions(self, name: str, count: int) -> None:
        """Raise a topic to ``count`` partitions."""
        topics.create_partitions(self.connection, {name: count})

    # Configurations

    def topic_configs(self, name: str) -> dict[str, ConfigEntry]:
        """A topic's properties by name."""
        return self._configs(Resource(ResourceType.TOPIC, name))

    def broker_configs(self, broker_id: int | None = None) -> dict[str, ConfigEntry]:
        """A broker's properties by name; without an id the cluster-wide dynamic ones."""
        return self._configs(Resource(ResourceType.BROKER, "" if broker_id is None else str(broker_id)))

    def _configs(self, resource: Resource) -> dict[str, ConfigEntry]:
        entries = configurations.describe_configs(self.connection, [resource])[resource]
        return {entry.name: entry for entry in entries}

    def alter_topic_configs(self, name: str, changes: Mapping[str, Any]) -> None:
        """Set a topic's properties; None takes one back to its default."""
        self._alter(Resource(ResourceType.TOPIC, name), changes)

    def alter_broker_configs(self, broker_id: int | None, changes: Mapping[str, Any]) -> None:
        """Set a broker's properties, or with None for the id those of all.

        A value None takes one back."""
        self._alter(Resource(ResourceType.BROKER, "" if broker_id is None else str(broker_id)), changes)

    def _alter(self, resource: Resource, changes: Mapping[str, Any]) -> None:
        texts = {name: None if value is None else property_text(value) for name, value in changes.items()}
        configurations.alter_configs(self.connection, resource, texts)

    # Groups and offsets

    def list_groups(self, states: Sequence[str] = ()) -> list[GroupListing]:
        """The cluster's consumer groups, or those in one of ``states``."""
        return groups.list_groups(self.connection, states)

    def describe_group(self, group_id: str) -> GroupDescription:
        """A group's state and members; "Dead" where there is none."""
        return groups.describe_group(self.connection, group_id)

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """What a group has committed."""
        return groups.group_offsets(self.connection, group_id)

    def group_lag(self, group_id: str) -> dict[TopicPartition, int]:
        """How many records each of a group's partitions has beyond the committed offset."""
        committed = self.group_offsets(group_id)
        ends = offsets.list_offsets(self.connection, dict.fromkeys(committed, LATEST))
        return {
            partition: max(0, end.offset - committed[partition])
            for partition, end in ends.items()
            if isinstance(end, FoundOffset)
        }

    def alter_group_offsets(self, group_id: str, wanted: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without members; raises the first refusal."""
        check_offsets(wanted)
        for partition, code in groups.alter_group_offsets(self.connection, group_id, wanted).items():
            if code:
                raise refusal(code, f"{partition}: {code.message}")

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members."""
        groups.delete_group(self.connection, group_id)

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has committed for these partitions; raises the first refusal."""
        for partition, code in groups.delete_group_offsets(self.connection, group_id, partitions).items():
            if code:
                raise refusal(code, f"{partition}: {code.message}")

    def remove_group_members(self, group_id: str) -> None:
        """Remove all members of a group; those that live join again."""
        groups.remove_members(self.connection, group_id)

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset | RefusedError]:
        """Offsets by time in ms, or by the constants of `barnabas.client.admin.offsets`."""
        return offsets.list_offsets(self.connection, wanted)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | ClientError]:
        """Let partitions begin at these offsets (-1: the high watermark); for each its
        low watermark, or why not."""
        return offsets.delete_records(self.connection, before)

    # Replicas

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, RefusedError | None]:
        """Let preferred replicas lead, or with ``unclean`` any live one where none is in sync.

        None for elected."""
        kind = elections.ElectionType.UNCLEAN if unclean else elections.ElectionType.PREFERRED
        return elections.elect_leaders(self.connection, kind, partitions)

    def list_reassignments(self) -> dict[TopicPartition, Reassignment]:
        """The partitions whose replicas are being moved."""
        return reassignments.list_reassignments(self.connection)

    def reassign(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, RefusedError]:
        """Start moving partitions to these replicas, or with None cancel their move.

        Those refused, with why."""
        return reassignments.alter_reassignments(self.connection, wanted)

    def describe_log_dirs(self, broker_id: int) -> list[LogDirContents]:
        """A broker's log dirs with the replicas in them."""
        return log_dirs.describe_log_dirs(self.connection, broker_id)

    def move_replicas(self, wanted: Mapping[log_dirs.Replica, str]) -> None:
        """Move replicas to other log dirs of their brokers; raises the first refusal."""
        for replica, code in log_dirs.alter_replica_log_dirs(self.connection, wanted).items():
            if code:
                raise refusal(code, f"{replica}: {code.message}")

    # Transactions and features

    def describe_producers(self, topic: str, partition: int, *, broker_id: int | None = None) -> list[ActiveProducer]:
        """The idempotent and transactional producers that a partition's leader remembers, or
        another broker with a replica."""
        wanted = TopicPartition(topic, partition)
        if broker_id is None:
            return describe_producers(self.connection, wanted)
        return describe_producers_of(self.connection, broker_id, [wanted])[wanted]

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that all filters let through: states such as "Ongoing", producer
        ids, a transaction that has been open for longer than ``duration_ms``, a regular expression
        of RE2 that the whole id matches."""
        return transactions.list_transactions(
            self.connection,
            states=states,
            producer_ids=producer_ids,
            duration_ms=duration_ms,
            pattern=transactional_id_pattern,
        )

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Transactional ids with their last transaction; raises the first refusal."""
        return transactions.describe_transactions(self.connection, transactional_ids)

    def abort_transaction(
        self, topic: str, partition: int, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write an abort marker to one partition, around the coordinator: for a transaction that
        hangs there only."""
        transactions.abort_transaction(
            self.connection,
            TopicPartition(topic, partition),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )

    def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, FencedProducer]:
        """Abort the open transactions of transactional ids, and fence their producers; raises the
        first refusal."""
        return transactions.fence_producers(self.connection, transactional_ids)

    def force_terminate_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id, and fence its producer."""
        transactions.fence_producer(self.connection, transactional_id)

    def describe_features(self) -> Features:
        """The features that brokers support, and the levels that the cluster has finalized."""
        return features.describe_features(self.connection)

    def update_features(
        self, levels: Mapping[str, int], kind: LevelChange = LevelChange.UPGRADE, *, validate_only: bool = False
    ) -> None:
        """Finalize levels of features by name; raises the first refusal.

        A lower level, or 0 to remove a feature, needs another ``kind``. ``validate_only`` changes
        nothing."""
        for error in features.update_features(self.connection, levels, kind, validate_only=validate_only).values():
            if error is not None:
                raise error

    # Rights and quotas

    def list_acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """The access control lists' entries.

        Raises SECURITY_DISABLED where brokers have no authorizer."""
        return acls.describe_acls(self.connection, wanted or AclFilter())

    def create_acls(self, entries: Sequence[Acl]) -> None:
        """Add entries."""
        acls.create_acls(self.connection, entries)

    def delete_acls(self, wanted: AclFilter) -> list[Acl]:
        """Remove the entries that match; returns them."""
        return acls.delete_acls(self.connection, wanted)

    def client_quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of users, clients and addresses."""
        return describe_client_quotas(self.connection)

    def alter_client_quotas(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of an entity such as ``(("user", "ann"),)``; None removes one."""
        alter_client_quotas(self.connection, entity, changes)

    def scram_users(self, users: Sequence[str] | None = None) -> Mapping[str, Mapping[str, int]]:
        """Iterations by mechanism, by user; of all users with SCRAM credentials
        unless some are named."""
        return describe_scram_users(self.connection, users)

    def alter_scram_users(self, changes: Sequence[ScramPassword]) -> None:
        """Set passwords of users, or delete their credentials.

        The first user's failure is raised."""
        alter_scram_users(self.connection, changes)

    def close(self) -> None:
        """Close all connections."""
        self.connection.close()

    def __enter__(self) -> Self:
        self.connection.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
