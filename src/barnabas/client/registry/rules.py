"""Rules that a schema has in the registry, and whether a codec may pass them by. Pure.

A rule set has rules of three kinds: of a domain (conditions and transformations of values, such as
the encryption of fields), of the encoding (of the bytes, such as the encryption of a payload), and
of migrations between versions. A rule that is passed by in silence would leave a field in clear
text, or give a program a value that it does not understand. So what is not executed is refused.

Kafka has no counterpart; Confluent's client has RuleSet, RuleExecutor and RuleRegistry.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["rules_problem"]

_WRITE = ("WRITE", "WRITEREAD")
_READ = ("READ", "WRITEREAD")
_MIGRATION = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_OF_CLIENTS = ("", "ALL", "CLIENT")
_ENCRYPTING = ("ENCRYPT", "ENCRYPT_PAYLOAD")


def rules_problem(
    rule_set: Mapping[str, Any] | None,
    *,
    writes: bool,
    migrates: bool = False,
    is_executed: Callable[[str], bool] = lambda _: False,
) -> str:
    """Why values of a schema with this rule set cannot be written, or read; "" if they can.

    ``rule_set`` is the registry's document, ``migrates`` whether values are brought to the latest
    version, ``is_executed`` says of a rule's type whether there is something that executes it.
    """
    found = [rule for rule in _rules(rule_set, writes=writes, migrates=migrates) if not is_executed(_type_of(rule))]
    if not found:
        return ""
    named = ", ".join(f"{rule.get('name') or '(no name)'} ({_type_of(rule) or 'no type'})" for rule in found[:5])
    rules = f"the rule{'s' if len(found) > 1 else ''} {named}"
    if writes:
        return f"its values need {rules}, which is not executed here, and a value is not written without it"
    if any(_type_of(rule) in _ENCRYPTING for rule in found):
        return f"its values are encrypted by {rules}, and are not decrypted here"
    return f"its values are read with {rules}, which is not executed here"


def _rules(rule_set: Mapping[str, Any] | None, *, writes: bool, migrates: bool) -> Iterator[Mapping[str, Any]]:
    """The rules that apply."""
    if not isinstance(rule_set, Mapping) or str(rule_set.get("enableAt") or "").upper() not in _OF_CLIENTS:
        return
    modes = _WRITE if writes else _READ
    for group, wanted in (("domainRules", modes), ("encodingRules", modes), ("migrationRules", _MIGRATION)):
        rules = rule_set.get(group) if group != "migrationRules" or migrates else None
        for rule in rules if isinstance(rules, list) else ():
            if not isinstance(rule, Mapping):
                yield {}
            elif not rule.get("disabled") and str(rule.get("mode") or wanted[0]).upper() in wanted:
                yield rule


def _type_of(rule: Mapping[str, Any]) -> str:
    return str(rule.get("type") or "").upper()
