"""The view of groups, and of the partitions of one: how far they are behind, as `barnabas.lag` has
it.

In Kafka: the rows of `ConsumerGroupCommand`; the states are those of Burrow.
"""

from barnabas.lag.values import GroupLag, LagState, PartitionLag
from barnabas.top.numbers import age, count, plain, rate
from barnabas.top.rates import Seen
from barnabas.top.tables import Cell, Column, Level, TableRow, ViewTable

__all__ = ["groups_table", "partitions_of_group"]

_LEVELS = {
    LagState.LAGGING: Level.WARNING,
    LagState.REWINDING: Level.ERROR,
    LagState.STALLED: Level.ERROR,
    LagState.STOPPED: Level.ERROR,
}
_COLUMNS = (
    Column("GROUP", "name", 0, is_number=False),
    Column("STATE", "state", 3, is_number=False),
    Column("MEMBERS", "members", 4),
    Column("LAG", "lag", 0),
    Column("BEHIND", "lag_s", 1),
    Column("LAG STATE", "lag_state", 2, is_number=False),
    Column("READ/S", "consumed_per_s", 3),
    Column("CATCH UP", "catch_up_s", 5),
    Column("PROBLEM", "problem", 2, is_number=False),
)
_PARTITION_COLUMNS = (
    Column("PARTITION", "partition", 0, is_number=False),
    Column("COMMITTED", "committed", 3),
    Column("END", "end", 4),
    Column("LAG", "lag", 0),
    Column("BEHIND", "lag_s", 1),
    Column("LAG STATE", "lag_state", 2, is_number=False),
    Column("READ/S", "consumed_per_s", 4),
    Column("CATCH UP", "catch_up_s", 5),
    Column("MEMBER", "owner", 3, is_number=False),
    Column("PROBLEM", "problem", 2, is_number=False),
)


def groups_table(seen: Seen) -> ViewTable:
    """The furthest behind in records first."""
    groups = sorted(seen.snapshot.groups, key=lambda group: (-(group.lag or 0), group.group))
    return ViewTable(_COLUMNS, [_group_row(group) for group in groups], seen.snapshot.notes.get("groups", ""))


def _group_row(group: GroupLag) -> TableRow:
    furthest = group.furthest
    problem = group.problem or next((part.problem for part in group.partitions if part.problem), "")
    # A lag whose partitions are known in part would be too small.
    lag = group.lag if group.is_complete else None
    cells = (
        plain(group.group),
        plain(group.group_state or None),
        count(group.members),
        count(lag),
        _seconds(furthest.lag_ms if furthest else None),
        plain(group.state.value),
        rate(group.consumed_per_s),
        age(group.catch_up_s),
        plain(problem or None),
    )
    level = Level.WARNING if group.problem else _LEVELS.get(group.state, Level.PLAIN)
    return TableRow(group.group, cells, level)


def _seconds(lag_ms: int | None) -> Cell:
    return age(None if lag_ms is None else lag_ms / 1000)


def partitions_of_group(seen: Seen, key: str) -> ViewTable:
    """Those for which it has committed an offset, or that a member has."""
    found = [group for group in seen.snapshot.groups if group.group == key]
    rows = [_partition_row(part) for group in found for part in group.partitions]
    note = next((group.problem for group in found), "the group is not there")
    return ViewTable(_PARTITION_COLUMNS, rows, note or ("" if rows else "it has committed no offset"))


def _partition_row(part: PartitionLag) -> TableRow:
    name = str(part.topic_partition)
    cells = (
        plain(name),
        count(part.committed),
        count(part.end),
        count(part.lag),
        _seconds(part.lag_ms),
        plain(part.state.value),
        rate(part.consumed_per_s),
        age(part.catch_up_s),
        plain(part.owner),
        plain(part.problem or None),
    )
    return TableRow(name, cells, _LEVELS.get(part.state, Level.PLAIN))
