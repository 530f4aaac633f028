"""Every message against codecs that are not ours: kio and kafka-python."""

import datetime
import importlib
import io
from enum import Enum
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from barnabas.base.ids import ZERO_UUID
from barnabas.wire.kafka.codec import decode, encode
from barnabas.wire.kafka.schema import Struct
from support.kafka_messages import TAME, all_versions, arbitrary, name_of

OF_APIS = [case for case in all_versions() if case[0].API_KEY >= 0]
# Requests between brokers in ZooKeeper mode, which no other Python codec has, are compared with
# Apache's in the interop tests, and their layouts with the declarations' here by round trips.


def kio_schema(kind: type, version: int) -> Any:
    load = load_request_schema if kind.__name__.endswith("Request") else load_response_schema
    try:
        return load(kind.API_KEY, version)
    except Exception:  # kio raises several kinds for what it does not have
        return None


def plain(value: Any) -> Any:
    """A value of another codec in our terms."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, set):
        return sum(1 << bit for bit in value)  # kafka-python takes bit fields of operations apart
    return value


def attribute(theirs: Any, name: str) -> Any:
    """A field by the names that the others give it."""
    for known in (name, name.removesuffix("_ms"), name.replace("kraft", "k_raft"), f"{name}_"):
        if hasattr(theirs, known):
            return getattr(theirs, known)
    raise AssertionError(f"{theirs!r} has no {name}")


def assert_says_the_same(ours: Any, theirs: Any, version: int, path: str) -> None:
    if isinstance(ours, Struct):
        for field in ours.FIELDS:
            if version not in field.versions:
                continue
            value = getattr(ours, field.name)
            other = attribute(theirs, field.name)
            if value is None and field.kind == "struct" and field.tag is not None:
                continue
            assert_says_the_same(value, other, version, f"{path}.{field.name}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), path
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_says_the_same(mine, other, version, f"{path}[{number}]")
    elif ours == ZERO_UUID:
        assert plain(theirs) in (None, ZERO_UUID), path
    else:
        assert plain(ours) == plain(theirs), path


@pytest.mark.parametrize("case", [case for case in OF_APIS if kio_schema(*case)], ids=name_of)
def test_kio_reads_what_we_write_and_we_read_what_it_writes(case) -> None:
    """Field by field, and byte by byte on the way back."""
    kind, version = case
    schema = kio_schema(kind, version)
    for seed in range(3):
        message = arbitrary(kind, version, Random(seed), TAME)
        encoded = bytes(encode(message, version))
        theirs, size = entity_reader(schema)(encoded, 0)
        assert size == len(encoded)
        assert_says_the_same(message, theirs, version, kind.__name__)
        out = io.BytesIO()
        entity_writer(schema)(out, theirs)
        assert decode(kind, version, out.getvalue()) == message


@cache
def kafka_python_classes() -> dict[str, Any]:
    found = {}
    for module in ("admin", "consumer", "producer", "metadata", "sasl"):
        found.update(vars(importlib.import_module(f"kafka.protocol.{module}")))
    return found


# Reshaped by kafka-python after decoding: fields under other names, an answer in
# version 0 where it sees one.
KAFKA_PYTHON_RESHAPES = {
    ("ApiVersionsResponse", 1),
    ("DescribeClusterResponse", 0),
    ("MetadataResponse", 8),
}


def is_in_kafka_python(kind: type, version: int) -> bool:
    """Whether it has this version, and leaves the message in its shape."""
    theirs = kafka_python_classes().get(kind.__name__)
    if theirs is None or not theirs.min_version <= version <= theirs.max_version:
        return False
    return not any(kind.__name__ == name and version >= since for name, since in KAFKA_PYTHON_RESHAPES)


@pytest.mark.parametrize("case", [case for case in OF_APIS if is_in_kafka_python(*case)], ids=name_of)
def test_kafka_python_reads_what_we_write_and_we_read_what_it_writes(case) -> None:
    """Field by field, and byte by byte on the way back."""
    kind, version = case
    theirs_kind = kafka_python_classes()[kind.__name__]
    for seed in range(3):
        message = arbitrary(kind, version, Random(seed), TAME)
        encoded = bytes(encode(message, version))
        theirs = theirs_kind.decode(encoded, version=version)
        assert_says_the_same(message, theirs, version, kind.__name__)
        theirs._header = None
        assert decode(kind, version, bytes(theirs.encode(version=version))) == message
