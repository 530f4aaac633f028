"""Kafka messages with arbitrary values, made from their declarations."""

from collections.abc import Iterator
from random import Random
from typing import Any

from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.consumer_protocol import Assignment, Subscription
from barnabas.wire.kafka.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.wire.kafka.schema import Field, Message, Struct

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
# What every codec understands: kio turns error codes, times and durations into
# objects of their own.
TAME = {kind: (0, min(last, 100)) for kind, (_, last) in RANGES.items()}

Versioned = tuple[type[Message], int]


def all_messages() -> list[type[Message]]:
    """Requests and responses of every API, and the messages that are stored."""
    of_apis = [kind for key in ApiKey for kind in (api(key).request, api(key).response)]
    return [
        *of_apis,
        Assignment,
        Subscription,
        GroupMetadataKey,
        GroupMetadataValue,
        OffsetCommitKey,
        OffsetCommitValue,
        TransactionLogKey,
        TransactionLogValue,
    ]


def all_versions() -> Iterator[Versioned]:
    """Each message in each of its versions."""
    for kind in all_messages():
        for version in range(kind.VERSIONS.first, kind.VERSIONS.last + 1):
            yield kind, version


def name_of(case: Versioned) -> str:
    """``ProduceRequest-9``, for test ids."""
    return f"{case[0].__name__}-{case[1]}"


def arbitrary(kind: type[Struct], version: int, random: Random, ranges: dict[str, tuple[int, int]] = RANGES) -> Any:
    """A message or structure with a value in every field that the version has."""
    made = kind()
    for field in kind.FIELDS:
        if version in field.versions:
            setattr(made, field.name, _value(field, version, random, ranges))
    return made


def _value(field: Field, version: int, random: Random, ranges: dict[str, tuple[int, int]]) -> Any:
    if version in field.nullable and random.random() < 0.2:
        return None
    if field.kind == "struct":
        # A tagged structure that equals its default is not sent, and so comes back as None.
        made = arbitrary(field.element, version, random, ranges)
        return None if field.tag is not None and made == field.element() else made
    if field.kind == "array":
        count = random.choice((0, 1, 2, 3, 200 if isinstance(field.element, str) else 3))
        if isinstance(field.element, str):
            return [_plain(field.element, random, ranges) for _ in range(count)]
        return [arbitrary(field.element, version, random, ranges) for _ in range(count)]
    return _plain(field.kind, random, ranges)


def _plain(kind: str, random: Random, ranges: dict[str, tuple[int, int]]) -> Any:
    if kind == "bool":
        return random.random() < 0.5
    if kind == "float64":
        return random.choice((0.0, 1.5, -2.25e300))
    if kind == "uuid":
        return random.randbytes(16)
    if kind == "string":
        return random.choice(("", "a", "topic-1", "näme", "日本", "x" * 130, "y" * 300))
    if kind in ("bytes", "records"):
        return random.randbytes(random.choice((0, 1, 61, 200, 5000)))
    first, last = ranges[kind]
    return random.choice((first, last, random.randint(first, last), random.randint(max(first, -3), min(last, 3))))
