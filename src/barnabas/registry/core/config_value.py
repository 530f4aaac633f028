"""A configuration of a subject, a context or all.

In Confluent's registry: `ConfigValue`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from barnabas.registry.core.json_values import ShapeError, json_object, optional_boolean, optional_string
from barnabas.registry.core.keys import encode_json
from barnabas.registry.core.metadata import Metadata
from barnabas.registry.core.rules import RuleSet
from barnabas.registry.formats.schema import CompatibilityLevel

__all__ = ["ConfigValue", "InvalidLevelError", "merge_configs"]


class InvalidLevelError(ValueError):
    """A text is no level of compatibility."""


_POLICIES = ("LOGICAL", "STRICT", "LENIENT")
# Checks that this policy asks for, and that nothing here does: a request for it is refused.
_NOT_SUPPORTED = "LOGICAL"
# The fields in Confluent's order, with their names in records and answers.
_NAMES = {
    "alias": "alias",
    "alias_for_deks": "aliasForDeks",
    "normalize": "normalize",
    "validate_fields": "validateFields",
    "validate_new_schemas": "validateNewSchemas",
    "validate_rules": "validateRules",
    "compatibility_level": "compatibilityLevel",
    "compatibility_policy": "compatibilityPolicy",
    "compatibility_group": "compatibilityGroup",
    "default_metadata": "defaultMetadata",
    "override_metadata": "overrideMetadata",
    "default_rule_set": "defaultRuleSet",
    "override_rule_set": "overrideRuleSet",
}
_NAMES_IN_REQUESTS = _NAMES | {"compatibility_level": "compatibility"}


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """What is configured; what is None is not."""

    alias: str | None = None
    alias_for_deks: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    validate_new_schemas: bool | None = None
    validate_rules: bool | None = None
    compatibility_level: CompatibilityLevel | None = None
    compatibility_policy: str | None = None
    compatibility_group: str | None = None
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None

    @classmethod
    def decode(cls, value: object) -> Self:
        """The configuration in a record. Raises ShapeError or InvalidLevelError."""
        body = json_object(value, "the value")
        return cls(**{name: _field(body, name, _NAMES) for name in _NAMES})

    def update(self, value: object) -> Self:
        """This configuration with the fields of a request; null takes a field away.

        Raises ShapeError or InvalidLevelError."""
        body = json_object(value, "the body")
        if str(body.get("compatibilityPolicy")).upper() == _NOT_SUPPORTED:
            raise ShapeError(f"compatibilityPolicy {_NOT_SUPPORTED} is not supported")
        named = {
            name: _field(body, name, _NAMES_IN_REQUESTS) for name, said in _NAMES_IN_REQUESTS.items() if said in body
        }
        return replace(self, **named)

    def encode(self, subject: str | None) -> bytes:
        """The value of the record."""
        return encode_json(({"subject": subject} if subject else {}) | self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The configuration in an answer: Confluent's entity Config."""
        return self._named(_NAMES)

    def to_request_json(self) -> dict[str, Any]:
        """The configuration as a request words it, which is the answer to an update."""
        return self._named(_NAMES_IN_REQUESTS)

    @property
    def has_defaults_or_overrides(self) -> bool:
        """Whether it gives schemas metadata or rules that their requests do not name."""
        given = (self.default_metadata, self.override_metadata, self.default_rule_set, self.override_rule_set)
        return any(each is not None for each in given)

    def _named(self, names: Mapping[str, str]) -> dict[str, Any]:
        body: dict[str, Any] = {}
        for field, value in _values(self).items():
            if value is not None and value != "":
                body[names[field]] = value.to_json() if isinstance(value, Metadata | RuleSet) else value
        return body


def merge_configs(of_all: ConfigValue, of_subject: ConfigValue) -> ConfigValue:
    """What holds for a subject that has a configuration: its own, and else some of the global one.

    Level, aliases, metadata and rules are never inherited, as in Confluent's registry."""
    inherited = ("normalize", "validate_fields", "validate_new_schemas", "validate_rules")
    missing = (*inherited, "compatibility_policy", "compatibility_group")
    own, general = _values(of_subject), _values(of_all)
    return replace(of_subject, **{name: general[name] for name in missing if own[name] is None})


def _values(config: ConfigValue) -> dict[str, Any]:
    """The fields, in Confluent's order."""
    return {
        "alias": config.alias,
        "alias_for_deks": config.alias_for_deks,
        "normalize": config.normalize,
        "validate_fields": config.validate_fields,
        "validate_new_schemas": config.validate_new_schemas,
        "validate_rules": config.validate_rules,
        "compatibility_level": config.compatibility_level,
        "compatibility_policy": config.compatibility_policy,
        "compatibility_group": config.compatibility_group,
        "default_metadata": config.default_metadata,
        "override_metadata": config.override_metadata,
        "default_rule_set": config.default_rule_set,
        "override_rule_set": config.override_rule_set,
    }


def _field(body: Mapping[str, Any], field: str, names: Mapping[str, str]) -> Any:
    name = names[field]
    if field == "compatibility_level":
        return _level(optional_string(body, name))
    if field == "compatibility_policy":
        return _policy(optional_string(body, name))
    if field.endswith("_metadata"):
        return Metadata.from_json(body.get(name))
    if field.endswith("_rule_set"):
        return RuleSet.from_json(body.get(name))
    if field.startswith(("normalize", "validate_")):
        return optional_boolean(body, name)
    return optional_string(body, name)


def _level(text: str | None) -> CompatibilityLevel | None:
    if text is None:
        return None
    try:
        return CompatibilityLevel(text.upper())
    except ValueError:
        raise InvalidLevelError(text) from None


def _policy(text: str | None) -> str | None:
    if text is not None and text.upper() not in _POLICIES:
        raise ShapeError(f"compatibilityPolicy is none of {', '.join(_POLICIES)}")
    return text and text.upper()
