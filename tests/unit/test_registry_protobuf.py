"""Schemas of Protobuf in the registry: text, descriptors, references, and their rules."""

import base64
import string
from typing import Any

import pytest
from confluent_kafka.schema_registry.confluent import meta_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2, type_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from barnabas.registry.formats.compatibility import check_compatibility
from barnabas.registry.formats.parsing import parse_schema
from barnabas.registry.formats.protobuf.parser import parse_file
from barnabas.registry.formats.schema import (
    CompatibilityLevel,
    InvalidSchemaError,
    ParsedSchema,
    SchemaReference,
    SchemaType,
)


def parsed(text: str, **more: Any) -> ParsedSchema:
    """A schema of Protobuf."""
    return parse_schema(SchemaType.PROTOBUF, text, **more)


def message(fields: str, name: str = "M") -> str:
    """A file of proto3 with one message."""
    return f'syntax = "proto3"; message {name} {{ {fields} }}'


EVERYTHING = """// comments go
syntax = "proto2";
package a.b; import "google/protobuf/descriptor.proto"; import public "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
option java_package = "x"; option (mine).foo = 'it\\'s\\n';
service S { rpc R (stream M) returns (M.N) { option deprecated = true; } rpc Q (.a.b.M) returns (stream M); }
enum Z { ZERO = 0; }
message M {
  enum E { option allow_alias = true; A = 0; B = 0x1; C = 1; reserved 4 to max, 3; reserved "D"; }
  reserved 5, 7 to 9, 1000 to max; reserved "q"; option deprecated = true;
  required int32 i = 1 [default = -5, deprecated = true, (confluent.field_meta).tags = "PII"];
  optional string s = 2 [default = "x\\"y", json_name = "S"];
  map<string, N> m = 3; oneof o { int32 x = 10; N y = 11; } repeated group G = 12 { optional int32 z = 1; }
  message N { optional E e = 1 [default = B]; optional .google.protobuf.Timestamp t = 2; }
  extensions 100 to 199; optional double d = 20 [default = -inf];
}
message Mine { optional string foo = 1; repeated int32 l = 2; }
extend google.protobuf.FileOptions { optional Mine mine = 50000; }
extend M { optional int32 ext = 100; }
"""

EVERYTHING_TEXT = """syntax = "proto2";
package a.b;

import "google/protobuf/descriptor.proto";
import "confluent/meta.proto";
import public "google/protobuf/timestamp.proto";

option java_package = "x";
option (mine).foo = "it\\'s\\n";

message M {
  reserved 5, 7 to 9, 1000 to max;
  reserved "q";

  option deprecated = true;

  required int32 i = 1 [
    deprecated = true,
    (confluent.field_meta).tags = "PII",
    default = -5
  ];
  optional string s = 2 [
    default = "x\\"y",
    json_name = "S"
  ];
  map<string, N> m = 3;
  optional double d = 20 [default = -inf];

  oneof o {
    int32 x = 10;
    N y = 11;
  }

  repeated group G = 12 {
    optional int32 z = 1;
  }

  extensions 100 to 199;

  message N {
    optional E e = 1 [default = B];
    optional .google.protobuf.Timestamp t = 2;
  }
  enum E {
    reserved 4 to max, 3;
    reserved "D";
    option allow_alias = true;
    A = 0;
    B = 1;
    C = 1;
  }
}
message Mine {
  optional string foo = 1;
  repeated int32 l = 2;
}
enum Z {
  ZERO = 0;
}

extend google.protobuf.FileOptions {
  optional Mine mine = 50000;
}
extend M {
  optional int32 ext = 100;
}

service S {
  rpc R (stream M) returns (M.N) {
    option deprecated = true;
  };
  rpc Q (.a.b.M) returns (stream M);
}
"""


def test_the_canonical_text_has_the_parts_of_a_file_in_confluents_order() -> None:
    """Without comments, messages before enums, and it is its own canonical text."""
    schema = parsed(EVERYTHING)
    assert schema.text == EVERYTHING_TEXT
    assert parsed(schema.text).text == EVERYTHING_TEXT


def test_a_schema_and_its_descriptor_have_one_normal_form() -> None:
    """Clients of Python register a descriptor in base64 where those of Java register a text."""
    schema = parsed(EVERYTHING)
    descriptor = parsed(schema.formatted("serialized"))
    assert descriptor.normalized().text == schema.normalized().text
    assert not descriptor.incompatibilities(schema)
    assert not schema.incompatibilities(descriptor)


def test_a_serialized_schema_is_a_descriptor_with_its_options() -> None:
    """A client of Python reads it, somebody's own options too."""
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(parsed(EVERYTHING).formatted("serialized")))
    assert file.package == "a.b"
    assert file.options.java_package == "x"
    first = file.message_type[0].field[0]
    assert (first.name, first.number, first.default_value) == ("i", 1, "-5")
    assert first.options.deprecated
    assert list(first.options.Extensions[meta_pb2.field_meta].tags) == ["PII"]
    assert file.message_type[0].nested_type[0].name == "MEntry"
    assert file.message_type[0].nested_type[0].options.map_entry
    with pytest.raises(TypeError, match="descriptor"):  # what it imports is missing
        descriptor_pool.DescriptorPool().Add(file)


def _forget_what_follows(file: Any) -> None:
    """Names in JSON, and the declarations of extensions, which are options of ranges."""
    file.ClearField("options")
    messages = [*file.message_type]
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
        for extensions in message.extension_range:
            extensions.ClearField("options")


def test_an_option_whose_message_lacks_a_required_field_is_serialized_as_it_is() -> None:
    """What a compiler refuses is kept here, as in Confluent's registry."""
    text = """syntax = "proto2"; import "google/protobuf/descriptor.proto"; option (mine).a = 1;
    message Mine { optional int32 a = 1; required int32 b = 2; }
    extend google.protobuf.FileOptions { optional Mine mine = 50000; }"""
    assert descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(parsed(text).formatted("serialized")))


@pytest.mark.parametrize("module", [struct_pb2, type_pb2, descriptor_pb2, meta_pb2])
def test_a_descriptor_that_a_compiler_made_stays_the_same_through_the_text(module: Any) -> None:
    """Bytes to text to bytes: nothing but the name of the file, and names in JSON that follow
    from others, is another."""
    given = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    schema = parsed(base64.b64encode(module.DESCRIPTOR.serialized_pb).decode())
    made = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.formatted("serialized")))
    made.name = given.name
    for file in (given, made):
        _forget_what_follows(file)
    assert made == given


def test_without_extensions_options_of_somebodys_own_are_left_out() -> None:
    """Those of Confluent stay."""
    text = parsed(EVERYTHING).formatted("ignore_extensions")
    assert "(mine)" not in text
    assert "extend" not in text
    assert "(confluent.field_meta)" in text
    assert parsed(EVERYTHING).formatted("something") == EVERYTHING_TEXT


def test_normal_forms_are_equal_where_only_the_order_of_parts_differs() -> None:
    """Fields, values, imports and options are sorted; names are full."""
    one = 'syntax = "proto3"; package p; import "google/protobuf/any.proto"; import "google/protobuf/empty.proto";'
    one += 'option java_package = "x"; option cc_enable_arenas = true;'
    other = 'syntax = "proto3"; package p; import "google/protobuf/empty.proto"; import "google/protobuf/any.proto";'
    other += 'option cc_enable_arenas = true; option java_package = "x";'
    first = parsed(
        f"{one} message M {{ N b = 2; int32 a = 1; reserved 4, 3; }} message N {{}} enum E {{ Z = 0; Y = 1; X = 1; }}".replace(
            "X = 1", "X = 2"
        )
    )
    second = parsed(
        f"{other} message M {{ int32 a = 1; .p.N b = 2; reserved 3; reserved 4; }} message N {{}} enum E {{ Z = 0; X = 2; Y = 1; }}"
    )
    assert first.text != second.text
    assert first.normalized().text == second.normalized().text
    assert parsed(first.normalized().text).normalized().text == first.normalized().text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ""),
        ("x", "line 1, column 1: 'x' is not expected here"),
        ("message M {", "ends too early"),
        ("message M { int32 a = 1 }", "';' is missing"),
        ("message M {\n int32 = 1; }", "line 2"),
        ("message M { int32 a = x; }", "a number is missing"),
        ("message M { int32 a = 1.5; }", "no whole number"),
        ("message M { /* }", "is no token"),
        ('message M { reserved "a; }', "is no token"),
        ("message M { ä }", "is no token"),
        ('syntax = "proto4";', "neither proto2 nor proto3"),
        ('edition = "2023";', "editions are not supported"),
        ("package a; package b;", "two packages"),
        (message("X a = 1;"), "in M: the type X of the field a is not defined"),
        (message("int32 a = 1; int32 b = 1;"), "the fields a and b have one number"),
        (message("int32 a = 1; int32 a = 2;"), "duplicate"),
        (message("int32 a = 0;"), "has the number 0"),
        (message("int32 a = 536870912;"), "has the number"),
        (message("required int32 a = 1;"), "proto3 does not have"),
        (message("map<float, int32> a = 1;"), "keys of the type float"),
        (message("oneof o { repeated int32 a = 1; }"), "has a label"),
        (message("enum E { A = 1; }"), "is not 0"),
        (message("enum E { A = 0; B = 0; }"), "the values A and B have one number"),
        (message("enum E { }"), "no values"),
        (message("") + message(""), "is not expected here"),
        (message("") + "message M {}", "duplicate"),
        ('syntax = "proto3"; service S { rpc R (M) returns (M); }', "the message M of the method R"),
        ('syntax = "proto3"; import "x.proto"; message M { x.Y a = 1; }', "no reference for the import x.proto"),
        ("extend M { optional int32 a = 1; }", "the extended message M is not defined"),
        ("bm90IGEgZGVzY3JpcHRvcg==", "line 1"),
        ("message M { reserved 5 to 3; }", "are none"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(text: str, reason: str) -> None:
    """The text for a person names the line, or the message, that is wrong."""
    if not text:
        assert parsed(text).text == ""
        return
    with pytest.raises(InvalidSchemaError) as error:
        parsed(text)
    assert reason in str(error.value)


def test_an_import_without_a_reference_is_no_error_while_nothing_of_it_is_used() -> None:
    """As in Confluent's registry: options of somebody's own are kept as they are."""
    text = 'syntax = "proto3"; import "mine.proto"; message M { int32 a = 1 [(mine.tag) = "x"]; }'
    assert '[(mine.tag) = "x"]' in parsed(text).text
    assert base64.b64decode(parsed(text).formatted("serialized"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("google/protobuf/timestamp.proto", "google.protobuf.Timestamp"),
        ("google/protobuf/any.proto", "google.protobuf.Any"),
        ("google/protobuf/wrappers.proto", "google.protobuf.Int64Value"),
        ("google/protobuf/descriptor.proto", "google.protobuf.FieldDescriptorProto"),
        ("google/type/money.proto", "google.type.Money"),
        ("google/type/datetime.proto", "google.type.DateTime"),
        ("confluent/meta.proto", "confluent.Meta"),
        ("confluent/type/decimal.proto", "confluent.type.Decimal"),
        ("confluent/type/variant.proto", "confluent.type.Variant"),
    ],
)
def test_files_of_google_and_confluent_need_no_reference(name: str, kind: str) -> None:
    """Nor do those that they import themselves."""
    schema = parsed(f'syntax = "proto3"; import "{name}"; message M {{ {kind} a = 1; }}')
    assert f".{kind} a = 1;" in schema.normalized().text


def test_references_are_found_by_the_names_of_imports() -> None:
    """Also those that a reference has itself, and in a circle never."""
    references = [SchemaReference("b.proto", "b", 1)]
    a, b = (
        'syntax = "proto3"; package a; message A { int32 x = 1; }',
        'import "a.proto"; message B { optional a.A a = 1; }',
    )
    text = 'syntax = "proto3"; import "b.proto"; message M { B b = 1; }'
    assert parsed(text, references=references, resolved={"a.proto": a, "b.proto": b}).text
    with pytest.raises(InvalidSchemaError, match=r"the reference a\.proto: line 1"):
        parsed(text, references=references, resolved={"a.proto": "message", "b.proto": b})
    circle = 'import "b.proto"; package a; message A {}'
    with pytest.raises(InvalidSchemaError, match=r"the import b\.proto imports itself in a circle"):
        parsed(text, references=references, resolved={"a.proto": circle, "b.proto": b})


def test_a_message_of_a_reference_is_compared_where_its_version_is_another() -> None:
    """The same version is not compared, another one is."""
    text = 'syntax = "proto3"; import "a.proto"; message M { A a = 1; }'
    texts = [f'syntax = "proto3"; message A {{ {kind} x = 1; }}' for kind in ("int32", "string", "int64")]
    old, other, alike = (
        parsed(text, references=[SchemaReference("a.proto", "a", version)], resolved={"a.proto": each})
        for version, each in enumerate(texts, 1)
    )
    assert not old.incompatibilities(old)
    assert not alike.incompatibilities(old)
    (found,) = other.incompatibilities(old)
    assert "FIELD_NAMED_TYPE_CHANGED" in found


@pytest.mark.parametrize("depth", [40, 10_000])
@pytest.mark.parametrize(
    ("start", "again"),
    [
        ("", "message M { "),
        ("message M { ", "optional group G = 1 { "),
        ("option (a) = { ", "b: { "),
        ("option a = ", "[ "),
    ],
)
def test_what_nests_too_deeply_is_refused(depth: int, start: str, again: str) -> None:
    """As protoc does, at 32 levels; never a RecursionError."""
    with pytest.raises(InvalidSchemaError, match="deeper than 32"):
        parsed(start + again * depth)


def test_a_descriptor_that_nests_too_deeply_is_refused() -> None:
    """It is no descriptor for Protobuf's library, and no text."""
    outer = descriptor_pb2.FileDescriptorProto(name="x")
    inner = outer.message_type.add(name="M")
    for _ in range(90):
        inner = inner.nested_type.add(name="M")
    with pytest.raises(InvalidSchemaError):
        parsed(base64.b64encode(outer.SerializeToString()).decode())


def test_a_megabyte_is_understood_and_compared() -> None:
    """Each field is looked at once."""
    fields = [f"string name_of_{index} = {index % 1_000 + 1};" for index in range(35_000)]
    messages = (message(" ".join(fields[at : at + 1_000]), f"M{at}") for at in range(0, 35_000, 1_000))
    schema = parsed("".join(messages).replace('syntax = "proto3"; ', ""))
    assert len(schema.text) > 900_000
    assert not schema.incompatibilities(schema)


@pytest.mark.parametrize("start", ["/*", '"', "'a", "/*/", "//"])
def test_a_megabyte_of_starts_without_ends_is_refused_at_the_first(start: str) -> None:
    """The rest is not looked at again and again."""
    with pytest.raises(InvalidSchemaError):
        parsed(start * 500_000 + "\nx")


def test_messages_are_confluents_with_the_words_for_either_direction() -> None:
    """Kind and description, as in answers of Confluent's registry."""
    old, new = parsed(message("int32 a = 1;")), parsed(message("string a = 1;"))
    assert new.incompatibilities(old) == [
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/M/1\' in the new'
        ' schema does not match its kind in the old schema"}'
    ]
    (found,) = new.incompatibilities(old, reader="old", writer="new")
    assert "in the old schema does not match its kind in the new schema" in found


def _elements(text: str) -> list[tuple[str, ...]]:
    """What proto-schema-parser finds in a file: messages with their fields."""
    found = []
    for element in Parser().parse(text).file_elements:
        if isinstance(element, ast.Message):
            for part in element.elements:
                if isinstance(part, ast.Field):
                    label = part.cardinality.value.lower() if part.cardinality else ""
                    found.append((element.name, label, part.type, part.name, str(part.number)))
                elif isinstance(part, ast.MapField):
                    kind = f"map<{part.key_type}, {part.value_type}>"
                    found.append((element.name, "", kind, part.name, str(part.number)))
    return found


LETTERS = st.sampled_from(string.ascii_lowercase[:5])
TYPES = st.sampled_from(
    ["int32", "sint64", "string", "bytes", "double", "fixed32", "bool", "A", ".A", "map<string, A>", "map<int32, bool>"]
)
FIELDS = st.lists(
    st.tuples(st.sampled_from(["", "optional ", "repeated "]), TYPES, LETTERS, st.integers(1, 9)), max_size=5
)


def _message(name: str, fields: list[tuple[str, str, str, int]], in_oneof: int) -> str:
    unique = {number: (label, kind, each) for label, kind, each, number in fields}
    named = {each: (label, kind, number) for number, (label, kind, each) in unique.items()}
    lines = [
        f"{'' if 'map' in kind else label}{kind} {each} = {number};" for each, (label, kind, number) in named.items()
    ]
    plain, chosen = lines[in_oneof:], [line for line in lines[:in_oneof] if "map" not in line]
    bare = [line.removeprefix("optional ").removeprefix("repeated ") for line in chosen]
    oneof = f"oneof o {{ {' '.join(bare)} }}" if bare else ""
    return f"message {name} {{ {' '.join(plain)} {oneof} }}"


FILES = st.tuples(FIELDS, FIELDS, st.integers(0, 3)).map(
    lambda parts: f'syntax = "proto3";\n{_message("A", parts[0], 0)}\n{_message("B", parts[1], parts[2])}\n'
)


@settings(max_examples=100, deadline=None)
@given(FILES)
def test_a_schema_reads_what_it_wrote_itself(text: str) -> None:
    """Also after it was written as text, in its normal form, or as a descriptor."""
    schema = parsed(text)
    for again in (parsed(schema.text), schema.normalized(), parsed(schema.formatted("serialized"))):
        assert not again.incompatibilities(schema)
        assert not schema.incompatibilities(again)
        assert again.normalized().text == schema.normalized().text


@settings(max_examples=100, deadline=None)
@given(FILES, FILES)
def test_full_is_backward_and_forward(old: str, new: str) -> None:
    """At the level FULL a schema fits where it fits at both levels."""

    def fits(level: CompatibilityLevel) -> bool:
        return not check_compatibility(level, parsed(new), [(1, parsed(old))])

    both = fits(CompatibilityLevel.BACKWARD) and fits(CompatibilityLevel.FORWARD)
    assert fits(CompatibilityLevel.FULL) is both


@settings(max_examples=30, deadline=None)
@given(FILES)
def test_proto_schema_parser_finds_the_same_fields(text: str) -> None:
    """Another parser of the language, which stands on its published grammar."""
    ours = [
        (each.name, field.label, field.type, field.name, str(field.number))
        for each in parse_file(text).messages
        for field in each.fields
    ]
    assert ours == _elements(text)
