"""The rules of a schema: stored, merged, checked in form, and answered; nothing executes them.

In Confluent's registry: `RuleSet` and `Rule`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, TypeVar

from barnabas.registry.core.json_values import (
    ShapeError,
    json_object,
    optional_boolean,
    optional_string,
    strings,
    texts,
)

__all__ = ["Rule", "RuleError", "RuleMode", "RuleSet", "merge_rule_sets"]

E = TypeVar("E", bound=StrEnum)

_LONGEST_NAME = 256


class RuleError(ValueError):
    """A rule is not allowed; the text says why."""


class RuleKind(StrEnum):
    """Whether a rule changes a message or judges it."""

    TRANSFORM = "TRANSFORM"
    CONDITION = "CONDITION"


class RuleMode(StrEnum):
    """When a rule applies."""

    UPGRADE = "UPGRADE"
    DOWNGRADE = "DOWNGRADE"
    UPDOWN = "UPDOWN"
    WRITE = "WRITE"
    READ = "READ"
    WRITEREAD = "WRITEREAD"


class ExecutionEnvironment(StrEnum):
    """Where rules apply."""

    ALL = "ALL"
    CLIENT = "CLIENT"
    GATEWAY = "GATEWAY"
    SERVER = "SERVER"
    NONE = "NONE"


_MIGRATION_MODES = (RuleMode.UPGRADE, RuleMode.DOWNGRADE, RuleMode.UPDOWN)
_MODES_OF_TWO_ACTIONS = (RuleMode.WRITEREAD, RuleMode.UPDOWN)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, as Confluent's entity of the same name."""

    name: str | None
    doc: str | None
    kind: RuleKind | None
    mode: RuleMode | None
    type: str | None
    tags: tuple[str, ...]
    params: tuple[tuple[str, str], ...]
    expr: str | None
    on_success: str | None
    on_failure: str | None
    disabled: bool

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Raises ShapeError."""
        body = json_object(value, "a rule")
        kind = optional_string(body, "kind")
        mode = optional_string(body, "mode")
        return cls(
            name=optional_string(body, "name"),
            doc=optional_string(body, "doc"),
            kind=None if kind is None else _member(RuleKind, kind),
            mode=None if mode is None else _member(RuleMode, mode),
            type=optional_string(body, "type"),
            tags=tuple(sorted(set(strings(body.get("tags"), "tags")))),
            params=texts(body.get("params"), "params"),
            expr=optional_string(body, "expr"),
            on_success=optional_string(body, "onSuccess"),
            on_failure=optional_string(body, "onFailure"),
            disabled=bool(optional_boolean(body, "disabled")),
        )

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": self.name,
            "doc": self.doc,
            "kind": self.kind,
            "mode": self.mode,
            "type": self.type,
            "tags": list(self.tags),
            "params": dict(self.params),
            "expr": self.expr,
            "onSuccess": self.on_success,
            "onFailure": self.on_failure,
        }
        return {name: value for name, value in body.items() if value} | {"disabled": self.disabled}

    def update_hash(self, digest: "hashlib._Hash") -> None:
        for text in (self.name, self.doc, self.kind, self.mode, self.type, *self.tags):
            digest.update((text or "").encode())
        for name, value in self.params:
            digest.update(name.encode())
            digest.update(value.encode())
        for text in (self.expr, self.on_success, self.on_failure):
            digest.update((text or "").encode())
        if self.disabled:
            digest.update(b"\x01")

    def check(self) -> None:
        """Raises RuleError when the form is not allowed."""
        if self.name is None:
            raise RuleError("Missing rule name")
        if not self.name:
            raise RuleError("Empty rule name")
        if len(self.name) > _LONGEST_NAME:
            raise RuleError("Rule name too long")
        if not (self.name[0].isalpha() or self.name[0] == "_"):
            raise RuleError(f"Illegal initial character in rule name: {self.name}")
        if not all(each.isalnum() or each in "_-" for each in self.name):
            raise RuleError(f"Illegal character in rule name: {self.name}")
        if self.type is None:
            raise RuleError("Missing rule type")
        actions = (self.on_success or "", self.on_failure or "")
        if self.mode and self.mode not in _MODES_OF_TWO_ACTIONS and any("," in each for each in actions):
            raise RuleError("Multiple actions only valid with WRITEREAD and UPDOWN")


def _member(kinds: type[E], text: str) -> E:
    try:
        return kinds(text)
    except ValueError:
        raise ShapeError(f"{text} is none of {', '.join(kinds)}") from None


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a schema for migration, for the domain and for encoding."""

    migration_rules: tuple[Rule, ...] = ()
    domain_rules: tuple[Rule, ...] = ()
    encoding_rules: tuple[Rule, ...] = ()
    enable_at: ExecutionEnvironment | None = None

    @classmethod
    def from_json(cls, value: object) -> Self | None:
        """Raises ShapeError."""
        if value is None:
            return None
        body = json_object(value, "ruleSet")
        enable_at = optional_string(body, "enableAt")
        return cls(
            _rules(body.get("migrationRules")),
            _rules(body.get("domainRules")),
            _rules(body.get("encodingRules")),
            None if enable_at is None else _member(ExecutionEnvironment, enable_at),
        )

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "migrationRules": [rule.to_json() for rule in self.migration_rules],
            "domainRules": [rule.to_json() for rule in self.domain_rules],
            "encodingRules": [rule.to_json() for rule in self.encoding_rules],
            "enableAt": self.enable_at,
        }
        return {name: value for name, value in body.items() if value}

    def update_hash(self, digest: "hashlib._Hash") -> None:
        for rule in self._all():
            rule.update_hash(digest)
        digest.update((self.enable_at or "").encode())

    def has_type(self, rule_type: str) -> bool:
        return any(rule.type == rule_type for rule in self._all())

    def check(self) -> None:
        """Raises RuleError when a rule is not allowed, or two have one name."""
        names: set[str | None] = set()
        for rule in self._all():
            if rule.name in names:
                raise RuleError(f"Found rule with duplicate name '{rule.name}'")
            names.add(rule.name)
            rule.check()
        if any(rule.mode not in _MIGRATION_MODES for rule in self.migration_rules):
            raise RuleError("Migration rules can only be UPGRADE, DOWNGRADE, UPDOWN")
        if any(rule.mode is None or rule.mode in _MIGRATION_MODES for rule in self.domain_rules):
            raise RuleError("Domain rules can only be WRITE, READ, WRITEREAD")
        if any(rule.mode is None or rule.mode in _MIGRATION_MODES for rule in self.encoding_rules):
            raise RuleError("Encoding rules can only be WRITE, READ, WRITEREAD")

    def _all(self) -> tuple[Rule, ...]:
        return self.migration_rules + self.domain_rules + self.encoding_rules


def merge_rule_sets(old: RuleSet | None, new: RuleSet | None) -> RuleSet | None:
    """The rules of both; a new rule takes the place of an old one of its name."""
    if old is None or new is None:
        return old or new
    return RuleSet(
        _merge(old.migration_rules, new.migration_rules),
        _merge(old.domain_rules, new.domain_rules),
        _merge(old.encoding_rules, new.encoding_rules),
        new.enable_at or old.enable_at,
    )


def _merge(old: Sequence[Rule], new: Sequence[Rule]) -> tuple[Rule, ...]:
    names = {rule.name for rule in new}
    return (*(rule for rule in old if rule.name not in names), *new)


def _rules(value: object) -> tuple[Rule, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ShapeError("rules are not a list")
    return tuple(Rule.from_json(each) for each in value)
