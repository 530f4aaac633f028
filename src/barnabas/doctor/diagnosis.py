"""The diagnosis: what each rule made of the evidence.

In Kafka: nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from barnabas.doctor.evidence.part import Absent, Evidence, EvidencePart, Gap, UncheckedError
from barnabas.doctor.finding import Finding, NotApplicableError
from barnabas.doctor.rules.registration import DoctorRule

__all__ = ["AppliedRule", "Diagnosis", "RuleOutcome", "diagnose"]


class RuleOutcome(Enum):
    """What became of a rule."""

    PASSED = "passed"
    FOUND = "found"
    NOT_APPLICABLE = "not applicable"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """A rule that was applied, or why it was not. ``gaps`` are what it did not see."""

    rule: DoctorRule
    outcome: RuleOutcome
    reason: str = ""
    gaps: tuple[Gap, ...] = ()
    is_incomplete: bool = False
    """The reader should have seen what was missing, and did not."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings, the most dangerous first, and what became of each rule."""

    findings: tuple[Finding, ...]
    checks: tuple[AppliedRule, ...]

    @property
    def is_incomplete(self) -> bool:
        """Whether something that should have been read was not."""
        return any(check.is_incomplete for check in self.checks)


def diagnose(evidence: Evidence, rules: Iterable[DoctorRule]) -> Diagnosis:
    """Apply the rules.

    One whose part of the evidence is absent is not checked; it is never passed."""
    findings: list[Finding] = []
    checks = []
    for rule in rules:
        check, found = _apply(evidence, rule)
        checks.append(check)
        findings += found
    return Diagnosis(tuple(sorted(findings, key=lambda each: each.danger or 0)), tuple(checks))


def _apply(evidence: Evidence, rule: DoctorRule) -> tuple[AppliedRule, list[Finding]]:
    parts = [evidence.get(kind) for kind in rule.takes]
    for kind, part in zip(rule.takes, parts, strict=True):
        if isinstance(part, Absent) and kind not in rule.optional:
            return _unchecked(rule, part), []
    gaps = tuple(dict.fromkeys(gap for part in parts if isinstance(part, EvidencePart) for gap in part.gaps))
    try:
        found = [replace(each, rule=rule.name, danger=each.danger or rule.danger) for each in rule.check(*parts)]
    except UncheckedError as error:
        return _unchecked(rule, error.absent), []
    except NotApplicableError as error:
        return AppliedRule(rule, RuleOutcome.NOT_APPLICABLE, str(error)), []
    outcome = RuleOutcome.FOUND if found else RuleOutcome.PASSED
    return AppliedRule(rule, outcome, gaps=gaps, is_incomplete=any(gap.absent.why.is_incomplete for gap in gaps)), found


def _unchecked(rule: DoctorRule, absent: Absent) -> AppliedRule:
    return AppliedRule(rule, RuleOutcome.NOT_CHECKED, absent.reason, is_incomplete=absent.why.is_incomplete)
