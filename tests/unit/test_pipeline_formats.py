"""Formats as they are declared, and values of Avro and Protobuf, with schemas from
files and from a registry."""

import base64
import datetime
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

pa = pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
pytest.importorskip("pyspark")

from barnabas.pipelines.formats.decoders import CORRUPT, decode_values, refused_values  # noqa: E402
from barnabas.pipelines.formats.schemas import (  # noqa: E402
    DecodingError,
    SchemaLookupError,
    open_decoder,
    open_json_refusals,
)
from barnabas.pipelines.specification.spec import SpecError, parse  # noqa: E402
from support.registry import RegistryForTests, serving, with_id  # noqa: E402

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    ],
}
AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
VALUES = {"id": 1, "at": AT, "price": None, "tags": ["a"], "state": "PAID"}
FLOW = """
name = "f"
checkpoint = "c"
[source]
bootstrap_servers = "h:1"
topics = ["t"]
[source.format]
%s
[[sinks]]
type = "topic"
topic = "o"
"""


def avro(schema: Any, values: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), values)
    return stream.getvalue()


def order_file() -> Any:
    """A file with a message of scalars, a time, a list, a nested message and a field
    that may be missing."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="tags", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    order.field.add(
        name="at", number=3, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=kinds.LABEL_OPTIONAL
    )
    item = order.nested_type.add(name="Item")
    item.field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="item", number=4, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.Item", label=kinds.LABEL_OPTIONAL
    )
    return file


def descriptor_set(folder: Path) -> Path:
    from google.protobuf import timestamp_pb2

    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(order_file())
    path = folder / "order.desc"
    path.write_bytes(files.SerializeToString())
    return path


ORDER_BYTES = b"\x08\x07" + b"\x12\x01a\x12\x01b" + b"\x1a\x02\x08\x05" + b"\x22\x03\x0a\x01s"


@pytest.fixture
def registry() -> Iterator[RegistryForTests]:
    """A registry on a free port."""
    with RegistryForTests() as found:
        yield found


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ('type = "avro"', "schema_file: is missing: give the schema in a file, or the address of a registry"),
        ('type = "avro"\nregistry = "http://h"', "columns: is missing"),
        ('type = "avro"\nregistry = "h:8081"', "registry: is 'h:8081', but must be an address"),
        (
            'type = "avro"\nregistry = "http://ann:pw@h:x"',
            r"registry: is 'http://\*\*\*@h:\*\*\*', but must be an address",
        ),
        ('type = "csv"\nregistry = "http://h"', "registry: is for json, avro and protobuf, not csv"),
        ('type = "protobuf"\nschema_file = "x.desc"', "message: is missing"),
        ('type = "avro"\nschema_file = "nothing.avsc"', "schema_file: cannot be used: .*nothing.avsc"),
        ('type = "web_log"\ncolumns = {a = "int"}', "columns: is not for the format web_log, whose columns are host, "),
        ('type = "syslog"\nrequired = ["hots"]', "required: names hots"),
    ],
)
def test_a_format_that_lacks_its_schema_is_refused(fields: str, problem: str) -> None:
    """With the field that would make it right."""
    with pytest.raises(SpecError, match=problem):
        parse(FLOW % fields)


def test_columns_come_from_a_schema_in_a_file(tmp_path: Path) -> None:
    """Avro's logical types, and Protobuf's messages, as types of Spark."""
    (tmp_path / "o.avsc").write_text(json.dumps(ORDER))
    flow = parse(FLOW % 'type = "avro"\nschema_file = "o.avsc"', file=str(tmp_path / "f.toml"))
    assert flow.source.format.columns == {
        "id": "bigint",
        "at": "timestamp",
        "price": "decimal(10,2)",
        "tags": "array<string>",
        "state": "string",
    }
    descriptor_set(tmp_path)
    text = FLOW % 'type = "protobuf"\nschema_file = "order.desc"\nmessage = "shop.%s"'
    flow = parse(text % "Order", file=str(tmp_path / "f.toml"))
    assert flow.source.format.columns == {
        "id": "bigint",
        "tags": "array<string>",
        "at": "timestamp",
        "item": "struct<`sku`:string>",
    }
    with pytest.raises(SpecError, match=r"has no message shop.Oder; it has .*shop.Order"):
        parse(text % "Oder", file=str(tmp_path / "f.toml"))


def test_avro_of_a_file_is_decoded_and_damage_is_a_reason(tmp_path: Path) -> None:
    """A value that is too long or too short does not fit."""
    (tmp_path / "o.avsc").write_text(json.dumps(ORDER))
    decode = open_decoder("avro", str(tmp_path / "o.avsc"), None, None)
    value = avro(ORDER, VALUES)
    assert decode(value) == VALUES
    with pytest.raises(DecodingError, match="1 bytes are left"):
        decode(value + b"x")
    with pytest.raises(DecodingError, match="does not fit its Avro schema"):
        decode(value[:-1])


def test_each_record_is_decoded_with_the_schema_of_its_id(registry: RegistryForTests) -> None:
    """A newer schema may come at any time; each is asked for once."""
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string"}]}
    registry.schemas = {1: json.dumps(ORDER), 2: json.dumps(newer)}
    decode = open_decoder("avro", None, registry.address, None)
    for _ in range(2):
        assert decode(with_id(1, avro(ORDER, VALUES))) == VALUES
        assert decode(with_id(2, avro(newer, {**VALUES, "note": "n"})))["note"] == "n"
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]
    with pytest.raises(DecodingError, match="the registry has no schema 3"):
        decode(with_id(3, b""))
    with pytest.raises(DecodingError, match="does not begin with a schema's id"):
        decode(b"{}")


def test_an_unknown_schema_is_asked_for_once_in_some_seconds(
    registry: RegistryForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic full of such records would be a request for each; the schema may be
    registered a moment later."""
    registry.schemas = {5: "no schema at all"}
    decode = open_decoder("avro", None, registry.address, None)
    for _ in range(20):
        with pytest.raises(DecodingError, match="the registry has no schema 7"):
            decode(with_id(7, avro(ORDER, VALUES)))
        with pytest.raises(DecodingError, match="schema 5 is no Avro schema"):
            decode(with_id(5, b""))
    assert registry.asked == ["/schemas/ids/7", "/schemas/ids/5"]
    registry.schemas[7] = json.dumps(ORDER)
    later = time.monotonic() + 11
    monkeypatch.setattr("time.monotonic", lambda: later)
    assert decode(with_id(7, avro(ORDER, VALUES))) == VALUES


def test_damaged_ids_of_many_records_are_few_requests_and_hide_no_schema(
    registry: RegistryForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schema that several records of the batch have is asked for all the same, one of a single
    record some seconds later."""
    registry.schemas = {8: json.dumps(ORDER), 9: json.dumps(ORDER)}
    good = avro(ORDER, VALUES)
    often, once = with_id(8, good), with_id(9, good)
    values = [*(with_id(number, good) for number in range(1000, 1200)), often, None, b"{}", often, once]
    declared = ("avro", None, registry.address, None)
    kind = pa.struct([("id", pa.int64()), (CORRUPT, pa.string())])
    reasons = decode_values(pa.array(values, pa.binary()), declared, kind).field(CORRUPT).to_pylist()
    assert reasons[0] == "the registry has no schema 1000"
    refused = "the registry was not asked for schema {}, because it had none of 20 others within 10 s"
    assert reasons[20:200] == [refused.format(number) for number in range(1020, 1200)]
    assert reasons[200:] == [None, ANY, ANY, None, refused.format(9)]
    assert len(registry.asked) == 21
    later = time.monotonic() + 11
    monkeypatch.setattr("time.monotonic", lambda: later)
    assert decode_values(pa.array([once, once], pa.binary()), declared, kind).field(CORRUPT).to_pylist() == [None, None]


def test_a_registry_that_is_away_ends_the_task_and_makes_no_bad_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every record would be a dead letter."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    decode = open_decoder("avro", None, "http://127.0.0.1:9", None)
    with pytest.raises(SchemaLookupError, match="no schema 1: the registry at http://127.0.0.1:9 does not answer"):
        decode(with_id(1, b""))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"ok": true}', "gives no schema 1: is it a registry"),
        (b"junk\r\n\r\n", "does not answer"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\n{}", "refuses schema 1: No"),
    ],
)
def test_an_answer_that_is_not_a_registrys_makes_no_bad_rows(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, problem: str
) -> None:
    """A wrong port or path, say: only the registry's own word makes an id unknown."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    with serving(answer) as address, pytest.raises(SchemaLookupError, match=problem):
        open_decoder("avro", None, address.replace("//", "//ann:s3cret@"), None)(with_id(1, b""))


def test_a_schema_of_another_kind_is_a_reason(registry: RegistryForTests) -> None:
    """A producer of Protobuf in a topic of Avro is a bad row, and not the end."""
    registry.schemas = {1: base64.b64encode(order_file().SerializeToString()).decode(), 2: json.dumps(ORDER)}
    decode = open_decoder("avro", None, registry.address, None)
    with pytest.raises(DecodingError, match="the value's schema 1 is no Avro schema"):
        decode(with_id(1, b""))
    for text in ("5", "null", '{"fields": 5}', '{"type": "record"}'):
        registry.schemas[7] = text
        with pytest.raises(DecodingError, match="the value's schema 7 is no Avro schema"):
            open_decoder("avro", None, registry.address, None)(with_id(7, b""))
    with pytest.raises(DecodingError, match="the value's schema 2 is no Protobuf file"):
        open_decoder("protobuf", None, registry.address, None)(with_id(2, b"\0"))


def test_protobuf_is_decoded_from_a_file_and_from_a_registry(tmp_path: Path, registry: RegistryForTests) -> None:
    """In a registry's values the indexes of the message follow the id."""
    expected = {
        "id": 7,
        "tags": ["a", "b"],
        "at": datetime.datetime.fromtimestamp(5, datetime.UTC),
        "item": {"sku": "s"},
    }
    decode = open_decoder("protobuf", str(descriptor_set(tmp_path)), None, "shop.Order")
    assert decode(ORDER_BYTES) == expected
    assert decode(b"")["item"] is None
    with pytest.raises(DecodingError, match="does not fit its Protobuf message"):
        decode(b"\xff")
    registry.schemas = {5: base64.b64encode(order_file().SerializeToString()).decode()}
    decode = open_decoder("protobuf", None, registry.address, None)
    assert decode(with_id(5, b"\0" + ORDER_BYTES)) == expected
    assert decode(with_id(5, b"\x04\x00\x00" + b"\x0a\x01s")) == {"sku": "s"}
    assert registry.asked == ["/schemas/ids/5?format=serialized"]
    with pytest.raises(DecodingError, match="names no message of its schema"):
        decode(with_id(5, b"\x02\x06"))
    with pytest.raises(DecodingError, match="names no message of its schema"):
        decode(with_id(5, b"\x02\x01" + ORDER_BYTES))


def test_references_of_avro_and_protobuf_are_resolved(registry: RegistryForTests) -> None:
    """Also over several levels, and files of Google's own; one that is missing makes a bad row."""
    shape = {"type": "record", "name": "s.Shape", "fields": [{"name": "id", "type": "long"}]}
    line = {"type": "record", "name": "s.Line", "fields": [{"name": "shape", "type": "s.Shape"}]}
    whole = {"type": "record", "name": "s.Whole", "fields": [{"name": "line", "type": "s.Line"}]}
    registry.schemas = {1: json.dumps(shape), 2: json.dumps(line), 3: json.dumps(whole)}
    registry.subjects = {"shape": {1}, "line": {2}}
    to_shape, to_line = (
        {"references": [{"name": f"s.{name}", "subject": name.lower(), "version": 1}]} for name in ("Shape", "Line")
    )
    registry.more = {2: to_shape, 3: to_line}
    decode = open_decoder("avro", None, registry.address, None)
    assert decode(with_id(3, b"\x0e")) == {"line": {"shape": {"id": 7}}}
    other = descriptor_pb2.FileDescriptorProto(name="a/other.proto", package="a", syntax="proto3")
    other.dependency.append("google/protobuf/timestamp.proto")
    other.message_type.add(name="Other").field.add(
        name="at", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp"
    )
    file = descriptor_pb2.FileDescriptorProto(name="b.proto", package="b", syntax="proto3")
    file.dependency.append("a/other.proto")
    file.message_type.add(name="B").field.add(name="other", number=1, type=11, label=1, type_name=".a.Other")
    for number, each in ((4, other), (5, file)):
        registry.schemas[number] = base64.b64encode(each.SerializeToString()).decode()
    registry.subjects["other"] = {4}
    registry.more[5] = {
        "schemaType": "PROTOBUF",
        "references": [{"name": "a/other.proto", "subject": "other", "version": 1}],
    }
    read = open_decoder("protobuf", None, registry.address, None)
    at = read(with_id(5, b"\0\x0a\x04\x0a\x02\x08\x01"))["other"]["at"]
    assert at.isoformat() == "1970-01-01T00:00:01+00:00"
    registry.schemas[6], registry.more[6] = (
        json.dumps(line),
        {"references": [{**to_shape["references"][0], "version": 9}]},
    )
    with pytest.raises(DecodingError, match="schema 6 refers to one that the registry does not have"):
        decode(with_id(6, b"\x0e"))


def test_an_encrypted_value_is_a_bad_row(registry: RegistryForTests) -> None:
    """Its text would pass for the value."""
    rule = {"name": "hide", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT"}
    registry.schemas, registry.more = {1: json.dumps(ORDER)}, {1: {"ruleSet": {"domainRules": [rule]}}}
    with pytest.raises(DecodingError, match=r"schema 1: its values are encrypted by the rule hide \(ENCRYPT\)"):
        open_decoder("avro", None, registry.address, None)(with_id(1, avro(ORDER, VALUES)))


def test_json_is_refused_by_the_rules_of_its_schema(registry: RegistryForTests) -> None:
    """A text that is encrypted would pass for the field; each id is asked for once, and what
    a schema refers to is not needed."""
    rule = {"name": "hide", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT"}
    registry.schemas = dict.fromkeys((1, 2, 3), '{"type": "object"}')
    registry.more = {
        1: {"schemaType": "JSON", "references": [{"name": "a.json", "subject": "none", "version": 1}]},
        2: {"schemaType": "JSON", "ruleSet": {"domainRules": [rule]}},
        3: {"schemaType": "PROTOBUF"},
    }
    starts = [with_id(number, b"") for number in (1, 2, 3, 4, 2)]
    for _ in range(2):
        found = refused_values(pa.array([*starts, None, b"", b"\0\0", b'{"id"'], pa.binary()), registry.address)
        assert found.to_pylist() == [
            None,
            "schema 2: its values are encrypted by the rule hide (ENCRYPT), and are not decrypted here",
            "the value's schema 3 is one of PROTOBUF, not of JSON",
            "the registry has no schema 4",
            "schema 2: its values are encrypted by the rule hide (ENCRYPT), and are not decrypted here",
            *[None] * 4,
        ]
    assert registry.asked == [f"/schemas/ids/{number}" for number in (1, 2, 3, 4)]


def test_json_is_not_read_while_its_registry_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be encrypted then; what has no id is no value of the registry."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    refusals = open_json_refusals("http://127.0.0.1:9")
    assert refusals([None, b"{}"]) == [None, None]
    with pytest.raises(SchemaLookupError, match="no schema 1: the registry at http://127.0.0.1:9 does not answer"):
        refusals([with_id(1, b"{}")])
