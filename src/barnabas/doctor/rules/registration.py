"""The registration of rules: from it follow the list of the help and of the pages, the JSON,
and which parts of the evidence are read.

In Kafka: nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import UnionType
from typing import get_args, get_type_hints

from barnabas.doctor.evidence.part import Absent, EvidencePart
from barnabas.doctor.finding import Danger, Finding

__all__ = ["RULES", "DoctorRule", "rule"]


@dataclass(frozen=True, slots=True)
class DoctorRule:
    """A rule, with the parts of the evidence that its function takes, in order."""

    name: str
    danger: Danger
    summary: str
    """What it finds, as the end of "a cluster in which ..."."""
    check: Callable[..., Iterable[Finding]]
    takes: tuple[type[EvidencePart], ...]
    """Each parameter's part."""
    optional: frozenset[type[EvidencePart]]
    """Those without which it judges too: it is given the `Absent`."""

    @property
    def needs(self) -> tuple[type[EvidencePart], ...]:
        """Those without which it cannot judge."""
        return tuple(part for part in self.takes if part not in self.optional)


RULES: dict[str, DoctorRule] = {}
"""All rules by name, in the order of the modules of this package."""


def rule(
    name: str, danger: Danger, summary: str
) -> Callable[[Callable[..., Iterable[Finding]]], Callable[..., Iterable[Finding]]]:
    """Register a function of parts of the evidence under a name.

    Its annotations say which parts: ``TopicsPart`` is needed, ``X | Absent`` is wanted, and the
    function has to say what it does not know without it. The function is pure; it may raise
    `NotApplicableError`.
    """

    def register(check: Callable[..., Iterable[Finding]]) -> Callable[..., Iterable[Finding]]:
        hints = {name: hint for name, hint in get_type_hints(check).items() if name != "return"}
        takes, optional = [], set()
        for hint in hints.values():
            kinds = [each for each in get_args(hint) if each is not Absent] if isinstance(hint, UnionType) else [hint]
            (kind,) = kinds
            takes.append(kind)
            if isinstance(hint, UnionType):
                optional.add(kind)
        assert name not in RULES, name
        RULES[name] = DoctorRule(name, danger, summary, check, tuple(takes), frozenset(optional))
        return check

    return register
