"""Read a sample of a cluster, and the times of records, over an `AdminConnection`.

All brokers are asked at the same time, each for its own groups: one request lists them; for every
fifty groups one request reads their offsets and one their members. The leaders are asked for the
bounds of all their partitions together. What a broker refuses becomes a line of the sample.

In Kafka: `Admin.listGroups`, `listConsumerGroupOffsets`, `listOffsets`, and `Consumer.poll` for
timestamps.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import zip_longest
from typing import TypeVar

from barnabas.base.excerpts import some_of
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.cluster_rights import may_describe_cluster
from barnabas.client.admin.groups import GroupDescription, GroupListing, groups_in_part
from barnabas.client.admin.many_groups import (
    CommittedOffsets,
    describe_classic_groups,
    describe_consumer_groups,
    describe_share_groups,
    offsets_of_groups,
    offsets_of_share_groups,
)
from barnabas.client.admin.next_records import next_records_in_part
from barnabas.client.admin.offsets import MAX_TIMESTAMP, FoundOffset, bounds_in_part, offsets_in_part
from barnabas.client.cluster.admin_connection import ROUTING_ERRORS, AdminConnection
from barnabas.client.cluster.each_broker import ask_each
from barnabas.client.errors import AuthorizationError, ClientError, RefusedError, UnknownTopicError
from barnabas.client.network.deadline import sooner
from barnabas.lag.samples import ClusterSample, FoundBounds, GroupSample
from barnabas.lag.tracker import LagTracker
from barnabas.lag.values import GroupKind
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["find_record_times", "find_times", "read_sample", "refused_topics"]

T = TypeVar("T")

_PROTOCOL_TYPES = ("consumer", "", "share", "streams")
_CONSUMER = "consumer"
_QUESTIONS = 2
"""Times for each partition in one round."""
_MOST_QUESTIONS = 4_000
"""With one sample; a broker looks each of them up in its log."""
_QUESTIONS_S = 1.5
"""How long may be asked with one sample; the next one goes on."""


def read_sample(
    connection: AdminConnection, now_ms: int, is_wanted: Callable[[str], bool], named: Collection[str] = ()
) -> ClusterSample:
    """Look at the groups that are wanted, and at those that are ``named`` even if no list has
    them.

    Raises `ConnectError` when no broker answers, and what keeps all groups from being listed.
    """
    found = groups_in_part(connection, protocol_types=_PROTOCOL_TYPES)
    listed = {group.group_id: group for group in found.groups if is_wanted(group.group_id)}
    coordinators = {group_id: found.coordinators[group_id] for group_id in listed}
    missing = [f"broker {broker_id}: {error}" for broker_id, error in sorted(found.unreachable.items())]
    if found.leaderless:
        missing.append(f"groups in {some_of(found.leaderless)}: no leader, and therefore no coordinator")
    problems: dict[str, str] = {}
    for group_id in dict.fromkeys(named):
        if group_id not in listed:
            try:
                coordinators[group_id] = connection.find_coordinator(group_id).id
                listed[group_id] = GroupListing(group_id, "", "", "")
            except ClientError as error:
                problems[group_id] = str(error)
    groups = _read_groups(connection, listed, coordinators)
    groups += [_without(GroupListing(group_id, "", "", ""), why) for group_id, why in problems.items()]
    groups.sort(key=lambda group: group.group)
    partitions = {partition: None for group in groups for partition in (*group.committed, *group.owners)}
    bounds: Mapping[TopicPartition, FoundBounds] = bounds_in_part(connection, partitions) if partitions else {}
    missing += _lines({group.group: group.problem for group in groups if group.problem}, "group ")
    missing += _lines(
        {
            str(partition): str(error)
            for partition, error in bounds.items()
            if isinstance(error, ClientError) and not isinstance(error, UnknownTopicError)
        }
    )
    cluster_id = connection.describe_cluster().cluster_id
    return ClusterSample(now_ms, cluster_id, groups, bounds, tuple(missing), _unseen(connection))


def _unseen(connection: AdminConnection) -> tuple[str, ...]:
    """What brokers leave out without an error: groups in a list, and topics among a group's
    offsets.

    A right to the cluster shows all groups; of topics nothing shows that some are left out.
    """
    if may_describe_cluster(connection) is not False:
        return ()
    return (
        "no right to describe the cluster: only groups that may be described are listed, "
        "and only topics that may be described are among their offsets",
    )


def _read_groups(
    connection: AdminConnection, listed: Mapping[str, GroupListing], coordinators: Mapping[str, int]
) -> list[GroupSample]:
    """All groups; those that move to another coordinator meanwhile are looked for once more."""
    groups, moved = _ask_coordinators(connection, listed, coordinators)
    if moved:
        again: dict[str, int] = {}
        for group_id in moved:
            try:
                again[group_id] = connection.find_coordinator(group_id).id
            except ClientError as error:
                groups[group_id] = _without(listed[group_id], str(error))
        groups |= _ask_coordinators(connection, {group_id: listed[group_id] for group_id in again}, again)[0]
    return list(groups.values())


def _ask_coordinators(
    connection: AdminConnection, listed: Mapping[str, GroupListing], coordinators: Mapping[str, int]
) -> tuple[dict[str, GroupSample], list[str]]:
    by_broker: dict[int, list[str]] = {}
    for group_id, broker_id in coordinators.items():
        by_broker.setdefault(broker_id, []).append(group_id)

    def ask(asking: AdminConnection, broker_id: int) -> tuple[dict[str, GroupSample], list[str]]:
        return _ask_coordinator(asking, broker_id, [listed[group_id] for group_id in by_broker[broker_id]])

    groups: dict[str, GroupSample] = {}
    moved: list[str] = []
    for broker_id, outcome in ask_each(connection, by_broker, ask).items():
        if isinstance(outcome, ClientError):
            reason = str(outcome)
            groups |= {group_id: _without(listed[group_id], reason) for group_id in by_broker[broker_id]}
        else:
            groups |= outcome[0]
            moved += outcome[1]
    return groups, moved


def _ask_coordinator(
    connection: AdminConnection, broker_id: int, listed: list[GroupListing]
) -> tuple[dict[str, GroupSample], list[str]]:
    """The groups of one broker, and those that it no longer has."""
    names = [group.group_id for group in listed]
    described = _described(connection, broker_id, listed)
    shared = [group.group_id for group in listed if _kind(group) is GroupKind.SHARE]
    offsets = offsets_of_groups(connection, broker_id, [name for name in names if name not in set(shared)])
    lags: dict[str, dict[TopicPartition, int]] = {}
    for name, found in offsets_of_share_groups(connection, broker_id, shared).items() if shared else ():
        if isinstance(found, RefusedError):
            offsets[name] = found
        else:
            offsets[name] = {partition: each.start_offset for partition, each in found.items()}
            lags[name] = {partition: each.lag for partition, each in found.items() if each.lag is not None}
    groups: dict[str, GroupSample] = {}
    moved = []
    for group in listed:
        name = group.group_id
        groups[name] = _group(group, offsets[name], described.get(name), lags.get(name, {}))
        errors = (offsets[name], described.get(name))
        if any(isinstance(error, RefusedError) and error.code in ROUTING_ERRORS for error in errors):
            moved.append(name)
    return groups, moved


def _described(
    connection: AdminConnection, broker_id: int, listed: list[GroupListing]
) -> dict[str, GroupDescription | RefusedError]:
    """The members of groups. A group that the list shows to be empty is not asked about."""
    new = [group.group_id for group in listed if group.type.lower() == _CONSUMER and group.state != "Empty"]
    classic = [
        group.group_id
        for group in listed
        if group.type.lower() in ("", "classic") and not (group.state == "Empty" and group.protocol_type)
    ]
    shared = [group.group_id for group in listed if _kind(group) is GroupKind.SHARE and group.state != "Empty"]
    found: dict[str, GroupDescription | RefusedError] = {}
    for names, describe in (
        (classic, describe_classic_groups),
        (new, describe_consumer_groups),
        (shared, describe_share_groups),
    ):
        if names:
            found |= describe(connection, broker_id, names)
    return found


def _group(
    listing: GroupListing,
    offsets: CommittedOffsets | RefusedError,
    described: GroupDescription | RefusedError | None,
    lags: Mapping[TopicPartition, int],
) -> GroupSample:
    if isinstance(offsets, RefusedError):
        return _without(listing, str(offsets))
    state, members, owners = listing.state, None, {}
    if isinstance(described, GroupDescription):
        state, members = described.state, len(described.members)
        owners = {partition: member.client_id for member in described.members for partition in member.partitions}
    elif described is None and listing.state == "Empty":
        members = 0
    if state == "Dead" and not offsets:
        return _without(listing, "there is no such group")
    return GroupSample(listing.group_id, _kind(listing), listing.protocol_type, state, members, offsets, owners, lags)


def _without(listing: GroupListing, problem: str) -> GroupSample:
    return GroupSample(
        listing.group_id, _kind(listing), listing.protocol_type, listing.state, None, {}, problem=problem
    )


def _kind(listing: GroupListing) -> GroupKind:
    """Brokers that send no type (before 3.7, and ours) have groups of the classic protocol only."""
    name = listing.type.lower()
    return GroupKind(name) if name in set(GroupKind) else GroupKind.CLASSIC


# Times of records


def find_times(connection: AdminConnection, tracker: LagTracker) -> dict[TopicPartition, ClientError]:
    """Ask for the newest record of each partition at which a group is behind, then for points
    between which the groups' offsets are. Returns what could not be asked.

    A request has each partition once. The work ends by time and by number; what is not known well
    by then is asked with the next sample.
    """
    behind = tracker.behind()
    failed: dict[TopicPartition, ClientError] = {}

    def ask(wanted: Mapping[TopicPartition, int]) -> Iterable[tuple[TopicPartition, FoundOffset]]:
        try:
            outcomes = offsets_in_part(connection, wanted)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            return
        for partition, found in outcomes.items():
            if isinstance(found, ClientError):
                failed[partition] = found
            else:
                yield partition, found

    for partition, newest in ask(dict.fromkeys(behind, MAX_TIMESTAMP)) if behind else ():
        tracker.times_of(partition).add_newest(newest.offset, newest.timestamp_ms)
    end, left = sooner(connection.deadline, _QUESTIONS_S), _MOST_QUESTIONS
    while left > 0 and not end.is_over:
        questions = {
            partition: times
            for partition, times in tracker.questions(behind, _QUESTIONS).items()
            if partition not in failed
        }
        if not questions:
            break
        for column in zip_longest(*questions.values()):
            wanted = {partition: at for partition, at in zip(questions, column, strict=True) if at is not None}
            left -= len(wanted)
            for partition, found in ask(wanted):
                tracker.times_of(partition).add_found(wanted[partition], found.offset, found.timestamp_ms)
    return failed


def find_record_times(connection: AdminConnection, tracker: LagTracker, most: int) -> dict[TopicPartition, ClientError]:
    """Read the timestamps of up to ``most`` records that groups read next, the least known first.
    Returns what could not be read.

    It also finds where only transaction markers are left.
    """
    failed: dict[TopicPartition, ClientError] = {}
    left = tracker.records_wanted(most)
    while left:
        wanted: dict[TopicPartition, int] = {}
        later = []
        for partition, offset in left:
            if partition in wanted:  # a request has each partition once
                later.append((partition, offset))
            elif partition not in failed:
                wanted[partition] = offset
        for partition, found in next_records_in_part(connection, wanted).items() if wanted else ():
            if isinstance(found, ClientError):
                failed[partition] = found
            elif found.timestamp_ms is not None:
                tracker.times_of(partition).add_record(wanted[partition], found.timestamp_ms)
            elif found.markers_until > wanted[partition]:
                tracker.learn_only_markers(partition, wanted[partition], found.markers_until)
        left = [each for each in later if each[0] not in failed]
    return failed


# Words


def _lines(reasons: Mapping[str, str], prefix: str = "") -> list[str]:
    """One line for each reason, with the names of what it concerns."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(f"{prefix}{name}")
    return [f"{some_of(concerned)}: {reason}" for reason, concerned in names.items()]


def refused_topics(failed: Mapping[TopicPartition, ClientError]) -> list[str]:
    """The topics without a right among what failed."""
    return sorted({each.topic for each, error in failed.items() if isinstance(error, AuthorizationError)})
