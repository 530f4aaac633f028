"""The files that every schema of Protobuf may import without a reference.

Those of Google come with its libraries for Python; Confluent's are a few lines.

In Confluent's registry: `ProtobufSchema.KNOWN_DEPENDENCIES`.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec

from google.protobuf import descriptor_pb2

from barnabas.registry.formats.protobuf.elements import FileElement
from barnabas.registry.formats.protobuf.from_descriptors import file_of_descriptor
from barnabas.registry.formats.protobuf.parser import parse_file

__all__ = ["known_file"]

_GOOGLE = {
    "google/protobuf": (
        *("any", "api", "descriptor", "duration", "empty", "field_mask"),
        *("source_context", "struct", "timestamp", "type", "wrappers"),
    ),
    "google/type": (
        *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval"),
        *("latlng", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
    ),
}
_MODULES = {
    f"{folder}/{name}.proto": f"{folder.replace('/', '.')}.{name}_pb2"
    for folder, names in _GOOGLE.items()
    for name in names
}
_OPTIONS = ("File", "Message", "Field", "Enum", "EnumValue")
_EXTENDED = {"EnumValue": "enum_value"}

_CONFLUENT = {
    "confluent/meta.proto": """
        syntax = "proto3"; package confluent;
        import "google/protobuf/descriptor.proto";
        option java_package = "io.confluent.protobuf"; option java_outer_classname = "MetaProto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
        """
    + "".join(
        f"extend google.protobuf.{kind}Options {{ Meta {_EXTENDED.get(kind, kind.lower())}_meta = 1088; }}"
        for kind in _OPTIONS
    ),
    "confluent/type/decimal.proto": """
        syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
        """,
    "confluent/type/variant.proto": """
        syntax = "proto3"; package confluent.type;
        message Variant { bytes metadata = 1; bytes value = 2; }
        """,
}


@cache
def known_file(name: str) -> FileElement | None:
    """The file of that name, or None."""
    if name in _CONFLUENT:
        return parse_file(_CONFLUENT[name])
    module = _MODULES.get(name)
    if module is None or find_spec(module.rpartition(".")[0]) is None or find_spec(module) is None:
        return None
    descriptor = descriptor_pb2.FileDescriptorProto.FromString(import_module(module).DESCRIPTOR.serialized_pb)
    return file_of_descriptor(descriptor)
