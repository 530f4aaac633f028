"""Pairs of schemas of Protobuf."""

import itertools
from collections.abc import Iterator

from support.registry_pairs.pair import Pair
from support.registry_pairs.protobuf_rulings import RULINGS

__all__ = ["protobuf_pairs"]

Row = tuple[str, str, str]


def protobuf_pairs() -> list[Pair]:
    """All pairs; names are unique."""
    rows = [*_scalars(), *_fields(), *_labels(), *_oneofs(), *_messages(), *_maps(), *_enums(), *_files()]
    return [Pair(f"protobuf: {name}", "PROTOBUF", read, written, RULINGS.get(name)) for name, read, written in rows]


def proto3(body: str) -> str:
    """A file of proto3."""
    return f'syntax = "proto3";\n{body}\n'


def proto2(body: str) -> str:
    """A file of proto2."""
    return f'syntax = "proto2";\n{body}\n'


def message(fields: str, name: str = "M") -> str:
    """A message of proto3."""
    return proto3(f"message {name} {{ {fields} }}")


_ONE_OF_EACH = ("int32", "bool", "sint64", "fixed32", "sfixed64", "float", "double", "string", "bytes")


def _scalars() -> Iterator[Row]:
    alike = ("int32", "int64", "uint32", "uint64", "bool")
    for read, written in itertools.pairwise((*alike, "int32")):
        yield f"{read} reads {written}", message(f"{read} f = 1;"), message(f"{written} f = 1;")
    for read, written in itertools.pairwise((*_ONE_OF_EACH, "int32")):
        yield f"{read} reads {written}, another form", message(f"{read} f = 1;"), message(f"{written} f = 1;")
    yield "sint32 reads sint64", message("sint32 f = 1;"), message("sint64 f = 1;")
    yield "fixed32 reads sfixed32", message("fixed32 f = 1;"), message("sfixed32 f = 1;")
    yield "sfixed64 reads fixed64", message("sfixed64 f = 1;"), message("fixed64 f = 1;")
    yield "string reads bytes", message("string f = 1;"), message("bytes f = 1;")
    yield "the same", message("int32 f = 1;"), message("int32 f = 1;")


def _fields() -> Iterator[Row]:
    one, two = "int32 a = 1;", "string b = 2;"
    yield "field added", message(one + two), message(one)
    yield "field removed", message(one), message(one + two)
    yield "field removed and reserved", message(f"reserved 2; reserved 'b'; {one}"), message(one + two)
    yield "field renamed", message("int32 x = 1;"), message(one)
    yield "field renumbered", message("int32 a = 2;"), message(one)
    yield "fields in another order", message(two + one), message(one + two)
    yield "field replaced by another type", message("string a = 1;"), message(one)
    yield "two fields changed", message("string a = 1; int32 b = 2;"), message(one + two)
    yield "field uses a reserved number", message(one + two), message(f"reserved 2; {one}")
    yield "options do not matter", message("int32 a = 1 [deprecated = true];"), message(one)
    yield "comments do not matter", message("// x\nint32 a = 1;"), message(one)
    yield (
        "required field added",
        proto2("message M { required int32 a = 1; required int32 b = 2; }"),
        proto2("message M { required int32 a = 1; }"),
    )
    yield (
        "required field removed",
        proto2("message M { required int32 a = 1; }"),
        proto2("message M { required int32 a = 1; required int32 b = 2; }"),
    )
    yield (
        "optional field of proto2 added",
        proto2("message M { optional int32 a = 1; optional int32 b = 2; }"),
        proto2("message M { optional int32 a = 1; }"),
    )


def _labels() -> Iterator[Row]:
    yield (
        "optional int becomes repeated",
        proto2("message M { repeated int32 a = 1; }"),
        proto2("message M { optional int32 a = 1; }"),
    )
    yield (
        "repeated int becomes optional",
        proto2("message M { optional int32 a = 1; }"),
        proto2("message M { repeated int32 a = 1; }"),
    )
    yield (
        "optional string becomes repeated",
        proto2("message M { repeated string a = 1; }"),
        proto2("message M { optional string a = 1; }"),
    )
    yield (
        "optional double becomes required",
        proto2("message M { required double a = 1; }"),
        proto2("message M { optional double a = 1; }"),
    )
    yield (
        "optional message becomes repeated",
        proto2("message M { repeated N a = 1; } message N { optional int32 x = 1; }"),
        proto2("message M { optional N a = 1; } message N { optional int32 x = 1; }"),
    )
    yield "implicit int becomes repeated", message("repeated int32 a = 1;"), message("int32 a = 1;")
    yield "implicit int becomes optional", message("optional int32 a = 1;"), message("int32 a = 1;")
    yield "optional int becomes repeated in proto3", message("repeated int32 a = 1;"), message("optional int32 a = 1;")
    yield (
        "optional string becomes repeated in proto3",
        message("repeated string a = 1;"),
        message("optional string a = 1;"),
    )


def _oneofs() -> Iterator[Row]:
    one, two, three = "int32 a = 1;", "string b = 2;", "int32 c = 3;"
    yield "field moves into a new oneof", message(f"oneof o {{ {one} }}"), message(one)
    yield "two fields move into a new oneof", message(f"oneof o {{ {one} {two} }}"), message(one + two)
    yield "a field and a new one move into a new oneof", message(f"oneof o {{ {one} {two} }}"), message(one)
    yield (
        "field moves into an existing oneof",
        message(f"oneof o {{ {one} {two} }}"),
        message(f"oneof o {{ {one} }} {two}"),
    )
    yield (
        "three fields move into an existing oneof",
        message(f"oneof o {{ {one} {two} {three} int32 d = 4; }}"),
        message(f"{one} {two} {three} oneof o {{ int32 d = 4; }}"),
    )
    yield "field added to a oneof", message(f"oneof o {{ {one} {two} }}"), message(f"oneof o {{ {one} }}")
    yield "field removed from a oneof", message(f"oneof o {{ {one} }}"), message(f"oneof o {{ {one} {two} }}")
    yield "oneof added", message(f"{one} oneof o {{ {two} }}"), message(one)
    yield "oneof removed", message(one), message(f"{one} oneof o {{ {two} }}")
    yield "oneof renamed", message(f"oneof p {{ {one} {two} }}"), message(f"oneof o {{ {one} {two} }}")
    yield "field of a oneof changes its type", message("oneof o { string a = 1; }"), message(f"oneof o {{ {one} }}")
    yield "field moves out of a oneof", message(f"{two} oneof o {{ {one} }}"), message(f"oneof o {{ {one} {two} }}")
    yield (
        "two oneofs become one",
        message(f"oneof o {{ {one} {two} }}"),
        message(f"oneof o {{ {one} }} oneof p {{ {two} }}"),
    )


def _messages() -> Iterator[Row]:
    one, two = "message A { int32 a = 1; }", "message B { int32 b = 1; }"
    yield "message added", proto3(one + two), proto3(one)
    yield "message removed", proto3(one), proto3(one + two)
    yield "messages in another order", proto3(two + one), proto3(one + two)
    yield "message renamed", proto3(two), proto3(one)
    yield "nested message added", message(f"int32 x = 1; {one}"), message("int32 x = 1;")
    yield "nested message removed", message("int32 x = 1;"), message(f"int32 x = 1; {one}")
    yield "type of a field becomes another message", message(f"B f = 1; {one} {two}"), message(f"A f = 1; {one} {two}")
    yield "type of a field becomes a scalar", message(f"int32 f = 1; {one}"), message(f"A f = 1; {one}")
    yield "type of a field becomes a message", message(f"A f = 1; {one}"), message(f"string f = 1; {one}")
    yield (
        "field of a nested message changes its type",
        message("A f = 1; message A { string a = 1; }"),
        message(f"A f = 1; {one}"),
    )
    yield (
        "field added to a nested message",
        message("A f = 1; message A { int32 a = 1; int32 b = 2; }"),
        message(f"A f = 1; {one}"),
    )
    yield "recursive message, the same", message("M next = 1; int32 v = 2;"), message("M next = 1; int32 v = 2;")
    yield "recursive message, another type", message("M next = 1; string v = 2;"), message("M next = 1; int32 v = 2;")
    yield (
        "full name in place of the short one",
        proto3(f"message M {{ .A f = 1; }} {one}"),
        proto3(f"message M {{ A f = 1; }} {one}"),
    )


def _maps() -> Iterator[Row]:
    yield "value of a map promoted", message("map<string, int64> m = 1;"), message("map<string, int32> m = 1;")
    yield "value of a map changes", message("map<string, string> m = 1;"), message("map<string, int32> m = 1;")
    yield "key of a map changes", message("map<int32, int32> m = 1;"), message("map<string, int32> m = 1;")
    yield "map becomes a scalar", message("string m = 1;"), message("map<string, int32> m = 1;")
    yield "map is the same", message("map<string, int32> m = 1;"), message("map<string, int32> m = 1;")


def _enums() -> Iterator[Row]:
    one = "enum E { X = 0; Y = 1; }"
    yield "value of an enum added", message("E e = 1; enum E { X = 0; Y = 1; Z = 2; }"), message(f"E e = 1; {one}")
    yield "value of an enum removed", message("E e = 1; enum E { X = 0; }"), message(f"E e = 1; {one}")
    yield "value of an enum renamed", message("E e = 1; enum E { X = 0; W = 1; }"), message(f"E e = 1; {one}")
    yield "enum becomes an int", message("int32 e = 1;"), message(f"E e = 1; {one}")
    yield "int becomes an enum", message(f"E e = 1; {one}"), message("int32 e = 1;")
    yield "enum becomes a string", message("string e = 1;"), message(f"E e = 1; {one}")
    yield "enum removed", message("int32 x = 2;"), message(f"int32 x = 2; {one}")


def _files() -> Iterator[Row]:
    body = "message M { int32 a = 1; }"
    service = "service S { rpc R (M) returns (M); }"
    yield "package changes", proto3(f"package b; {body}"), proto3(f"package a; {body}")
    yield "package added", proto3(f"package a; {body}"), proto3(body)
    yield (
        "option of the file changes",
        proto3(f'option java_package = "b"; {body}'),
        proto3(f'option java_package = "a"; {body}'),
    )
    yield "proto2 becomes proto3", proto3(body), proto2("message M { optional int32 a = 1; }")
    yield "service added", proto3(body + service), proto3(body)
    yield "service removed", proto3(body), proto3(body + service)
    yield "method removed", proto3(f"{body} service S {{}}"), proto3(body + service)
    stamped = 'import "google/protobuf/timestamp.proto";'
    yield (
        "field of a known import added",
        proto3(f"{stamped} message M {{ int32 a = 1; google.protobuf.Timestamp t = 2; }}"),
        proto3(f"{stamped} {body}"),
    )
    yield (
        "known import in place of a number",
        proto3(f"{stamped} message M {{ google.protobuf.Timestamp a = 1; }}"),
        proto3(f"{stamped} {body}"),
    )
