"""What a reading command could not learn: lines on standard error, and an exit code of its own.

A command shows what it can learn, even while a broker is away or a partition has no leader. A
command that waits by nature names the same gaps as what it waits for.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError
from barnabas.base.excerpts import some_of
from barnabas.base.ids import TopicPartition
from barnabas.cli.output.colours import print_warning
from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.client.errors import RefusedError, UnknownTopicError
from barnabas.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client.cluster.admin_connection import AdminConnection

__all__ = ["Gaps", "without_deleted"]

_MAX_LINES = 10


class Gaps:
    """What one answer lacks; each gap is reported once.

    The brokers that ``connection`` did not reach are among the gaps."""

    def __init__(self, connection: "AdminConnection | None" = None) -> None:
        self._connection = connection
        self._lines: dict[str, None] = {}
        self._leaderless: dict[TopicPartition, str] = {}
        self._unanswered: dict[str, dict[str, None]] = {}

    def add(self, line: object) -> None:
        """Something that is missing."""
        self._lines[str(line)] = None

    def add_partitions(self, outcomes: Mapping[TopicPartition, object]) -> None:
        """The partitions whose outcome is an error."""
        for topic_partition, outcome in outcomes.items():
            if isinstance(outcome, RefusedError) and outcome.code is ErrorCode.LEADER_NOT_AVAILABLE:
                self._leaderless[topic_partition] = outcome.message
            elif isinstance(outcome, BarnabasError):
                self._unanswered.setdefault(str(outcome), {})[str(topic_partition)] = None

    def add_groups(self, outcomes: Mapping[str, object]) -> None:
        """The groups whose outcome is an error."""
        for group_id, outcome in outcomes.items():
            if isinstance(outcome, BarnabasError):
                self._unanswered.setdefault(str(outcome), {})[f"group {group_id}"] = None

    def add_group_partitions(self, leaderless: Iterable[TopicPartition]) -> None:
        """Partitions of the groups' own topic without a leader."""
        names = [str(topic_partition) for topic_partition in leaderless]
        if names:
            self.add(f"groups in {some_of(names)} are not shown: no leader, and therefore no coordinator")

    @property
    def lines(self) -> list[str]:
        """All that is missing, in words."""
        return self._worded("broker {broker_id}: {error}; not known: {names}")

    def report(self, *, waiting: bool = False) -> int:
        """Say on standard error what is missing, or with ``waiting`` what is waited for.

        The command's exit code."""
        form = "broker {broker_id}, the leader of {names}: {error}"
        lines = [f"{line}; waiting" for line in self._worded(form)] if waiting else self.lines
        sys.stdout.flush()
        for line in lines:
            print_warning(line, label="" if waiting else "Incomplete")
        return INCOMPLETE if lines and not waiting else 0

    def _worded(self, unreached: str) -> list[str]:
        """``unreached`` is the form for a broker that was not reached, and what it alone knows."""
        unanswered = dict(self._unanswered)
        unreachable = {} if self._connection is None else self._connection.unreachable
        lines = []
        for broker_id, error in sorted(unreachable.items()):
            names = unanswered.pop(str(error), {})
            form = unreached if names else "broker {broker_id}: {error}"
            lines.append(form.format(broker_id=broker_id, error=error, names=some_of(names)))
        leaderless = list(self._leaderless.values())
        more = len(leaderless) - _MAX_LINES
        return [
            *lines,
            *self._lines,
            *leaderless[:_MAX_LINES],
            *([f"{more} more partitions have no leader"] if more > 0 else ()),
            *(f"{some_of(names)}: {reason}" for reason, names in unanswered.items()),
        ]


def without_deleted(outcomes: Mapping[TopicPartition, object]) -> dict[TopicPartition, object]:
    """Without the partitions that do not exist: groups keep offsets of topics that were
    deleted, and miss nothing there."""
    return {
        topic_partition: outcome
        for topic_partition, outcome in outcomes.items()
        if not isinstance(outcome, UnknownTopicError)
    }
