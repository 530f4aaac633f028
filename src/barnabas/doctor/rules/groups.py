"""Rules on consumer groups.

In Kafka: what ``kafka-consumer-groups --describe`` shows, and the records of
``__consumer_offsets``; ``offsets.retention.minutes`` (KIP-211).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from barnabas.base.ids import TopicPartition
from barnabas.doctor.amounts import duration
from barnabas.doctor.evidence.cluster import MomentPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart, setting_number
from barnabas.doctor.evidence.groups import (
    STILL_MS,
    GroupHistoryPart,
    GroupPartition,
    GroupsPart,
    GroupTimes,
    GroupView,
    RebalancesPart,
)
from barnabas.doctor.finding import Danger, Finding, MendingCommand
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.words import counted, first_lines, some
from barnabas.lag.judge import NOT_KNOWN, STATES, MemberPresence, SampleWindow, judge
from barnabas.lag.values import LagState

__all__ = [
    "committed_beyond_the_end",
    "committed_records_are_gone",
    "group_lags_without_members",
    "group_rebalances",
    "group_stands_still",
    "idle_members",
    "offsets_expire",
    "offsets_of_deleted_topics",
    "one_member_has_all",
]

REBALANCE_MS = 4000
"""Longer than a coordinator waits for the first members (group.initial.rebalance.delay.ms)."""
EXPIRES_SOON_MS = 86_400_000
_MINUTE_MS = 60_000
_DEFAULT_RETENTION_MINUTES = 10_080
_STABLE, _EMPTY = "Stable", "Empty"
_GROUPS = "consumer-groups"
_MOST_LINES = 5


def _describe(group_ids: Iterable[str]) -> MendingCommand:
    return MendingCommand.of(_GROUPS, "--describe", *(word for each in group_ids for word in ("--group", each)))


def _lines(lines: Iterable[str]) -> tuple[str, ...]:
    return first_lines(lines, _MOST_LINES)


@rule(
    "group-stands-still",
    Danger.UNAVAILABLE,
    "a group has members, records wait, and its committed offsets stand still",
)
def group_stands_still(groups: GroupsPart, history: GroupHistoryPart, moment: MomentPart) -> Iterator[Finding]:
    """A member of the group is blocked, fails on a record again and again, or does not commit."""
    found: dict[str, list[str]] = {}
    for group in groups.groups:
        times = history.times.get(group.group_id)
        if not group.description.members or times is None:
            continue
        for partition, state in sorted(group.partitions.items()):
            if line := _stands_still(partition, state, times, moment.now_ms):
                found.setdefault(group.group_id, []).append(f"group {group.group_id}, {line}")
    if found:
        yield Finding(
            tuple(f"group {each}" for each in found),
            f"{counted(len(found), 'group with members makes', 'groups with members make')} no progress: {some(found)}. "
            "Their offsets stand still while records wait.",
            _lines(line for lines in found.values() for line in lines),
            (_describe(found), "look at the log of the member that has the partition; restart it if it hangs"),
        )


def _stands_still(partition: TopicPartition, state: GroupPartition, times: GroupTimes, now_ms: int) -> str | None:
    """The line of evidence, if the offset stands still."""
    since_ms = times.unmoved_ms.get(partition)
    before = "" if since_ms is not None else "more than "
    if since_ms is None:
        since_ms = times.since_ms
    if since_ms is None or state.end is None or state.end_before is None:
        return None
    window = SampleWindow(STILL_MS)
    is_unmoved = now_ms - since_ms >= STILL_MS
    window.add(
        now_ms - STILL_MS, np.array([state.committed if is_unmoved else NOT_KNOWN]), np.array([state.end_before])
    )
    window.add(now_ms, np.array([state.committed]), np.array([state.end]))
    (judged,) = judge(window, np.array([True]), MemberPresence.PRESENT)
    if STATES[judged] is not LagState.STALLED:
        return None
    return (
        f"{partition}: offset {state.committed} stands for {before}{duration(now_ms - since_ms)}, end {state.end}, of "
        f"which {state.end_before - state.committed} are older than {duration(STILL_MS)}"
    )


@rule("group-without-members", Danger.COMING, "a group has offsets and a lag, and no member")
def group_lags_without_members(groups: GroupsPart) -> Iterator[Finding]:
    """Its records wait, and are deleted when the topics' retention ends."""
    found = [group for group in groups.groups if group.description.state == _EMPTY and group.lag]
    if found:
        names = [group.group_id for group in found]
        yield Finding(
            tuple(f"group {each}" for each in names),
            f"{counted(len(found), 'group without members has', 'groups without members have')} a lag: {some(names)}. "
            "Their records wait, until the topic's retention deletes them.",
            _lines(f"group {group.group_id}: Empty, lag {group.lag} in {_parts(group)}" for group in found),
            (
                "start the group's consumers. A group that is not needed any more can be deleted, with its offsets "
                "(consumer-groups --delete); this shows what it has read, and what waits:",
                _describe(names[:1]),
            ),
        )


def _parts(group: GroupView) -> str:
    return some(str(partition) for partition, state in sorted(group.partitions.items()) if state.lag)


@rule("offsets-expire", Danger.COMING, "offsets of a group without members expire soon")
def offsets_expire(
    groups: GroupsPart, history: GroupHistoryPart, configs: BrokerConfigsPart, moment: MomentPart
) -> Iterator[Finding]:
    """A consumer that starts later begins where auto.offset.reset says.

    Offsets of a group of consumers expire when it is without members for
    offsets.retention.minutes; those of a group that only holds offsets, when they are as old."""
    retention_ms = _retention_ms(configs)
    soon_ms = min(EXPIRES_SOON_MS, retention_ms // 4)
    found: dict[str, str] = {}
    for group in groups.groups:
        times = history.times.get(group.group_id)
        if group.description.state != _EMPTY or times is None or not group.partitions:
            continue
        base_ms = times.state_ms if times.state_ms is not None else min(times.commits.values(), default=None)
        before = ""
        if base_ms is None:
            base_ms, before = times.since_ms, "more than "
        if base_ms is not None and (left_ms := base_ms + retention_ms - moment.now_ms) <= soon_ms:
            when = f"expire in {duration(left_ms)}" if left_ms > 0 else "expire at the coordinator's next check"
            found[group.group_id] = (
                f"group {group.group_id}: without members for {before}{duration(max(0, moment.now_ms - base_ms))}, "
                f"its offsets in {counted(len(group.partitions), 'partition', 'partitions')} {when}"
            )
    if found:
        first = next(iter(found))
        yield Finding(
            tuple(f"group {each}" for each in found),
            f"The offsets of {counted(len(found), 'group', 'groups')} without members expire soon: {some(found)}. Consumers that start "
            "later begin where auto.offset.reset says.",
            (*_lines(found.values()), f"offsets.retention.minutes is {retention_ms // _MINUTE_MS}"),
            (
                "start a consumer of the group before, or raise offsets.retention.minutes and restart the brokers; "
                "this prints the offsets for a file, which --from-file brings back:",
                MendingCommand.of(
                    *(_GROUPS, "--reset-offsets", "--to-current", "--all-topics"),
                    *("--group", first, "--dry-run", "--export"),
                ),
            ),
        )


def _retention_ms(configs: BrokerConfigsPart) -> int:
    """The least of the brokers', for any of them may become the coordinator."""
    minutes = [setting_number(each, "offsets.retention.minutes") for each in configs.entries.values()]
    known = [each for each in minutes if each is not None]
    return min(known, default=_DEFAULT_RETENTION_MINUTES) * _MINUTE_MS


@rule("group-rebalances", Danger.UNAVAILABLE, "a group is in a rebalance for long, and consumes nothing")
def group_rebalances(rebalances: RebalancesPart) -> Iterator[Finding]:
    """A member that does not join again keeps the others waiting for max.poll.interval.ms."""
    if not rebalances.states or rebalances.watched_ms < REBALANCE_MS:
        return
    found = rebalances.states
    yield Finding(
        tuple(f"group {each}" for each in found),
        f"{counted(len(found), 'group is', 'groups are')} in a rebalance that does not end: {some(found)}. "
        "No member consumes meanwhile.",
        _lines(
            f"group {each}: {state} at each look during {duration(rebalances.watched_ms)}"
            for each, state in found.items()
        ),
        (
            _describe(found),
            "a member that does not poll holds it up until max.poll.interval.ms is over: stop or restart it",
        ),
    )


@rule(
    "committed-records-gone",
    Danger.DATA_LOSS,
    "a group's committed offset is below the log's start: records were deleted unread",
)
def committed_records_are_gone(groups: GroupsPart) -> Iterator[Finding]:
    """Retention or delete-records was faster than the group."""
    yield from _out_of_range(
        groups,
        lambda state: state.first is not None and state.committed < state.first,
        lambda state: f"committed {state.committed}, the log starts at {state.first}: up to {_missed(state)} gone",
        "lost records before reading them",
        "raise retention.ms of the topic, so that the rest is not deleted, too; then",
        "--to-earliest",
    )


def _missed(state: GroupPartition) -> str:
    return counted((state.first or 0) - state.committed, "record is", "records are")


@rule("committed-beyond-end", Danger.DATA_LOSS, "a group's committed offset is beyond the end of the log")
def committed_beyond_the_end(groups: GroupsPart) -> Iterator[Finding]:
    """The log was truncated by an unclean election, or the topic deleted and made again: the
    group's consumers reset, and read again or skip what comes."""
    yield from _out_of_range(
        groups,
        lambda state: state.end is not None and state.committed > state.end,
        lambda state: f"committed {state.committed}, the log ends at {state.end}",
        "committed more than the log has: it was cut off, or the topic made again",
        "find out whether records were lost (unclean.leader.election.enable); then",
        "--to-latest",
    )


def _out_of_range(
    groups: GroupsPart,
    is_out: Callable[[GroupPartition], bool],
    words: Callable[[GroupPartition], str],
    what: str,
    advice: str,
    target: str,
) -> Iterator[Finding]:
    found = {
        (group.group_id, partition): words(state)
        for group in groups.groups
        for partition, state in sorted(group.partitions.items())
        if not state.is_deleted and is_out(state)
    }
    if found:
        names = list(dict.fromkeys(group_id for group_id, _ in found))
        (first, at) = next(iter(found))
        yield Finding(
            tuple(f"group {group_id} in {partition}" for group_id, partition in found),
            f"{counted(len(names), 'group', 'groups')} {what}: {some(names)}.",
            _lines(f"group {group_id}, {partition}: {line}" for (group_id, partition), line in found.items()),
            (
                f"stop the group's members; {advice}",
                MendingCommand.of(
                    *(_GROUPS, "--reset-offsets", target, "--group", first),
                    *("--topic", f"{at.topic}:{at.partition}", "--execute"),
                ),
            ),
        )


@rule("offsets-of-deleted-topics", Danger.UNTIDY, "a group has offsets of a topic that does not exist")
def offsets_of_deleted_topics(groups: GroupsPart) -> Iterator[Finding]:
    """A topic of the same name would be read from there.

    Brokers refuse to delete such offsets, and forget them when a topic of the name is deleted."""
    found: dict[tuple[str, str], int] = {}
    for group in groups.groups:
        for partition, state in sorted(group.partitions.items()):
            if state.is_deleted:
                found[group.group_id, partition.topic] = partition.partition + 1
    if found:
        (_, topic), partitions = next(iter(found.items()))
        names = dict.fromkeys(each for each, _ in found)
        yield Finding(
            tuple(f"group {each} in {name}" for each, name in found),
            f"{counted(len(names), 'group has', 'groups have')} offsets of topics that do not exist: "
            f"{some(names)}. A topic that is made with the name again would be read from there.",
            _lines(f"group {each}: topic {name}" for each, name in found),
            (
                "brokers forget the offsets when a topic of the name is deleted:",
                MendingCommand.of("topics", "--create", "--topic", topic, "--partitions", partitions),
                MendingCommand.of("topics", "--delete", "--topic", topic),
            ),
        )


@rule("idle-members", Danger.UNTIDY, "a group has members without a partition")
def idle_members(groups: GroupsPart) -> Iterator[Finding]:
    """There are more members than partitions; those without one have nothing to do."""
    found: dict[str, str] = {}
    for group_id, counts in _assignments(groups):
        idle = sum(not count for count in counts.values())
        if idle and not _is_all_at_one(counts):
            found[group_id] = (
                f"group {group_id}: {counted(len(counts), 'member', 'members')}, {counted(sum(counts.values()), 'partition', 'partitions')}, "
                f"{idle} without one: {some(member for member, count in counts.items() if not count)}"
            )
    if found:
        yield Finding(
            tuple(f"group {each}" for each in found),
            f"{counted(len(found), 'group has', 'groups have')} members without a partition: {some(found)}.",
            _lines(found.values()),
            (
                "stop these members, or raise the number of partitions, which changes where keys go:",
                _more(groups, found),
            ),
        )


def _more(groups: GroupsPart, found: Mapping[str, str]) -> MendingCommand:
    """Gives the first topic of the first group as many partitions as the group has members."""
    group = next(each for each in groups.groups if each.group_id in found)
    members = group.description.members
    topic = min(partition.topic for member in members for partition in member.partitions)
    return MendingCommand.of("topics", "--alter", "--topic", topic, "--partitions", len(members))


@rule("one-member-has-all", Danger.UNTIDY, "one member of a group has all partitions, and others have none")
def one_member_has_all(groups: GroupsPart) -> Iterator[Finding]:
    """The others could take some: the members' assignors or subscriptions do not fit together."""
    found: dict[str, str] = {}
    for group_id, counts in _assignments(groups):
        if _is_all_at_one(counts):
            total = sum(counts.values())
            busy = next(member for member, count in counts.items() if count)
            found[group_id] = f"group {group_id}: {busy} has all {total} partitions, {len(counts) - 1} others have none"
    if found:
        yield Finding(
            tuple(f"group {each}" for each in found),
            f"In {counted(len(found), 'group', 'groups')} one member has all partitions, though others could take some: {some(found)}.",
            _lines(found.values()),
            (
                _describe(found),
                "give all members the same subscription and the same partition.assignment.strategy",
            ),
        )


def _is_all_at_one(counts: Counter[str]) -> bool:
    """Whether one member has all partitions although there is one for each."""
    total = sum(counts.values())
    return total >= len(counts) and max(counts.values()) == total


def _assignments(groups: GroupsPart) -> Iterator[tuple[str, Counter[str]]]:
    """The number of partitions of each member, of groups that are not in a rebalance and whose
    assignment is in the form of consumers."""
    for group in groups.groups:
        if group.description.state == _STABLE and len(group.description.members) > 1:
            counts: Counter[str] = Counter()
            for member in group.description.members:
                counts[f"{member.client_id} ({member.member_id})"] = len(member.partitions)
            if counts.total():
                yield group.group_id, counts
