"""What a rule finds, and how dangerous it is.

In Kafka: nothing; the tools print states, and leave the judgement to the reader.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from barnabas.base.ids import TopicPartition

__all__ = ["Danger", "Finding", "MendingCommand", "NotApplicableError"]


class Danger(IntEnum):
    """How bad a finding is, the worst first; the value is the order of the report."""

    UNAVAILABLE = 1
    """Clients fail now."""
    DATA_LOSS = 2
    """The next failure can lose records."""
    COMING = 3
    """It works today; with time, or at the next failure, it will not."""
    UNTIDY = 4
    """It costs or misleads."""

    @property
    def words(self) -> str:
        """The heading of such findings."""
        return {
            Danger.UNAVAILABLE: "clients fail now",
            Danger.DATA_LOSS: "records can be lost",
            Danger.COMING: "it will fail",
            Danger.UNTIDY: "it costs or misleads",
        }[self]


@dataclass(frozen=True, slots=True)
class MendingCommand:
    """A command of ``barnabas`` with its arguments; the report adds how to reach the cluster."""

    name: str
    arguments: tuple[str, ...]
    connects: bool = True
    """Whether it takes ``--bootstrap-server``."""

    @classmethod
    def of(cls, name: str, *arguments: object) -> "MendingCommand":
        """A command with ``--bootstrap-server``."""
        return cls(name, tuple(map(str, arguments)))


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, in a plain sentence, with its evidence.

    A rule makes one finding of all subjects that have the same fault. ``rule`` and ``danger`` are
    set by the diagnosis from the rule's registration, unless the rule gives a danger of its own.
    """

    subjects: tuple[str, ...]
    """All that have the fault: ``orders-0``, ``broker 3``, ``group g``."""
    sentence: str
    evidence: tuple[str, ...]
    """Lines: what was read, with its place."""
    mends: tuple[MendingCommand | str, ...]
    """What to do, in order: commands, and words where no command does it."""
    moves: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """The replicas that partitions should have; ``barnabas doctor --plan`` writes them as the file
    of `reassign-partitions`."""
    danger: Danger | None = None
    rule: str = ""


class NotApplicableError(Exception):
    """Raised by a rule that means nothing on this cluster; its text says why."""
