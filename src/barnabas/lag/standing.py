"""Since when a group is in its state, and when its lag last was zero: from one sample to the next.

A state that is unknown, as after a start, ends nothing: the state before it goes on if it is the
next one again. What happened between two samples is not known, however far they are apart.

In Kafka: no counterpart; Burrow's notifier keeps the start of an incident.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from barnabas.lag.values import GroupLag, LagReport, LagState

__all__ = ["GroupStanding", "next_standing", "with_standings"]


class GroupStanding(NamedTuple):
    """What is remembered of a group."""

    state: LagState
    since_ms: int
    last_zero_ms: int | None
    seen_ms: int
    """The last sample in which its state was known."""


def next_standing(before: GroupStanding | None, group: GroupLag, now_ms: int) -> GroupStanding | None:
    """What is remembered after a sample; None while nothing is known."""
    last_zero_ms = None if before is None else before.last_zero_ms
    if group.lag == 0 and group.is_complete:
        last_zero_ms = now_ms if last_zero_ms is None else max(now_ms, last_zero_ms)
    if group.state is LagState.UNKNOWN:
        return None if before is None else before._replace(last_zero_ms=last_zero_ms)
    if before is None or before.state is not group.state or before.since_ms > now_ms:
        return GroupStanding(group.state, now_ms, last_zero_ms, now_ms)
    return before._replace(last_zero_ms=last_zero_ms, seen_ms=max(now_ms, before.seen_ms))


def with_standings(report: LagReport, known: Mapping[str, GroupStanding]) -> tuple[LagReport, dict[str, GroupStanding]]:
    """The report with what is remembered of its groups, and what is to be remembered now, by group.

    A group that could not be read changes nothing of what is remembered of it."""
    groups, changed = [], {}
    for group in report.groups:
        standing = known.get(group.group)
        if not group.problem:
            standing = next_standing(standing, group, report.at_ms)
            if standing is not None:
                changed[group.group] = standing
        groups.append(_with_standing(group, standing))
    return replace(report, groups=groups), changed


def _with_standing(group: GroupLag, standing: GroupStanding | None) -> GroupLag:
    if standing is None:
        return group
    since_ms = standing.since_ms if standing.state is group.state else None
    return replace(group, since_ms=since_ms, last_zero_ms=standing.last_zero_ms)
