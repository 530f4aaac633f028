"""Rows as values of Avro and Protobuf: every type there and back, by our decoders and by
Confluent's, and what a schema cannot hold."""

import base64
import datetime
import decimal
import io
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")
pytest.importorskip("pyspark")

from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: E402
from confluent_kafka.schema_registry.avro import AvroDeserializer  # noqa: E402
from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: E402
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402

from barnabas.pipelines.formats.declared import CORRUPT  # noqa: E402
from barnabas.pipelines.formats.decoders import decode_values  # noqa: E402
from barnabas.pipelines.formats.derived_schemas import (  # noqa: E402
    UnwritableColumnError,
    derive_avro,
    derive_json_schema,
    derive_protobuf,
)
from barnabas.pipelines.formats.encoders import RecordEncoder, encode_values, make_encoder  # noqa: E402
from barnabas.pipelines.formats.row_encoders import UnwritableRowError, json_checker, protobuf_encoder  # noqa: E402
from support.registry import RegistryForTests, with_id  # noqa: E402

UTC = datetime.UTC
TIMESTAMP, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
AT = datetime.datetime(2026, 1, 31, 10, 0, 0, 123_456, UTC)
BEFORE = datetime.datetime(1, 1, 1, tzinfo=UTC)
DAY = datetime.date(1969, 12, 31)
POINT = pa.struct([("x", pa.int32()), ("at", TIMESTAMP)])
TYPES: dict[str, tuple[Any, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "tinyint": (pa.int8(), [-128, 127]),
    "smallint": (pa.int16(), [-(2**15)]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.10000000149011612, math.inf, -0.0]),
    "double": (pa.float64(), [0.1, -math.inf, 5e-324]),
    "decimal": (pa.decimal128(38, 18), [decimal.Decimal("-0.000000000000000001"), decimal.Decimal("9" * 20)]),
    "whole decimal": (pa.decimal128(5, 0), [decimal.Decimal(-99_999)]),
    "string": (pa.string(), ["", "Größe \U0001f600\0"]),
    "binary": (pa.binary(), [b"", b"\0\xff"]),
    "date": (pa.date32(), [DAY, datetime.date(9999, 12, 31)]),
    "timestamp": (TIMESTAMP, [AT, BEFORE]),
    "timestamp_ntz": (LOCAL, [AT.replace(tzinfo=None), BEFORE.replace(tzinfo=None)]),
    "array": (pa.list_(pa.int64()), [[], [1, 2]]),
    "array of times": (pa.list_(LOCAL), [[AT.replace(tzinfo=None)]]),
    "map": (pa.map_(pa.string(), pa.decimal128(4, 2)), [[], [("a", decimal.Decimal("1.10"))]]),
    "map by numbers": (pa.map_(pa.int32(), pa.string()), [[(7, "seven"), (-1, "")]]),
    "struct": (POINT, [{"x": 1, "at": AT}, {"x": None, "at": None}]),
    "array of structs": (pa.list_(POINT), [[{"x": 1, "at": None}]]),
}
NULLS_WITHIN = {
    "array": (pa.list_(pa.int64()), [[None, 1]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", None)]]),
    "map by days": (pa.map_(pa.date32(), POINT), [[(DAY, None), (datetime.date(2026, 1, 1), {"x": 1, "at": AT})]]),
    "array of arrays": (pa.list_(pa.list_(pa.string())), [[["a"], None, []]]),
}


@pytest.fixture
def registry() -> Iterator[RegistryForTests]:
    """One that runs."""
    with RegistryForTests() as running:
        yield running


def rows_of(kind: Any, values: list[Any]) -> Any:
    return pa.array([{"id": number, "c": value} for number, value in enumerate(values)], row_type(kind))


def row_type(kind: Any) -> Any:
    return pa.struct([("id", pa.int64()), ("c", kind)])


def encoder_of(format_type: str, text: str, schema_id: int = 1) -> RecordEncoder:
    header = with_id(schema_id, b"\0" if format_type == "protobuf" else b"")
    return RecordEncoder(format_type, text, "shop.Row", header, True)


def text_of(format_type: str, kind: Any) -> str:
    columns = pa.schema(list(row_type(kind)))
    if format_type == "avro":
        return derive_avro(columns, "shop.Row")
    return base64.b64encode(derive_protobuf(columns, "shop.Row").SerializeToString()).decode()


def decoded(registry: RegistryForTests, format_type: str, text: str, values: Any, kind: Any, schema_id: int = 1) -> Any:
    registry.schemas[schema_id], registry.more[schema_id] = text, {"schemaType": format_type.upper()}
    found = decode_values(
        values,
        (format_type, None, registry.address, None),
        pa.struct([*row_type(kind), pa.field(CORRUPT, pa.string())]),
    )
    assert found.field(CORRUPT).null_count == len(found), found.field(CORRUPT)
    return found.field("c")


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("format_type", ["avro", "protobuf"])
def test_every_type_comes_back_as_it_was(registry: RegistryForTests, format_type: str, name: str) -> None:
    """Through the schema that is made of the columns; nulls too, where the format has them."""
    kind, values = TYPES[name]
    if format_type == "avro" or not (pa.types.is_list(kind) or pa.types.is_map(kind)):
        values = [*values, None]
    text = text_of(format_type, kind)
    written = encode_values(rows_of(kind, values), encoder_of(format_type, text))
    assert decoded(registry, format_type, text, written, kind).equals(pa.array(values, kind))


@pytest.mark.parametrize("name", NULLS_WITHIN)
def test_nulls_within_values_come_back_in_avro_and_are_refused_in_protobuf(
    registry: RegistryForTests, name: str
) -> None:
    """Protobuf would leave them out in silence."""
    kind, values = NULLS_WITHIN[name]
    text = text_of("avro", kind)
    written = encode_values(rows_of(kind, values), encoder_of("avro", text))
    assert decoded(registry, "avro", text, written, kind).equals(pa.array(values, kind))
    with pytest.raises((UnwritableRowError, UnwritableColumnError), match=r"column c.* (null in it|no counterpart)"):
        encode_values(rows_of(kind, values), encoder_of("protobuf", text_of("protobuf", kind)))


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())])
def test_protobuf_has_no_null_in_the_place_of_a_list(kind: Any) -> None:
    """It would come back as an empty one."""
    with pytest.raises(UnwritableRowError, match=r"column c is null .*coalesce\(c, (array|map)\(\)\)"):
        encode_values(rows_of(kind, [None]), encoder_of("protobuf", text_of("protobuf", kind)))


def test_avro_holds_times_that_python_does_not() -> None:
    """They are numbers on the way."""
    micros = 253_402_300_800_000_000
    later = pa.array([micros], pa.int64()).cast(TIMESTAMP)
    rows = pa.StructArray.from_arrays([pa.array([1]), later], fields=list(row_type(TIMESTAMP)))
    (value,) = encode_values(rows, encoder_of("avro", text_of("avro", TIMESTAMP))).to_pylist()
    fields = [{"name": name, "type": ["null", "long"]} for name in ("id", "c")]
    plain = fastavro.parse_schema({"type": "record", "name": "Row", "fields": fields})
    assert fastavro.schemaless_reader(io.BytesIO(value[5:]), plain, None) == {"id": 1, "c": micros}
    with pytest.raises(UnwritableRowError, match="column c is a time beyond the years 1 to 9999"):
        encode_values(rows, encoder_of("protobuf", text_of("protobuf", TIMESTAMP)))


def test_confluents_deserializer_reads_what_is_written(registry: RegistryForTests) -> None:
    """The other side."""
    kind = pa.struct([(name, each) for name, (each, _) in TYPES.items() if " " not in name])
    value = {name: values[-1] for name, (_, values) in TYPES.items() if " " not in name}
    text = text_of("avro", kind)
    registry.schemas = {1: text}
    (data,) = encode_values(rows_of(kind, [value]), encoder_of("avro", text)).to_pylist()
    with SchemaRegistryClient({"url": registry.address}) as client:
        read: Any = AvroDeserializer(client, conf={"subject.name.strategy.type": "TOPIC"})
        found = read(data, SerializationContext("t", MessageField.VALUE))["c"]
    assert found["decimal"] == value["decimal"]
    assert (found["timestamp"], found["timestamp_ntz"], found["date"]) == (
        value["timestamp"],
        value["timestamp_ntz"],
        value["date"],
    )
    assert (found["map"], found["struct"]) == (dict(value["map"]), value["struct"])


@pytest.mark.parametrize("derive", [derive_avro, derive_protobuf])
@pytest.mark.parametrize(
    ("name", "shown"), [("net amount", "`net amount` as net_amount"), ("Größe", "`Größe` as Gr__e")]
)
def test_a_name_that_the_format_does_not_allow_is_refused(derive: Any, name: str, shown: str) -> None:
    """Another name would be another column to readers."""
    with pytest.raises(UnwritableColumnError, match=shown):
        derive(pa.schema([(name, pa.int64())]), "Row")
    with pytest.raises(UnwritableColumnError, match=f"column c.{name}"):
        derive(pa.schema([("c", pa.struct([(name, pa.int64())]))]), "Row")


@pytest.mark.parametrize("derive", [derive_avro, derive_protobuf, derive_json_schema])
@pytest.mark.parametrize("kind", [pa.duration("us"), pa.map_(POINT, pa.int64()), pa.list_(pa.duration("us"))])
def test_a_type_without_a_counterpart_is_refused(derive: Any, kind: Any) -> None:
    """Before the first row. Avro has maps by anything, as arrays of pairs."""
    if derive is derive_avro and pa.types.is_map(kind):
        assert "c_entry" in derive(pa.schema([("c", kind)]), "Row")
        return
    with pytest.raises(UnwritableColumnError, match="column c.* has no counterpart"):
        derive(pa.schema([("c", kind)]), "Row")


def test_records_within_have_names_of_their_own(registry: RegistryForTests) -> None:
    """Also where the paths to them read alike; Protobuf says which names are one."""
    kind = pa.struct([("a", pa.struct([("b", POINT)])), ("a_b", POINT)])
    values = [{"a": {"b": {"x": 1, "at": None}}, "a_b": {"x": 2, "at": AT}}]
    text = text_of("avro", kind)
    written = encode_values(rows_of(kind, values), encoder_of("avro", text))
    assert decoded(registry, "avro", text, written, kind).to_pylist() == values
    alike = pa.struct([("aB", POINT), ("a_b", POINT)])
    with pytest.raises(ValueError, match="no valid one"):
        make_encoder("protobuf", text_of("protobuf", alike), "shop.Row", row_type(alike))


def avro_with(field: Any, **more: Any) -> Any:
    fields = [{"name": "id", "type": "long"}, {"name": "c", "type": field, **more}]
    return json.dumps({"type": "record", "name": "Row", "fields": fields})


@pytest.mark.parametrize(
    ("field", "kind", "value", "reason"),
    [
        ("long", pa.int64(), None, "column c is null, which its schema does not allow"),
        ({"type": "long", "logicalType": "timestamp-millis"}, TIMESTAMP, AT, r"column c has parts of a millisecond"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string(), "B", "column c is 'B', which is no symbol"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"x", "column c has 1 bytes, and its schema 2"),
    ],
)
def test_a_row_that_its_schema_cannot_hold_is_refused(field: Any, kind: Any, value: Any, reason: str) -> None:
    """Never rounded, cut or left out."""
    with pytest.raises(UnwritableRowError, match=reason):
        encode_values(rows_of(kind, [value]), encoder_of("avro", avro_with(field)))


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("int", pa.int64()),
        ("float", pa.float64()),
        ("double", pa.int64()),
        ("string", pa.int64()),
        ("long", TIMESTAMP),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, TIMESTAMP),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.int64()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 1}, pa.decimal128(10, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 4}, pa.decimal128(10, 2)),
    ],
)
def test_a_column_whose_values_a_schema_may_not_hold_is_refused(field: Any, kind: Any) -> None:
    """Before the first row, whatever the rows are."""
    with pytest.raises(UnwritableColumnError, match=r"column c is of the type .*: cast the column"):
        make_encoder("avro", avro_with(field), "Row", row_type(kind))


def test_a_column_that_a_schema_lacks_is_refused_and_so_is_a_field_that_no_column_fills() -> None:
    """The one would be dropped; the other has no value."""
    with pytest.raises(UnwritableColumnError, match="has no field for the columns d"):
        make_encoder("avro", avro_with("long"), "Row", pa.struct([*row_type(pa.int64()), pa.field("d", pa.int64())]))
    only_id = pa.struct([("id", pa.int64())])
    with pytest.raises(UnwritableColumnError, match="the schema needs c"):
        make_encoder("avro", avro_with("long"), "Row", only_id)
    assert make_encoder("avro", avro_with("long", default=7), "Row", only_id)({"id": 1}) == b"\2\x0e"


def test_a_schema_that_is_given_takes_narrower_columns(registry: RegistryForTests) -> None:
    """What each value of a column fits, the column fits: an int in a long, milliseconds that are
    whole."""
    whole = AT.replace(microsecond=123_000)
    fields: list[tuple[Any, Any, Any]] = [
        ("long", pa.int32(), 7),
        ("double", pa.int32(), 7),
        ({"type": "long", "logicalType": "timestamp-millis"}, TIMESTAMP, whole),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4},
            pa.decimal128(10, 2),
            decimal.Decimal("1.50"),
        ),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string(), "A"),
    ]
    for number, (field, kind, value) in enumerate(fields, 1):
        text = avro_with(field)
        written = encode_values(rows_of(kind, [value]), encoder_of("avro", text, number))
        assert decoded(registry, "avro", text, written, kind, number).to_pylist() == [value]


def test_numbers_of_protobufs_fields_stay_and_are_not_given_again() -> None:
    """Columns that move, come and go: what was written before is read as what it was."""
    first = derive_protobuf(pa.schema([("a", pa.int64()), ("b", pa.string())]), "s.Row")
    second = derive_protobuf(pa.schema([("c", pa.int64()), ("b", pa.string())]), "s.Row", first)
    third = derive_protobuf(pa.schema([("d", pa.int64()), ("b", pa.string())]), "s.Row", second)
    numbers = [{each.name: each.number for each in file.message_type[0].field} for file in (first, second, third)]
    assert numbers == [{"a": 1, "b": 2}, {"c": 3, "b": 2}, {"d": 4, "b": 2}]
    assert list(third.message_type[0].reserved_name) == ["a", "c"]


def order_message(*, with_presence: bool = True) -> Any:
    """A class as protoc makes it, of a file that is given."""
    file = descriptor_pb2.FileDescriptorProto(name=f"given_{with_presence}.proto", package="given", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.enum_type.add(name="Kind").value.add(name="TEA", number=0)
    for number, (name, kind) in enumerate((("id", 3), ("count", 5), ("price", 2), ("note", 9)), 1):
        field = message.field.add(name=name, number=number, type=kind, label=1)
        if with_presence:
            field.proto3_optional, field.oneof_index = True, number - 1
            message.oneof_decl.add(name=f"_{name}")
    message.field.add(name="kind", number=9, type=14, label=1, type_name=".given.Order.Kind")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name], pool)["given.Order"]


def test_a_protobuf_message_that_is_given_takes_columns_by_name() -> None:
    """Fields without a column stay unset; null is null only where the field has it."""
    order = order_message()
    columns = pa.struct([("id", pa.int32()), ("note", pa.string()), ("kind", pa.string())])
    encode = protobuf_encoder(order, columns)
    assert order.FromString(encode({"id": 7, "note": None, "kind": "TEA"})) == order(id=7, kind=0)
    with pytest.raises(UnwritableRowError, match="column kind is 'MILK', which is no symbol"):
        encode({"id": 7, "note": None, "kind": "MILK"})
    with pytest.raises(UnwritableRowError, match="column id is null, and its field has no null"):
        protobuf_encoder(order_message(with_presence=False), columns)({"id": None, "note": None, "kind": "TEA"})


@pytest.mark.parametrize(
    ("name", "kind"),
    [("count", pa.int64()), ("price", pa.float64()), ("note", pa.int64()), ("id", pa.string()), ("id", TIMESTAMP)],
)
def test_a_column_that_a_given_message_may_not_hold_is_refused(name: str, kind: Any) -> None:
    """Before the first row; and a column that it lacks."""
    with pytest.raises(UnwritableColumnError, match=f"column {name} is of the type .*: cast the column"):
        protobuf_encoder(order_message(), pa.struct([(name, kind)]))
    with pytest.raises(UnwritableColumnError, match="the message given.Order has no field for other"):
        protobuf_encoder(order_message(), pa.struct([("other", kind)]))


def test_a_json_schema_that_is_given_checks_each_row() -> None:
    """The document is written as it is, or not at all."""
    check = json_checker({"type": "object", "properties": {"id": {"type": "integer", "minimum": 1}}})
    assert check({"document": '{"id":1}'}) == b'{"id":1}'
    with pytest.raises(UnwritableRowError, match=r"\$\.id: 0 is less than the minimum of 1"):
        check({"document": '{"id":0}'})
