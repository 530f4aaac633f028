"""Where Apicurio contradicts Confluent's published rules for Protobuf."""

from support.registry_pairs.pair import Ruling

__all__ = ["RULINGS"]

_GUIDE = "protobuf.dev, Language Guide, Updating A Message Type, to which Confluent's rules refer"
_YOKOTA = "yokota.blog/2021/08/26/understanding-protobuf-compatibility, by the author of Confluent's rules"
_CHANGES = "confluentinc/schema-registry, protobuf-provider, SchemaDiff: the list of compatible changes"
_DIFFERENCES = "confluentinc/schema-registry, protobuf-provider, Difference: what is not in that list"

_ALIKE = Ruling(True, _GUIDE, "the two types share their form on the wire")
_GONE = Ruling(True, _YOKOTA, "a field or a value that goes need not be reserved")
_NAME = Ruling(True, _CHANGES, "names are not on the wire: FIELD_NAME_CHANGED, ENUM_CONST_CHANGED")
_RESERVED = Ruling(True, _CHANGES, "reserved numbers are not compared, FIELD_ADDED is compatible")
_LABEL = Ruling(True, _CHANGES, "FIELD_STRING_OR_BYTES_LABEL_CHANGED, and labels of messages are not compared")
_NO_LABEL = Ruling(True, _CHANGES, "labels are compared where both fields have one")
_SEVERAL = Ruling(False, _YOKOTA, "several fields that move into a oneof may clear each other")
_EXISTING = Ruling(False, _YOKOTA, "a field that moves into an existing oneof may clear what is set there")
_ONEOF = Ruling(True, _CHANGES, "ONEOF_REMOVED: all of it goes")
_PACKAGE = Ruling(False, _DIFFERENCES, "PACKAGE_CHANGED")
_SYNTAX = Ruling(True, _CHANGES, "the syntax is not compared, and a label only where both have one")
_SERVICE = Ruling(True, _CHANGES, "services are not compared: they are not in records")

RULINGS: dict[str, Ruling] = {
    "int32 reads int64": _ALIKE,
    "int64 reads uint32": _ALIKE,
    "uint32 reads uint64": _ALIKE,
    "uint64 reads bool": _ALIKE,
    "bool reads int32": _ALIKE,
    "int32 reads bool, another form": _ALIKE,
    "string reads bytes, another form": _ALIKE,
    "sint32 reads sint64": _ALIKE,
    "fixed32 reads sfixed32": _ALIKE,
    "sfixed64 reads fixed64": _ALIKE,
    "string reads bytes": _ALIKE,
    "value of a map promoted": _ALIKE,
    "enum becomes an int": _ALIKE,
    "int becomes an enum": _ALIKE,
    "field removed": _GONE,
    "field removed and reserved": _GONE,
    "field renumbered": _GONE,
    "value of an enum removed": _GONE,
    "field renamed": _NAME,
    "value of an enum renamed": _NAME,
    "field uses a reserved number": _RESERVED,
    "optional string becomes repeated": _LABEL,
    "optional message becomes repeated": _LABEL,
    "optional string becomes repeated in proto3": _LABEL,
    "implicit int becomes repeated": _NO_LABEL,
    "implicit int becomes optional": _NO_LABEL,
    "two fields move into a new oneof": _SEVERAL,
    "three fields move into an existing oneof": _SEVERAL,
    "field moves into an existing oneof": _EXISTING,
    "two oneofs become one": _EXISTING,
    "oneof removed": _ONEOF,
    "package changes": _PACKAGE,
    "package added": _PACKAGE,
    "proto2 becomes proto3": _SYNTAX,
    "service removed": _SERVICE,
    "method removed": _SERVICE,
}
"""By the name of the pair."""
