"""The words of a diagnosis, for people and as JSON.

In Kafka: nothing.
"""

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.doctor.diagnosis import AppliedRule, Diagnosis, RuleOutcome
from barnabas.doctor.finding import Danger, Finding, MendingCommand
from barnabas.doctor.rules.registration import DoctorRule
from barnabas.doctor.words import some

__all__ = ["command_text", "diagnosis_document", "list_of_rules", "reassignment_document", "report_lines"]

WIDTH = 80


def report_lines(diagnosis: Diagnosis, connection: Sequence[str]) -> Iterator[str]:
    """The report, in lines of at most 80 columns where the names in it are not longer.

    ``connection`` are the options with which commands reach the cluster."""
    heading: Danger | None = None
    for number, finding in enumerate(diagnosis.findings, 1):
        if finding.danger is not heading and finding.danger is not None:
            heading = finding.danger
            yield f"{heading.words.upper()}"
            yield ""
        yield from _finding_lines(number, finding, connection)
        yield ""
    yield from _summary(diagnosis)


def _finding_lines(number: int, finding: Finding, connection: Sequence[str]) -> Iterator[str]:
    yield from _wrapped(finding.sentence, f"{number}. ", "   ")
    yield f"   [{finding.rule}]"
    for line in finding.evidence:
        yield from _wrapped(line, "   - ", "     ")
    for mend in finding.mends:
        if isinstance(mend, MendingCommand):
            yield from _command_lines(command_words(mend, connection))
        else:
            yield from _wrapped(_advice(mend), "   > ", "     ")


def _advice(mend: str) -> str:
    """As a sentence begins."""
    return f"{mend[:1].upper()}{mend[1:]}"


def _wrapped(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def command_words(command: MendingCommand, connection: Sequence[str]) -> list[str]:
    """The words of a command line."""
    return ["barnabas", command.name, *(connection if command.connects else ()), *command.arguments]


def command_text(command: MendingCommand, connection: Sequence[str]) -> str:
    """A command line for a shell."""
    return shlex.join(command_words(command, connection))


def _command_lines(words: Sequence[str]) -> Iterator[str]:
    """A command over several lines, which a shell takes as one."""
    line = "   $"
    for word in map(shlex.quote, words):
        if len(line) + 1 + len(word) + 2 > WIDTH and line.strip() not in ("$", ""):
            yield f"{line} \\"
            line = "      "
        line = f"{line} {word}"
    yield line


def _summary(diagnosis: Diagnosis) -> Iterator[str]:
    by_outcome = {outcome: [check for check in diagnosis.checks if check.outcome is outcome] for outcome in RuleOutcome}
    count = len(diagnosis.findings)
    found = f"{count} finding{'' if count == 1 else 's'}" if count else "Nothing is wrong"
    if not count and diagnosis.is_incomplete:
        found = "Nothing is wrong in what was seen"
    checked = len(by_outcome[RuleOutcome.FOUND]) + len(by_outcome[RuleOutcome.PASSED])
    was = "was" if checked == 1 else "were"
    yield from _wrapped(f"{found}; {checked} of {len(diagnosis.checks)} rules {was} checked.", "", "")
    for outcome in (RuleOutcome.NOT_CHECKED, RuleOutcome.NOT_APPLICABLE):
        for reason, names in _by_reason(by_outcome[outcome]).items():
            yield from _wrapped(f"{outcome.value.capitalize()}: {some(names)}: {_ended(reason)}", "", "  ")
    for line, names in _gaps(diagnosis.checks).items():
        yield from _wrapped(f"Checked in part: {some(names)}: {line}.", "", "  ")


def _ended(text: str) -> str:
    """A sentence; a reason may be a question."""
    return text if text.endswith(("?", ".")) else f"{text}."


def _by_reason(checks: Iterable[AppliedRule]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for check in checks:
        found.setdefault(check.reason, []).append(check.rule.name)
    return found


def _gaps(checks: Iterable[AppliedRule]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for check in checks:
        subjects: dict[str, list[str]] = {}
        for gap in check.gaps:
            subjects.setdefault(gap.absent.reason, []).append(gap.subject)
        for reason, names in subjects.items():
            found.setdefault(f"{some(names)} not seen ({reason})", []).append(check.rule.name)
    return found


def diagnosis_document(diagnosis: Diagnosis, connection: Sequence[str]) -> dict[str, Any]:
    """The report as JSON, with the names of all subjects."""
    return {
        "findings": [
            {
                "rule": finding.rule,
                "danger": None if finding.danger is None else finding.danger.name.lower(),
                "sentence": finding.sentence,
                "subjects": list(finding.subjects),
                "evidence": list(finding.evidence),
                "mends": [
                    {"command": command_text(mend, connection)}
                    if isinstance(mend, MendingCommand)
                    else {"advice": _advice(mend)}
                    for mend in finding.mends
                ],
            }
            for finding in diagnosis.findings
        ],
        "rules": [
            {
                "rule": check.rule.name,
                "outcome": check.outcome.value,
                "reason": check.reason or None,
                "not_seen": [
                    {"subject": gap.subject, "why": gap.absent.why.value, "reason": gap.absent.reason}
                    for gap in check.gaps
                ],
            }
            for check in diagnosis.checks
        ],
        "complete": not diagnosis.is_incomplete,
    }


def reassignment_document(moves: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """Moves as the file that `reassign-partitions` takes."""
    return {
        "version": 1,
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
            for each, replicas in sorted(moves.items())
        ],
    }


def list_of_rules(rules: Iterable[DoctorRule]) -> list[dict[str, str]]:
    """The rules, the most dangerous first."""
    return [
        {"rule": rule.name, "danger": rule.danger.name.lower(), "finds": rule.summary}
        for rule in sorted(rules, key=lambda each: each.danger)
    ]
