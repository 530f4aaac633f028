"""The doctor in a test's process: what it finds at a cluster, and its commands."""

from collections.abc import Mapping
from typing import Any

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.network.deadline import Deadline
from barnabas.doctor.diagnosis import AppliedRule, Diagnosis, diagnose
from barnabas.doctor.finding import Finding, MendingCommand
from barnabas.doctor.reading import Sources, read_evidence
from barnabas.doctor.report import command_words
from barnabas.doctor.rules import ALL_RULES
from support.servers import barnabas

__all__ = ["check_of", "diagnosis_of", "findings_at", "mend"]


def diagnosis_of(bootstrap: str, *names: str, properties: Mapping[str, str] | None = None, **sources: Any) -> Diagnosis:
    """What these rules, or all, say of the cluster."""
    rules = [each for each in ALL_RULES if not names or each.name in names]
    with AdminConnection(bootstrap, dict(properties or {}), Deadline(20)) as connection:
        evidence = read_evidence(
            Sources(connection, **sources), dict.fromkeys(kind for each in rules for kind in each.takes)
        )
    return diagnose(evidence, rules)


def findings_at(bootstrap: str, *names: str, **options: Any) -> dict[str, Finding]:
    """The findings by their rules."""
    return {each.rule: each for each in diagnosis_of(bootstrap, *names, **options).findings}


def check_of(diagnosis: Diagnosis, name: str) -> AppliedRule:
    """What became of a rule."""
    (found,) = (each for each in diagnosis.checks if each.rule.name == name)
    return found


def mend(finding: Finding, bootstrap: str) -> None:
    """Run the finding's commands, as a user would."""
    for each in finding.mends:
        if isinstance(each, MendingCommand):
            done = barnabas(*command_words(each, ["--bootstrap-server", bootstrap])[1:])
            assert done.returncode == 0, done.stdout + done.stderr
