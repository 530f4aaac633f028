"""Turning values into bytes and back: ``serializer.class`` and its kin.

An encoder is named by a dotted path, or given as an object: a callable that takes the value and returns bytes, or
something with an ``encode`` method. A decoder is a callable that takes bytes, or has a ``decode`` method; one class may
be both. So ten records as one message are an encoder that takes a list, and its decoder:

>>> class Tens:
...     def encode(self, lines):
...         return "\\n".join(lines).encode()
...     def decode(self, data):
...         return data.decode().split("\\n")

The names of the serializers of the Java clients and of Kafka's first clients are accepted.
"""

import json
import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any

from barnabas.base.errors import ConfigError

__all__ = ["Decoder", "Encoder", "decoder", "encoder", "load_dotted"]

Encoder = Callable[[Any], bytes | None]
Decoder = Callable[[bytes], Any]


def encode_plain(value: Any) -> bytes | None:
    """Bytes as they are, text as UTF-8, None as no value at all."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"a {type(value).__name__} cannot be sent as it is: give bytes or str, or set serializer.class to an encoder"
    )


def _unchanged(data: bytes) -> bytes:
    return data


def _encode_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _packed(form: str) -> tuple[Encoder, Decoder]:
    layout = struct.Struct(form)
    return layout.pack, lambda data: layout.unpack(data)[0]


# By the last part of a Java class's name, without "Serializer", "Deserializer", "Encoder" or "Decoder"; then ours.
_KNOWN: dict[str, tuple[Encoder, Decoder]] = {
    "string": (encode_plain, bytes.decode),
    "bytearray": (encode_plain, _unchanged),
    "bytes": (encode_plain, _unchanged),
    "bytebuffer": (encode_plain, _unchanged),
    "default": (encode_plain, _unchanged),
    "null": (encode_plain, _unchanged),
    "integer": _packed(">i"),
    "long": _packed(">q"),
    "short": _packed(">h"),
    "float": _packed(">f"),
    "double": _packed(">d"),
    "json": (_encode_json, json.loads),
}
_JAVA_PACKAGES = ("org.apache.kafka.common.serialization.", "kafka.serializer.")
_ROLES = ("Serializer", "Deserializer", "Encoder", "Decoder")


def encoder(given: Any, name: str = "serializer.class") -> Encoder:
    """The function that makes bytes, from a property's value; None means `encode_plain`."""
    made: Encoder = _resolve(given, name, 0, "encode") if given not in (None, "") else encode_plain
    return made


def decoder(given: Any, name: str = "deserializer.class") -> Decoder | None:
    """The function that takes bytes, from a property's value; None for bytes as they are."""
    if given in (None, ""):
        return None
    made: Decoder = _resolve(given, name, 1, "decode")
    return None if made is _unchanged else made


def _resolve(given: Any, name: str, side: int, method: str) -> Callable[[Any], Any]:
    if isinstance(given, str):
        known = _known(given)
        if known is not None:
            return known[side]
        given = load_dotted(given, name)
    made = given() if isinstance(given, type) else given
    function = getattr(made, method, None) or made
    if not callable(function):
        raise ConfigError(f"{name}: {given!r} is neither callable nor has it a method {method}")
    return function  # type: ignore[no-any-return]  # the user's own


def _known(name: str) -> tuple[Encoder, Decoder] | None:
    short = next((name.removeprefix(package) for package in _JAVA_PACKAGES if name.startswith(package)), None)
    if short is None:
        return _KNOWN.get(name.lower()) if "." not in name else None
    for role in _ROLES:
        short = short.removesuffix(role)
    return _KNOWN.get(short.lower())


def load_dotted(path: str, name: str) -> Any:
    """What a dotted path such as ``package.module.Class`` names; raises `ConfigError` that says what is missing."""
    module, dot, attribute = path.replace(":", ".").rpartition(".")
    if not dot:
        raise ConfigError(f"{name}={path}: a dotted path is expected, such as package.module.Class")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        raise ConfigError(f"{name}={path}: cannot import {module} ({error})") from error
    except AttributeError:
        raise ConfigError(f"{name}={path}: {module} has no {attribute}") from None
