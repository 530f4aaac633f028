"""Every message in every version against Apache Kafka's own classes: they read ours,
and write the same bytes."""

import base64
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.base.ids import uuid_text
from barnabas.wire.kafka.codec import encode
from barnabas.wire.kafka.schema import Field, Struct
from support.kafka_messages import all_versions, arbitrary, name_of
from support.needs import needs_reference
from support.reference import apache_tool

ECHO = Path(__file__).parents[1] / "support" / "MessageEcho.java"
STORED = {
    "Assignment": "org.apache.kafka.common.message.ConsumerProtocolAssignment",
    "Subscription": "org.apache.kafka.common.message.ConsumerProtocolSubscription",
    "GroupMetadataKey": "org.apache.kafka.coordinator.group.generated.GroupMetadataKey",
    "GroupMetadataValue": "org.apache.kafka.coordinator.group.generated.GroupMetadataValue",
    "OffsetCommitKey": "org.apache.kafka.coordinator.group.generated.OffsetCommitKey",
    "OffsetCommitValue": "org.apache.kafka.coordinator.group.generated.OffsetCommitValue",
    "TransactionLogKey": "org.apache.kafka.coordinator.transaction.generated.TransactionLogKey",
    "TransactionLogValue": "org.apache.kafka.coordinator.transaction.generated.TransactionLogValue",
}

# Changed after the preview of share groups in 3.9.
PREVIEWS = {("3.9.1", "ReadShareGroupStateSummaryResponse")}


def java_class(kind: type[Struct]) -> str:
    return STORED.get(kind.__name__) or f"org.apache.kafka.common.message.{kind.__name__}Data"


def assert_json_says_the_same(value: Any, said: Any, version: int, path: str, field: Field | None = None) -> None:
    kind = field.kind if field else ""
    element = field.element if field else None
    if isinstance(value, Struct):
        by_name = {name.lower(): member for name, member in said.items()}
        for member in value.FIELDS:
            if version not in member.versions or member.kind == "records":
                continue
            name = member.name.replace("_", "")
            if name not in by_name:
                assert member.tag is not None, f"{path}.{member.name}"
                continue
            inner = getattr(value, member.name)
            assert_json_says_the_same(inner, by_name[name], version, f"{path}.{member.name}", member)
    elif isinstance(value, list):
        assert len(value) == len(said), path
        item_field = None if isinstance(element, type) else Field(str(element), "0+", None)
        for number, (item, said_item) in enumerate(zip(value, said, strict=True)):
            assert_json_says_the_same(item, said_item, version, f"{path}[{number}]", item_field)
    elif kind == "uuid":
        assert said == uuid_text(value), path
    elif kind == "bytes" and value is not None:
        assert base64.b64decode(said) == value, path
    else:
        assert said == value, path


@needs_reference
@pytest.mark.interop
@pytest.mark.java
@pytest.mark.parametrize("release", ["3.9.1", "4.3.0"])
def test_apache_kafka_reads_and_writes_every_message_as_we_do(release: str) -> None:
    """Its JSON of our bytes says what we meant, and its bytes are ours."""
    cases = []
    for kind, version in all_versions():
        for seed in range(2):
            message = arbitrary(kind, version, Random(seed))
            cases.append((kind, version, message, bytes(encode(message, version))))
    lines = [f"{java_class(kind)} {version} {data.hex()}" for kind, version, _, data in cases]
    done = apache_tool(str(ECHO), version=release, text="\n".join(lines) + "\n")
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases), done.stderr
    compared = set()
    wrong = []
    for (kind, version, message, data), answer in zip(cases, answers, strict=True):
        first, _, rest = answer.partition(" ")
        if (release, kind.__name__) in PREVIEWS:
            continue
        if first == "error" and ("UnsupportedVersion" in rest or "ClassNotFound" in rest):
            continue  # the release has no such version; the other one has it
        if first == "error" or bytes.fromhex(first) != data:
            wrong.append((name_of((kind, version)), answer[:300]))
            continue
        assert_json_says_the_same(message, json.loads(rest), version, f"{kind.__name__} v{version}")
        compared.add(name_of((kind, version)))
    assert not wrong, wrong[:5]
    assert len(compared) >= 570, len(compared)
