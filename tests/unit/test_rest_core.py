"""What the REST proxy decides: streams of JSON, formats, requests, instances by time, errors."""

import base64
import io
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastavro")
pytest.importorskip("jsonschema")

import fastavro
from google.protobuf import descriptor_pb2

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.client.errors import (
    AuthorizationError,
    ConnectError,
    DeliveryError,
    UnknownTopicError,
    refusal,
)
from barnabas.client.records import Record
from barnabas.rest.core.embedded import EmbeddedFormat, decode_plain, encode_plain
from barnabas.rest.core.event_texts import position_line, positions_of, record_event, start_offset
from barnabas.rest.core.instances import InstanceTable, read_instance_config
from barnabas.rest.core.json_stream import JsonStream, json_of
from barnabas.rest.core.limits import Allowance
from barnabas.rest.core.produce_requests import (
    batch_entries,
    read_produce_record,
    read_records_of_version_2,
)
from barnabas.rest.core.read_requests import (
    consumed_record_text,
    offsets_to_commit,
    seek_wishes,
    subscribed_topics,
    value_text_of,
)
from barnabas.rest.core.schema_values import SchemaText, record_name, value_codec
from barnabas.rest.core.settings import read_rest_settings
from barnabas.rest.errors import RestCode, RestError, error_of, topic_error_of
from barnabas.wire.kafka.errors import ErrorCode

BINARY, JSON, STRING = EmbeddedFormat.BINARY, EmbeddedFormat.JSON, EmbeddedFormat.STRING


def refused(function: Any, *arguments: Any, **named: Any) -> int:
    """The code of the error."""
    with pytest.raises(RestError) as found:
        function(*arguments, **named)
    return found.value.code


# Streams of objects

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), JSON_VALUES, max_size=3), max_size=5), st.integers(1, 7), st.booleans())
def test_objects_come_out_as_they_went_in_whatever_the_pieces(documents: list[Any], size: int, is_ascii: bool) -> None:
    """Braces and quotes in texts, escapes, and pieces that end inside of a character."""
    data = " \n".join(json.dumps(each, ensure_ascii=is_ascii) for each in documents).encode()
    stream = JsonStream(1 << 20)
    found: list[Any] = []
    for at in range(0, len(data), size):
        found += stream.feed(data[at : at + size])
    stream.check_end()
    assert found == documents


@pytest.mark.parametrize("data", [b"[1]", b"x", b'"{}"', b"{}]", b"{" * 300])
def test_what_is_no_object_ends_the_stream(data: bytes) -> None:
    """A stream has objects only, and not too deep ones."""
    assert refused(lambda: list(JsonStream(1000).feed(data))) == RestCode.BAD_REQUEST


def test_an_object_with_wrong_contents_does_not_end_the_stream() -> None:
    """Its end is known by its brackets."""
    first, wrong, last = JsonStream(100).feed(b'{"a": 1}{"b": [NaN, "}"]} {"c": 2}')
    assert (first, last) == ({"a": 1}, {"c": 2})
    assert isinstance(wrong, RestError)


def test_an_object_that_is_too_large_or_cut_off_ends_the_stream() -> None:
    """What is held is bounded."""
    assert refused(lambda: list(JsonStream(10).feed(b'{"a": "' + b"x" * 20))) == RestCode.TOO_LARGE
    stream = JsonStream(100)
    assert list(stream.feed(b'{"a": 1} {"b')) == [{"a": 1}]
    assert refused(stream.check_end) == RestCode.BAD_REQUEST


@pytest.mark.parametrize("data", [b"{", b"NaN", b'{"a": Infinity}', b"[" * 100_000, b"\xff"])
def test_what_is_no_json_is_a_bad_request(data: bytes) -> None:
    """Python's parser takes more than JSON, and raises more."""
    assert refused(json_of, data) == RestCode.BAD_REQUEST


# Formats


@pytest.mark.parametrize(
    ("form", "data", "encoded"),
    [(BINARY, "Zm9v", b"foo"), (JSON, {"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode()), (STRING, "ü", "ü".encode())],
)
def test_values_without_a_schema_are_encoded_and_decoded(form: EmbeddedFormat, data: Any, encoded: bytes) -> None:
    """Null is no value, in each format."""
    assert encode_plain(form, data) == encoded
    assert decode_plain(form, encoded) == data
    assert encode_plain(form, None) is None
    assert decode_plain(form, None) is None


@pytest.mark.parametrize(
    ("form", "data"),
    [(BINARY, "Zm9"), (BINARY, "Zm 9v"), (BINARY, 1), (STRING, 1), (STRING, "\ud800"), (JSON, float("inf"))],
)
def test_values_that_are_not_of_their_format_are_refused(form: EmbeddedFormat, data: Any) -> None:
    """Base64 with blanks or without its padding is none."""
    assert refused(encode_plain, form, data) == RestCode.BAD_REQUEST


AVRO = SchemaText(
    EmbeddedFormat.AVRO,
    json.dumps(
        {
            "type": "record",
            "name": "Order",
            "namespace": "shop",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "note", "type": ["null", "string"]},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "raw", "type": "bytes"},
                {"name": "next", "type": ["null", "Order", {"type": "enum", "name": "End", "symbols": ["YES"]}]},
            ],
        }
    ),
)


def order(**changes: Any) -> dict[str, Any]:
    return {"id": 1, "note": {"string": "x"}, "at": 1764201600000, "raw": "\u00ff", "next": None, **changes}


@pytest.mark.parametrize(
    "data", [order(), order(note=None), order(next={"shop.Order": order()}), order(next={"shop.End": "YES"})]
)
def test_values_of_avro_have_the_json_of_its_specification(data: dict[str, Any]) -> None:
    """Unions name their branch, bytes are Latin-1, and times stay numbers."""
    codec = value_codec(AVRO)
    assert codec.decode(codec.encode(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        order(id="1"), order(id=True), order(id=1 << 63), order(note="x"), order(note={"int": 1}),
        order(next={"shop.End": "NO"}), {"id": 1}, order(more=1), [], None, order(raw="\u0100"),
    ],
)  # fmt: skip
def test_values_that_are_not_of_their_avro_schema_are_refused(data: Any) -> None:
    """Nothing is converted, left out or made up."""
    with pytest.raises(ValueError, match="."):
        value_codec(AVRO).encode(data)


@pytest.mark.parametrize(
    ("schema", "data", "encoded"),
    [
        (["int", "long"], {"long": 5}, b"\x02\x0a"),
        (["double", {"type": "long", "logicalType": "timestamp-millis"}], {"long": 5}, b"\x02\x0a"),
        (["float", "double"], {"double": 0.5}, b"\x02\0\0\0\0\0\0\xe0\x3f"),
        (["string", {"type": "enum", "name": "E", "symbols": ["A"]}], {"E": "A"}, b"\x02\0"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}, "\u0001", b"\x02\x01"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1 << 62, None),
        ("int", (1 << 31) - 1, None),
        ("int", 1 << 31, ValueError),
        ("int", -(1 << 31) - 1, ValueError),
        ("long", 1 << 63, ValueError),
        ("float", 1e300, ValueError),
        (["null", "int"], {"int": 1 << 31}, ValueError),
    ],
)
def test_values_of_avro_are_written_as_they_are_named_or_not_at_all(schema: Any, data: Any, encoded: Any) -> None:
    """A branch is the one that is named, a time needs no calendar, and no number is too large."""
    codec = value_codec(SchemaText(EmbeddedFormat.AVRO, json.dumps(schema)))
    if encoded is ValueError:
        with pytest.raises(ValueError, match="."):
            codec.encode(data)
        return
    made = codec.encode(data)
    assert encoded in (None, made)
    if encoded is None:
        assert codec.decode(made) == data


ITSELF = {"type": "record", "name": "B", "fields": [{"name": "m", "type": {"type": "array", "items": "B"}}]}


@pytest.mark.parametrize(
    ("schema", "encoded", "data"),
    [
        (["int", "long"], b"\x02\x0a", {"long": 5}),
        (["int", "long"], b"\0\x0a", {"int": 5}),
        (["double", "int"], b"\x02\x0a", {"int": 5}),
        (["int", "double"], b"\x02" + struct.pack("<d", 5), {"double": 5.0}),
        (["bytes", "string"], b"\x02\x02x", {"string": "x"}),
        (["null", {"type": "array", "items": ["int", "long"]}], b"\x02\x02\x02\x01\0", {"array": [{"long": -1}]}),
        ([{"type": "fixed", "name": "a.F", "size": 1}, "bytes"], b"\0\xff", {"a.F": "\u00ff"}),
        ({"type": "map", "values": "boolean"}, b"\x01\x06\x02a\x01\0", {"a": True}),
        ({"type": "array", "items": "string"}, b"\x02\x02a\x02\x02b\0", ["a", "b"]),
        ("long", b"\xff" * 9 + b"\x01", -1 << 63),
        (ITSELF, b"\0", {"m": []}),
        (ITSELF, b"\x04\0\x02\0\0\0", {"m": [{"m": []}, {"m": [{"m": []}]}]}),
    ],
)
def test_bytes_of_avro_name_the_branch_that_they_are_of(schema: Any, encoded: bytes, data: Any) -> None:
    """Whatever other branch could hold the value; a record may have an array of itself."""
    assert value_codec(SchemaText(EmbeddedFormat.AVRO, json.dumps(schema))).decode(encoded) == data


@pytest.mark.parametrize(
    ("schema", "encoded", "why"),
    [
        (["int", "long"], b"\x04\x0a", "no branch 2"),
        (["int", "long"], b"\x01\x0a", "no branch -1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no symbol 1"),
        ("int", b"\x80\x80\x80\x80\x10", "too large"),
        ("long", b"\xff" * 9 + b"\x02", "too large"),
        ("long", b"\xff" * 10 + b"\x01", "more bytes"),
        ("bytes", b"\x01", "end within"),
        ("string", b"\x04a", "end within"),
        ("string", b"\x02\xff", "utf-8"),
        ("null", b"\0", "behind the value"),
    ],
)
def test_bytes_that_no_value_of_an_avro_schema_has_are_refused(schema: Any, encoded: bytes, why: str) -> None:
    """The error says what is wrong with them."""
    with pytest.raises(ValueError, match=why):
        value_codec(SchemaText(EmbeddedFormat.AVRO, json.dumps(schema))).decode(encoded)


OF_TYPES = {
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(),
}


@given(
    st.sampled_from(sorted(OF_TYPES)).flatmap(
        lambda kind: st.tuples(st.just(kind), st.dictionaries(st.text(), st.lists(OF_TYPES[kind])))
    )
)
def test_bytes_of_avro_have_the_value_that_fastavro_wrote(drawn: tuple[str, Any]) -> None:
    """Each primitive type, in arrays of maps."""
    kind, value = drawn
    schema = {"type": "map", "values": {"type": "array", "items": kind}}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    assert value_codec(SchemaText(EmbeddedFormat.AVRO, json.dumps(schema))).decode(out.getvalue()) == value


def test_values_with_references_are_bounded() -> None:
    """Six bytes that say to be thousands of millions of items are refused without making them."""
    nothing = json.dumps({"type": "record", "name": "Nothing", "fields": []})
    items = {"type": "array", "items": "Nothing"}
    schema = json.dumps({"type": "record", "name": "Many", "fields": [{"name": "items", "type": items}]})
    codec = value_codec(SchemaText(EmbeddedFormat.AVRO, schema, {"Nothing": nothing}))
    assert codec.decode(b"\x04\0") == {"items": [{}, {}]}
    with pytest.raises(ValueError, match="items without bytes"):
        codec.decode(b"\xfe\xff\xff\xff\x0f\0")


@pytest.mark.parametrize("data", [b"", b"\x02\x02", b"\xff" * 30])
def test_bytes_that_are_not_of_their_avro_schema_are_refused(data: bytes) -> None:
    """A value that is cut off, and one that says to be longer than it is."""
    with pytest.raises(ValueError, match="."):
        value_codec(AVRO).decode(data)


@pytest.mark.parametrize("items", ['"Empty"', '["null", "Empty"]'])
def test_a_schema_of_avro_may_refer_to_others_and_is_as_bounded(items: str) -> None:
    """Six bytes may say that an array has thousands of millions of empty records."""
    reference = '{"type": "record", "name": "Empty", "fields": []}'
    text = json.dumps({"type": "array", "items": json.loads(items)})
    codec = value_codec(SchemaText(EmbeddedFormat.AVRO, text, {"empty": reference}))
    data = [{}] if "null" not in items else [None, {"Empty": {}}]
    assert codec.decode(codec.encode(data)) == data
    if "null" not in items:
        with pytest.raises(ValueError, match="."):
            codec.decode(b"\xfe\xff\xff\xff\xff\x7f")


def test_a_schema_of_json_refuses_what_it_does_not_allow() -> None:
    """References are those of the registry; nothing is fetched from the web."""
    text = {"type": "object", "properties": {"a": {"$ref": "other.json"}}, "required": ["a"]}
    schema = SchemaText(EmbeddedFormat.JSONSCHEMA, json.dumps(text), {"other.json": '{"type": "integer"}'})
    codec = value_codec(schema)
    assert codec.encode({"a": 1}) == b'{"a":1}'
    for wrong in ({}, {"a": "x"}, 1):
        with pytest.raises(ValueError, match="."):
            codec.encode(wrong)
    far = SchemaText(EmbeddedFormat.JSONSCHEMA, json.dumps({"$ref": "http://example.invalid/x.json"}))
    with pytest.raises(ValueError, match="."):
        value_codec(far).encode({})


def test_a_pattern_of_a_json_schema_is_one_of_re2() -> None:
    """One that Python's re would try for ever is answered at once; a lookaround is refused."""
    schema = {"type": "object", "patternProperties": {"^(a+)+$": {"pattern": "^(b+)+$"}}, "additionalProperties": False}
    codec = value_codec(SchemaText(EmbeddedFormat.JSONSCHEMA, json.dumps(schema)))
    assert codec.encode({"aa": "bb"}) == b'{"aa":"bb"}'
    for wrong in ({"aa": "b" * 500 + "!"}, {"a" * 500 + "!": "b"}):
        with pytest.raises(ValueError, match="not match|not allowed"):
            codec.encode(wrong)
    with pytest.raises(ValueError, match="the schema cannot be used: the pattern .* is not one of RE2"):
        value_codec(SchemaText(EmbeddedFormat.JSONSCHEMA, '{"pattern": "(?=a)"}'))


def proto(name: str, package: str = "", imports: tuple[str, ...] = (), kind: str = "") -> str:
    """A serialized file with a message M of one field, in base64."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, dependency=imports, syntax="proto3")
    field = file.message_type.add(name="M").field.add(name="some_text", number=1, label=1)
    if kind:
        field.type, field.type_name = 11, kind
    else:
        field.type = 9
    return base64.b64encode(file.SerializeToString()).decode()


def test_values_of_protobuf_have_its_json() -> None:
    """Names are in camel case, an unknown field is refused, and files may import others."""
    codec = value_codec(SchemaText(EmbeddedFormat.PROTOBUF, proto("", "shop")))
    assert codec.decode(codec.encode({"someText": "x"})) == {"someText": "x"}
    assert codec.encode({}) == b"\0"
    with pytest.raises(ValueError, match="."):
        codec.encode({"other": 1})
    with pytest.raises(ValueError, match="."):
        codec.decode(b"\x04\x0a")
    outer = SchemaText(
        EmbeddedFormat.PROTOBUF,
        proto("", "out", ("inner.proto", "google/protobuf/timestamp.proto"), ".shop.M"),
        {"inner.proto": proto("inner.proto", "shop")},
    )
    made = value_codec(outer)
    assert made.decode(made.encode({"someText": {"someText": "x"}})) == {"someText": {"someText": "x"}}


def test_a_schema_has_the_name_that_subjects_take() -> None:
    """By kind: the record's, the title, the first message."""
    assert record_name(AVRO) == "shop.Order"
    assert record_name(SchemaText(EmbeddedFormat.JSONSCHEMA, '{"title": "T"}')) == "T"
    assert record_name(SchemaText(EmbeddedFormat.PROTOBUF, proto("", "shop"))) == "shop.M"
    assert record_name(SchemaText(EmbeddedFormat.AVRO, '"string"')) is None


# Requests with records


def test_a_record_of_version_3_has_its_parts() -> None:
    """As Confluent's example has them."""
    record = read_produce_record(
        {
            "partition_id": 1,
            "headers": [{"name": "h", "value": "SGVhZGVyLTE="}, {"name": "n"}],
            "key": {"type": "BINARY", "data": "Zm9vYmFy"},
            "value": {"type": "JSON", "data": {"foo": "bar"}},
            "timestamp": "2021-02-05T19:14:42Z",
        }
    )
    assert (record.partition, record.timestamp_ms) == (1, 1612552482000)
    assert record.headers == (("h", b"Header-1"), ("n", None))
    assert record.key is not None
    assert record.key.form is BINARY


@pytest.mark.parametrize(
    "document",
    [
        [], {"x": 1}, {"partition_id": "1"}, {"partition_id": True}, {"headers": {}}, {"headers": [{"value": "eA=="}]},
        {"headers": [{"name": "h", "value": "!"}]}, {"value": "x"}, {"value": {"type": "XML", "data": 1}},
        {"timestamp": "yesterday"}, {"timestamp": "2021-02-05T19:14:42"}, {"timestamp": 5},
        {"value": {"type": "JSON", "schema_id": 1}}, {"value": {"schema": "{}"}},
        {"value": {"schema_id": 1, "schema_version": 1}}, {"value": {"type": "AVRO", "schema_id": 1}},
        {"value": {"subject": "s", "subject_name_strategy": "TOPIC_NAME"}},
        {"value": {"subject_name_strategy": "ANY"}},
    ],
)  # fmt: skip
def test_a_record_of_version_3_that_is_wrong_is_a_bad_request(document: Any) -> None:
    """Each field is checked, and so are combinations."""
    assert refused(read_produce_record, document) == RestCode.BAD_REQUEST


def test_a_partition_that_cannot_be_is_not_found() -> None:
    """A negative number, in both versions."""
    assert refused(read_produce_record, {"partition_id": -1}) == RestCode.PARTITION_NOT_FOUND
    wrong = {"records": [{"value": None, "partition": -1}]}
    assert refused(read_records_of_version_2, wrong, BINARY, None) == RestCode.PARTITION_NOT_FOUND


@pytest.mark.parametrize(
    "document",
    [
        None, {"entries": []}, {"entries": 1}, {"entries": [{}]}, {"entries": [{"id": ""}]}, {"entries": [{"id": 1}]},
        {"entries": [{"id": "x" * 81}]}, {"entries": [{"id": "1"}, {"id": "1"}]}, {"entries": [{"id": "1"}] * 3},
    ],
)  # fmt: skip
def test_a_batch_has_a_few_entries_with_different_ids(document: Any) -> None:
    """Confluent's code for all of this is the same."""
    assert refused(batch_entries, document, 2) == RestCode.PRODUCE_BATCH


def test_records_of_version_2_need_the_schemas_of_what_they_have() -> None:
    """A schema for keys only if there are keys."""
    avro = EmbeddedFormat.AVRO
    both = {"records": [{"key": 1, "value": 2}], "value_schema": '"int"'}
    assert refused(read_records_of_version_2, both, avro, None) == RestCode.KEY_SCHEMA_MISSING
    assert refused(read_records_of_version_2, {"records": [{"value": 2}]}, avro, None) == RestCode.VALUE_SCHEMA_MISSING
    (record,) = read_records_of_version_2({"records": [{"value": 2}], "value_schema_id": 7}, avro, 3)
    assert record.value is not None
    assert (record.partition, record.value.schema_id) == (3, 7)
    assert refused(read_records_of_version_2, {"records": []}, BINARY, None) == RestCode.UNPROCESSABLE
    assert refused(read_records_of_version_2, {"records": [{"partition": 1}]}, BINARY, 0) == RestCode.BAD_REQUEST


# Consumers


def test_an_instance_ends_when_it_was_not_used_for_its_time() -> None:
    """A request that is under way keeps it, and the time begins again at its end."""
    table: InstanceTable[str] = InstanceTable(1000, 2)
    table.add("g", "a", "A", 0)
    table.add("g", "b", "B", 0)
    assert table.begin_use("g", "b") == "B"
    assert table.expire(999) == []
    assert table.expire(1000) == ["A"]
    assert table.expire(5000) == []
    table.end_use("g", "b", 5000)
    assert table.expire(5999) == []
    assert table.expire(6000) == ["B"]
    assert refused(table.begin_use, "g", "b") == RestCode.CONSUMER_INSTANCE_NOT_FOUND


def test_instances_have_names_of_their_own_and_are_bounded() -> None:
    """A name is free again after the deletion; a request that ends later changes nothing."""
    table: InstanceTable[str] = InstanceTable(1000, 2)
    table.add("g", "a", "A", 0)
    assert refused(table.add, "g", "a", "A", 0) == RestCode.CONSUMER_EXISTS
    table.add("h", "a", "B", 0)
    assert refused(table.check_room, "g", "c") == RestCode.TOO_MANY_REQUESTS
    assert table.begin_use("g", "a") == table.remove("g", "a") == "A"
    table.end_use("g", "a", 1)
    assert len(table) == 1
    assert table.clear() == ["B"]


def test_an_instance_is_made_with_what_the_request_says() -> None:
    """All of it has defaults; texts and old names are understood."""
    config = read_instance_config(
        {"id": "i", "name": "n", "format": "JSON", "auto.commit.enable": "false", "responseMinBytes": "7"}
    )
    assert (config.name, config.format, config.auto_commit, config.fetch_min_bytes) == ("i", JSON, False, 7)
    assert read_instance_config(None).format is BINARY


@pytest.mark.parametrize(
    "document",
    [
        [], {"name": "a b"}, {"name": ""}, {"format": "xml"}, {"format": "string"}, {"auto.offset.reset": "first"},
        {"auto.commit.enable": "maybe"}, {"fetch.min.bytes": -2}, {"consumer.request.timeout.ms": "x"}, {"other": 1},
    ],
)  # fmt: skip
def test_an_instance_that_cannot_be_is_refused(document: Any) -> None:
    """With Confluent's code for its configuration."""
    assert refused(read_instance_config, document) == RestCode.INVALID_CONSUMER_CONFIG


def test_a_commit_names_the_last_record_that_was_processed() -> None:
    """What is stored is the next one; without offsets it is all that was read."""
    found = offsets_to_commit({"offsets": [{"topic": "t", "partition": 0, "offset": 20, "metadata": "m"}]})
    assert found == {TopicPartition("t", 0): (21, "m")}
    assert offsets_to_commit(None) is offsets_to_commit({}) is None


@pytest.mark.parametrize(
    "offsets",
    [
        *(1, [1], [{"topic": "t"}], [{"topic": "t", "partition": 0}], [{"topic": "", "partition": 0, "offset": 1}]),
        *([{"topic": "t", "partition": 0, "offset": -1}], [{"topic": "t", "partition": True, "offset": 1}]),
    ],
)
def test_offsets_that_are_none_are_refused(offsets: Any) -> None:
    """In commits and in seeks."""
    assert refused(offsets_to_commit, {"offsets": offsets}) == RestCode.UNPROCESSABLE
    assert refused(seek_wishes, {"offsets": offsets}) == RestCode.UNPROCESSABLE


def test_a_subscription_has_topics_or_a_pattern() -> None:
    """A pattern is for whole names, as in Java."""
    assert subscribed_topics({"topics": ["a", "b"]}) == ["a", "b"]
    assert subscribed_topics({"topic_pattern": "a.*"}) == ["^(a.*)$"]
    wrongs: list[Any] = [
        {},
        {"topics": []},
        {"topics": ["^a"]},
        {"topics": ["a"], "topic_pattern": "b"},
        {"topics": "a"},
    ]
    for wrong in wrongs:
        assert refused(subscribed_topics, wrong) == RestCode.UNPROCESSABLE


def record(key: bytes | None, value: bytes | None, **more: Any) -> Record[bytes, bytes]:
    return Record("t", 1, 5, key, value, more.get("when", 1764201600000), 0, more.get("headers", ()))


def test_a_consumed_record_has_its_parts_as_json() -> None:
    """JSON stays as it was written, on one line."""
    binary, plain, text = (value_text_of(form) for form in (BINARY, JSON, STRING))
    assert json.loads(consumed_record_text(record(b"k", None), binary, binary)) == {
        "topic": "t", "key": "aw==", "value": None, "partition": 1, "offset": 5,
    }  # fmt: skip
    assert '"value":{"a": 1.10}' in consumed_record_text(record(None, b'{"a": 1.10}'), plain, plain)
    assert '"value":{"a": 1.10, "a": 1e999}' in consumed_record_text(
        record(None, b'{"a": 1.10,\n"a": 1e999}'), plain, plain
    )
    assert "\n" not in consumed_record_text(record(None, b'{"a":\n"\\n"}'), plain, plain)
    assert json.loads(consumed_record_text(record(b"\xc3\xbc", b'"'), text, text))["value"] == '"'
    for wrong in (b"{", b"NaN", b"\xff", b"[" * 100_000):
        with pytest.raises(ValueError, match="."):
            consumed_record_text(record(None, wrong), plain, plain)


# Event streams


def test_an_event_is_one_line_of_json() -> None:
    """A line break would end it; a record that is not in the format says so."""
    text, plain = value_text_of(STRING), value_text_of(JSON)
    event = record_event(record(b"k", b"a\nb\rc", headers=[("h", b"x")]), text, text).decode()
    assert event.startswith("data: {")
    assert event.endswith("}\n\n")
    assert len(event.splitlines()) == 2
    found = json.loads(event.removeprefix("data: "))
    assert (found["value"], found["headers"]) == ("a\nb\rc", [{"name": "h", "value": "eA=="}])
    assert found["timestamp"] == "2025-11-27T00:00:00Z"
    wrong = json.loads(record_event(record(b"k", b"{"), text, plain).decode().removeprefix("data: "))
    assert wrong["offset"] == 5
    assert "error" in wrong


def test_a_stream_goes_on_where_its_last_line_says() -> None:
    """The header that a browser sends back is what the stream has written."""
    line = position_line({0: 5, 3: 7})
    assert positions_of(line.decode().strip().removeprefix("id: ")) == {0: 5, 3: 7}
    assert positions_of("") == {}
    for wrong in ("x", "1", "1:x", "1:-1", f"1:{1 << 63}"):
        assert refused(positions_of, wrong) == RestCode.BAD_REQUEST


def test_a_stream_begins_at_an_offset_or_an_end() -> None:
    """Earliest is any offset that is too small."""
    assert (start_offset("latest"), start_offset("earliest"), start_offset("7")) == (None, 0, 7)
    for wrong in ("", "-1", "first", "1.5", "٣", str(1 << 63), "1" * 5000):
        assert refused(start_offset, wrong) == RestCode.BAD_REQUEST


# Errors and limits


@pytest.mark.parametrize(
    ("error", "code", "code_of_version_2"),
    [
        (UnknownTopicError(3, "x"), 40403, 40401),
        (AuthorizationError(29, "x"), 40301, 40301),
        (refusal(ErrorCode.TOPIC_ALREADY_EXISTS), 40002, 40002),
        (refusal(ErrorCode.SECURITY_DISABLED), 40002, 40002),
        (ConnectError("x"), 50003, 50003),
        (refusal(ErrorCode.UNKNOWN_SERVER_ERROR), 50002, 50002),
        (RestError(RestCode.FORMAT_MISMATCH, "x"), 40601, 40601),
        (KeyError("secret"), 500, 500),
    ],
)
def test_an_error_has_confluents_code(error: Exception, code: int, code_of_version_2: int) -> None:
    """The first three digits are the status."""
    assert error_of(error).code == code
    assert error_of(error).status == int(str(code)[:3])
    assert topic_error_of(error).code == code_of_version_2
    assert "secret" not in error_of(error).message


def test_a_record_that_was_not_delivered_has_the_code_of_the_reason() -> None:
    """The delivery's error says more than the reason."""
    error = DeliveryError("a record for t was not delivered")
    error.__cause__ = AuthorizationError(29, "x")
    assert error_of(error).code == RestCode.KAFKA_AUTHORIZATION
    assert topic_error_of(UnknownTopicError(3, "x"), 1).code == RestCode.PARTITION_NOT_FOUND


def test_what_is_given_back_can_be_taken_again() -> None:
    """One that is too many is refused, and takes nothing."""
    allowance = Allowance(3, "things")
    allowance.take(2)
    assert refused(allowance.take, 2) == RestCode.TOO_MANY_REQUESTS
    allowance.give_back(2)
    allowance.take(3)
    assert allowance.taken == 3


# Settings

SERVERS = {"bootstrap.servers": "h:1"}


def test_properties_of_clients_go_to_their_clients() -> None:
    """Those of one kind are stronger than those of all; own settings that begin alike stay."""
    settings = read_rest_settings(
        {
            **SERVERS,
            "client.security.protocol": "SSL",
            "client.timeout.ms": "1000",
            "producer.acks": "1",
            "consumer.security.protocol": "PLAINTEXT",
            "consumer.instance.timeout.ms": "5000",
            "schema.registry.url": "http://r:1",
            "schema.registry.basic.auth.user.info": "u:p",
        }
    )
    assert settings.clients["producer"] == {"security.protocol": "SSL", "acks": "1", **SERVERS}
    assert settings.clients["consumer"] == {"security.protocol": "PLAINTEXT", **SERVERS}
    assert settings.registry == {"url": "http://r:1", "basic.auth.user.info": "u:p"}
    assert (settings["client.timeout.ms"], settings.seconds("consumer.instance.timeout.ms")) == (1000, 5.0)
    assert "u:p" not in repr(settings)


@pytest.mark.parametrize(
    "texts",
    [
        {"zookeeper.connect": "h:1"}, {"api.endpoints.blocklist": "api.v3.acls.*"}, {"rate.limit.enable": "true"},
        {"api.v3.produce.rate.limit.enabled": "TRUE"}, {"kafka.rest.resource.extension.class": "X"},
        {"confluent.rest.auth.propagate.method": "SASL"}, {"authentication.roles": "a"}, {"ssl.cipher.suites": "x"},
        {"consumer.instance.timeout.ms": "0"}, {"listeners": "h:1"}, {"schema.registry.basic.auth.user.info": "u:p"},
        {"authentication.propagate": "true"},
        {"authentication.propagate": "true", "authentication.method": "BASIC"},
        {"authentication.propagate": "true", "authentication.method": "BASIC", "client.security.protocol": "SASL_SSL"},
    ],
)  # fmt: skip
def test_a_setting_that_protects_and_is_not_supported_stops_the_start(texts: dict[str, str]) -> None:
    """So does one that is wrong."""
    with pytest.raises(ConfigError):
        read_rest_settings({**SERVERS, **texts})


def test_addresses_may_begin_with_the_protocol_of_clients() -> None:
    """As in Confluent's own file; another protocol than that of clients is an error."""
    servers = {"bootstrap.servers": "PLAINTEXT://h:1,i:2"}
    assert read_rest_settings(servers).clients["admin"] == {"bootstrap.servers": "h:1,i:2"}
    with pytest.raises(ConfigError):
        read_rest_settings({"bootstrap.servers": "SSL://h:1"})


def test_settings_of_the_proxy_that_begin_like_those_of_clients_stay_here() -> None:
    """A consumer would refuse them."""
    settings = read_rest_settings({**SERVERS, "consumer.threads": "50", "client.init.timeout.ms": "1"})
    assert settings.clients["consumer"] == SERVERS
    assert len(settings.warnings) == 2


def test_a_setting_without_effect_is_named() -> None:
    """Confluent's files have many."""
    assert read_rest_settings({**SERVERS, "metrics.jmx.prefix": "x"}).warnings == [
        "metrics.jmx.prefix has no effect here"
    ]


def test_brokers_see_the_user_of_a_request() -> None:
    """The proxy's own login is in none of the clients."""
    settings = read_rest_settings(
        {
            **SERVERS,
            "authentication.method": "BASIC",
            "authentication.propagate": "true",
            "client.security.protocol": "SASL_PLAINTEXT",
            "client.sasl.mechanism": "PLAIN",
            "client.sasl.jaas.config": "own",
        }
    ).of_user("ann", "s3cret")
    for properties in settings.clients.values():
        assert (properties["sasl.username"], properties["sasl.password"]) == ("ann", "s3cret")
        assert "sasl.jaas.config" not in properties
    assert "s3cret" not in repr(settings)
