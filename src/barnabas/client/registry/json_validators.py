"""Validation by JSON Schema whose patterns take a bounded time.

A schema comes from a registry or from a request, and jsonschema matches its patterns with Python's
``re``, for which ``^(a+)+$`` takes minutes and holds all threads. Here the keywords that have
patterns match them as RE2 does, and a value whose matching takes too many steps is refused. What
RE2 does not have, such as lookarounds, makes a schema invalid. Patterns in the documents that a
schema refers to are compiled when a value meets them.

Kafka has no counterpart; Confluent's client has JsonSchema.validate.
"""

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import attrs
from jsonschema import FormatChecker, SchemaError, ValidationError
from jsonschema.validators import Draft202012Validator, extend, validator_for
from referencing import Registry
from referencing.jsonschema import lookup_recursive_ref

from barnabas.base.re2 import Re2Error, Re2Pattern, json_schema_pattern

__all__ = ["JsonValidator"]

_MOST_LOOKS = 500_000
"""Looks at instructions of patterns for one value, some tenths of a second."""
_BEGINNING = 3
"""Looks that any match costs."""
_TEXT_PER_LOOK = 8
"""Characters that cost as much as a look where nothing new is met."""
_COMPILING = 10
"""Looks that an instruction costs when it is compiled."""
_MOST_KEPT = 500
"""What a pattern keeps from one value to the next."""

_Errors = Iterator[ValidationError]


class _Patterns:
    """The patterns of a schema, compiled once."""

    def __init__(self) -> None:
        self._compiled: dict[str, Re2Pattern] = {}

    def __contains__(self, pattern: str) -> bool:
        return pattern in self._compiled

    def compiled(self, pattern: str) -> Re2Pattern:
        found = self._compiled.get(pattern)
        if found is None:
            try:
                found = self._compiled[pattern] = json_schema_pattern(pattern)
            except Re2Error as error:
                raise Re2Error(f"the pattern {pattern[:100]!r} is not one of RE2: {error}") from error
        return found

    def tidy(self) -> None:
        """Drop what patterns have learned from unusual texts."""
        for each in self._compiled.values():
            each.keep_at_most(_MOST_KEPT)


class _Matching:
    """Matches texts with patterns while one value is validated."""

    def __init__(self, patterns: _Patterns) -> None:
        self._patterns = patterns
        self._left = _MOST_LOOKS

    def fits(self, pattern: str, text: str) -> bool:
        """Raises ValidationError; an error that is yielded would be taken for a text that does not
        fit, which ``not`` turns into one that does."""
        is_new = pattern not in self._patterns
        try:
            compiled = self._patterns.compiled(pattern)
        except Re2Error as error:
            raise ValidationError(str(error)) from error
        self._pay(_BEGINNING + len(text) // _TEXT_PER_LOOK + (compiled.size * _COMPILING if is_new else 0), pattern)
        task = compiled.matches(text)
        while True:
            before = compiled.looks
            try:
                next(task)
            except StopIteration as ended:
                return bool(ended.value)
            self._pay(compiled.looks - before, pattern)

    def _pay(self, looks: int, pattern: str) -> None:
        self._left -= looks
        if self._left < 0:
            raise ValidationError(f"the value takes too long to be matched with the pattern {pattern[:100]!r}")


_MATCHING: ContextVar[_Matching] = ContextVar("matching")


class JsonValidator:
    """Validates the values of a schema; nothing is fetched that is not in ``registry``.

    Raises jsonschema's SchemaError. ``default`` is the class for a schema that names no draft."""

    def __init__(self, document: Any, registry: "Registry[Any]", default: Any = Draft202012Validator) -> None:
        kind: Any = validator_for(document, default=default)
        self._patterns = _Patterns()
        _check_schema(kind, document, self._patterns)
        self._validator = _bounded(kind)(document, registry=registry)

    def validate(self, value: Any) -> None:
        """Raises jsonschema's ValidationError."""
        token = _MATCHING.set(_Matching(self._patterns))
        try:
            self._validator.validate(value)
        finally:
            _MATCHING.reset(token)
            self._patterns.tidy()


def _check_schema(kind: Any, document: Any, patterns: _Patterns) -> None:
    """Meta-schemas say where a pattern stands by the format ``regex``."""

    def is_pattern(text: object) -> bool:
        return not isinstance(text, str) or patterns.compiled(text) is not None

    checker = FormatChecker(formats=())
    checker.checkers = {**kind.FORMAT_CHECKER.checkers, "regex": (is_pattern, Re2Error)}
    try:
        kind.check_schema(document, format_checker=checker)
    except SchemaError as error:
        if isinstance(error.cause, Re2Error):
            error.message = str(error.cause)
        raise


@lru_cache(32)
def _bounded(kind: Any) -> Any:
    """The validators of a draft, with our own functions for keywords that have patterns."""
    own: Mapping[str, Callable[..., _Errors]] = {
        "additionalProperties": _additional_properties,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "unevaluatedProperties": _unevaluated_properties,
    }
    made: Any = extend(kind, {name: function for name, function in own.items() if name in kind.VALIDATORS})
    evolve = made.evolve

    def evolve_bounded(validator: Any, **changes: Any) -> Any:
        """A schema inside of the schema that names its draft gets jsonschema's class for it."""
        other = evolve(validator, **changes)
        named: Any = type(other)
        if named is made:
            return other
        fields = {each.alias: getattr(other, each.name) for each in attrs.fields(named) if each.init}
        return _bounded(named)(**fields)

    made.evolve = evolve_bounded
    return made


# Keywords


def _fits(pattern: str, text: str) -> bool:
    return _MATCHING.get().fits(pattern, text)


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> _Errors:
    if validator.is_type(instance, "string") and not _fits(pattern, instance):
        yield ValidationError(f"{instance!r:.100} does not match {pattern!r:.100}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any) -> _Errors:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for name, value in instance.items():
            if _fits(pattern, name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> _Errors:
    if not validator.is_type(instance, "object") or allowed is True:
        return
    others = [name for name in instance if not _is_named(schema, name)]
    if allowed is False:
        if others:
            yield ValidationError(f"additional properties are not allowed: {_names(others)}")
        return
    for name in others:
        yield from validator.descend(instance[name], allowed, path=name)


def _unevaluated_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> _Errors:
    if not validator.is_type(instance, "object") or allowed is True:
        return
    own = {name: value for name, value in schema.items() if name != "unevaluatedProperties"}
    evaluated = _evaluated(validator, instance, own)
    others = [name for name in instance if name not in evaluated]
    if allowed is False:
        if others:
            yield ValidationError(f"unevaluated properties are not allowed: {_names(others)}")
        return
    for name in others:
        yield from validator.descend(instance[name], allowed, path=name)


def _evaluated(validator: Any, instance: Mapping[str, Any], schema: Any) -> set[str]:
    """The properties for which a schema, or one that it applies, has said what they must be."""
    if not isinstance(schema, dict):
        return set()
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return set(instance)
    found = {name for name in instance if _is_named(schema, name)}
    for resolved in _referred(validator, schema):
        other = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
        found |= _evaluated(other, instance, resolved.contents)
    for each in _applied(validator, instance, schema):
        found |= _evaluated(validator, instance, each)
    return found


def _referred(validator: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    resolver = validator._resolver  # jsonschema has no public name for it
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema and keyword in validator.VALIDATORS:
            yield resolver.lookup(schema[keyword])
    if "$recursiveRef" in schema and "$recursiveRef" in validator.VALIDATORS:
        yield lookup_recursive_ref(resolver)


def _applied(validator: Any, instance: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas inside of a schema that a value fits and that are for the same value."""

    def holds(subschema: Any) -> bool:
        return next(validator.descend(instance, subschema), None) is None

    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from filter(holds, schema.get(keyword, ()))
    for name, each in schema.get("dependentSchemas", {}).items():
        if name in instance:
            yield each
    if "if" in schema:
        if holds(schema["if"]):
            yield schema["if"]
            yield schema.get("then", True)
        else:
            yield schema.get("else", True)


def _is_named(schema: Mapping[str, Any], name: str) -> bool:
    """Whether a property is one of ``properties`` or ``patternProperties``."""
    return name in schema.get("properties", {}) or any(
        _fits(pattern, name) for pattern in schema.get("patternProperties", {})
    )


def _names(names: list[str]) -> str:
    return f"{', '.join(map(repr, sorted(names))):.300}"
