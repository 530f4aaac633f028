"""Files of Protobuf in their serialized form, as registries give them: what they import, and which
message a value is.

Kafka has no counterpart; Confluent's client has ProtobufSchema.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from barnabas.client.errors import ClientError, ConfigurationError

__all__ = ["imported_files", "message_class", "message_name"]


def message_class(text: str, indexes: Sequence[int], named: Mapping[str, str]) -> Any:
    """The class of a message of a file; ``named`` are the files that it refers to, by name.

    Raises `ClientError`, as for an import that is not there."""
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    name = message_name(text, indexes)
    file = FileDescriptorProto()
    file.ParseFromString(base64.b64decode(text))
    pool = descriptor_pool.DescriptorPool()
    for each in (*imported_files(file, named), file):
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def message_name(text: str, indexes: Sequence[int]) -> str:
    """The full name of a message of a file, in its serialized form."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    file = FileDescriptorProto()
    names: list[str] = []
    try:
        file.ParseFromString(base64.b64decode(text))
        messages = file.message_type
        for index in indexes:
            names.append(messages[index].name)
            messages = messages[index].nested_type
    except (ValueError, DecodeError):
        raise ConfigurationError("the value's schema is no Protobuf file that can be used") from None
    except IndexError:
        raise ClientError("the value names no message of its schema") from None
    return ".".join(filter(None, [file.package, *names]))


def imported_files(file: Any, named: Mapping[str, str]) -> list[Any]:
    """The files that a file imports, those that others import first: references by their names, and
    Google's own."""
    from google.protobuf import descriptor_pb2

    found: dict[str, Any] = {}
    for name, text in named.items():
        found[name] = descriptor_pb2.FileDescriptorProto()
        found[name].ParseFromString(base64.b64decode(text))
        found[name].name = name
    own: dict[str, Any] = {}
    for each in (*found.values(), file):
        _add_known(each, own, found)
    return [*own.values(), *found.values()]


def _add_known(file: Any, own: dict[str, Any], named: Mapping[str, Any]) -> None:
    """Add Google's files that a file imports, those that they import first."""
    from google.protobuf import descriptor_pb2

    for name in file.dependency:
        if name in own or name in named:
            continue
        if not re.fullmatch(r"google/(protobuf|type)/[a-z_]+\.proto", name):
            raise ConfigurationError(f"it imports {name}, which is no reference of it")
        try:
            module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ImportError:
            raise ConfigurationError(f"it imports {name}, which is not installed") from None
        known = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(known)
        _add_known(known, own, named)
        own[name] = known
