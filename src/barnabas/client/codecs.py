"""Turning values into bytes and back: codecs, ``serializer.class`` and ``deserializer.class``.

Keys and values are text (`STRING`) unless another codec is given, on both sides: what
`Producer.send` takes is what `Record.value` gives back. A producer without a serializer also takes
bytes, and sends them as they are. None is no value at all, and needs no codec.

An encoder is named by a dotted path, or given as an object: a callable that takes the value and
returns bytes, or something with an ``encode`` method. A decoder is a callable that takes bytes, or
has a ``decode`` method; one class may be both. So ten records as one message are an encoder that
takes a list, and its decoder:

>>> class Tens:
...     def encode(self, lines):
...         return "\\n".join(lines).encode()
...     def decode(self, data):
...         return data.decode().split("\\n")

The names of the serializers of the Java clients and of Kafka's first clients are accepted.

In Kafka: `Serializer`, `Deserializer`.
"""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from barnabas.base.json_text import parse_json
from barnabas.client.errors import ConfigurationError, SerializationError

__all__ = [
    "BYTES",
    "DOUBLE",
    "INTEGER",
    "JSON",
    "LONG",
    "STRING",
    "Codec",
    "Decoder",
    "Deserializer",
    "Encoder",
    "RecordCodec",
    "RecordDecoder",
    "RecordPlace",
    "Serializer",
    "decoded",
    "decoder",
    "encoder",
    "load_dotted",
]

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
V_contra = TypeVar("V_contra", contravariant=True)

Encoder = Callable[[Any], bytes | None]
Decoder = Callable[[bytes], Any]


class SupportsEncode(Protocol[V_contra]):
    """Something with a method that makes bytes."""

    def encode(self, value: V_contra, /) -> bytes | None: ...


class SupportsDecode(Protocol[V_co]):
    """Something with a method that reads bytes."""

    def decode(self, data: bytes, /) -> V_co: ...


Serializer: TypeAlias = SupportsEncode[V] | type[SupportsEncode[V]] | Callable[[V], bytes | None]
"""What makes bytes of a `V`: a `Codec`, an object or a class with ``encode``, or a callable."""
Deserializer: TypeAlias = SupportsDecode[V] | type[SupportsDecode[V]] | Callable[[bytes], V]
"""What makes a `V` of bytes: a `Codec`, an object or a class with ``decode``, or a callable."""


@dataclass(frozen=True, slots=True)
class Codec(Generic[V]):
    """Both directions under one name: what ``encode`` takes, ``decode`` gives back."""

    name: str
    encode: Callable[[V], bytes | None]
    decode: Callable[[bytes], V]

    def __repr__(self) -> str:
        return self.name


class RecordPlace(NamedTuple):
    """Where a key or a value stands, for codecs that ask: its record's topic and headers.

    "" is a topic that is not known. Headers are given to decoders only."""

    topic: str = ""
    is_key: bool = False
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class RecordCodec(Codec[V]):
    """A codec whose bytes depend on where they stand, too.

    Producers and consumers call ``encode_at`` and ``decode_at`` instead of the other two."""

    encode_at: Callable[[V, RecordPlace], bytes | None]
    decode_at: Callable[[bytes, RecordPlace], V]

    def __repr__(self) -> str:
        return self.name


def _encode_string(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    advice = "give serializer=BYTES" if isinstance(value, bytes | bytearray | memoryview) else "give a serializer"
    raise SerializationError(
        f"a {type(value).__name__} is not a str", remedy=f"{advice}, or set serializer.class to an encoder"
    )


def _encode_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"a {type(value).__name__} is not bytes", remedy="give a serializer, or set serializer.class to an encoder"
    )


def _encode_text_or_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"a value of type {type(value).__name__} is neither text nor bytes",
        remedy="give a serializer, or set serializer.class to an encoder",
    )


def _unchanged(data: bytes) -> bytes:
    return data


def _encode_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _packed(form: str) -> tuple[Encoder, Decoder]:
    layout = struct.Struct(form)
    return layout.pack, lambda data: layout.unpack(data)[0]


STRING: Codec[str] = Codec("STRING", _encode_string, bytes.decode)
"""Text as UTF-8, the default of keys and values on both sides."""
BYTES: Codec[bytes] = Codec("BYTES", _encode_bytes, _unchanged)
"""Bytes as they are."""
INTEGER: Codec[int] = Codec("INTEGER", *_packed(">i"))
"""Whole numbers in four bytes, as Java's IntegerSerializer."""
LONG: Codec[int] = Codec("LONG", *_packed(">q"))
"""Whole numbers in eight bytes, as Java's LongSerializer."""
DOUBLE: Codec[float] = Codec("DOUBLE", *_packed(">d"))
"""Numbers in eight bytes, as Java's DoubleSerializer."""
JSON: Codec[Any] = Codec("JSON", _encode_json, parse_json)
"""Anything that the json module writes, without blanks, as UTF-8."""


# By the last part of a Java class's name, without "Serializer", "Deserializer", "Encoder"
# or "Decoder"; then ours.
_KNOWN: dict[str, tuple[Encoder, Decoder]] = {
    "string": (STRING.encode, STRING.decode),
    "bytearray": (_encode_bytes, _unchanged),
    "bytes": (_encode_bytes, _unchanged),
    "bytebuffer": (_encode_bytes, _unchanged),
    "default": (_encode_bytes, _unchanged),
    "null": (_encode_bytes, _unchanged),
    "integer": (INTEGER.encode, INTEGER.decode),
    "long": (LONG.encode, LONG.decode),
    "short": _packed(">h"),
    "float": _packed(">f"),
    "double": (DOUBLE.encode, DOUBLE.decode),
    "json": (JSON.encode, JSON.decode),
}
_JAVA_PACKAGES = ("org.apache.kafka.common.serialization.", "kafka.serializer.")
_ROLES = ("Serializer", "Deserializer", "Encoder", "Decoder")


def encoder(given: Any, name: str = "serializer.class") -> Callable[..., bytes | None]:
    """The function that makes bytes of a value, and of its topic where that is known, from a
    property's value.

    None means the codec of text and bytes."""
    made: Encoder = _encode_text_or_bytes if given in (None, "") else _resolve(given, name, 0, "encode")
    made_at = given.encode_at if isinstance(given, RecordCodec) else None
    is_key = name.startswith("key.")

    def encode(value: Any, topic: str = "") -> bytes | None:
        if value is None:
            return None
        try:
            return made(value) if made_at is None else made_at(value, RecordPlace(topic, is_key))
        except SerializationError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise SerializationError(f"{name}: {value!r:.100} cannot be serialized: {error}") from error

    return encode


class RecordDecoder:
    """The decoder of a `RecordCodec`, for a key or for a value."""

    __slots__ = ("_decode_at", "_is_key")

    def __init__(self, codec: RecordCodec[Any], *, is_key: bool) -> None:
        self._decode_at, self._is_key = codec.decode_at, is_key

    def __call__(self, data: bytes) -> Any:
        return self._decode_at(data, RecordPlace(is_key=self._is_key))

    def at(self, data: bytes, topic: str, headers: Sequence[tuple[str, bytes | None]]) -> Any:
        """What the bytes are in a record of the topic with these headers."""
        return self._decode_at(data, RecordPlace(topic, self._is_key, headers))


def decoder(given: Any, name: str = "deserializer.class") -> Decoder | None:
    """The function that takes bytes, from a property's value; None for bytes as they are.

    Without a value: `STRING`. Of a `RecordCodec` it is a `RecordDecoder`."""
    if isinstance(given, RecordCodec):
        return RecordDecoder(given, is_key=name.startswith("key."))
    made: Decoder = STRING.decode if given in (None, "") else _resolve(given, name, 1, "decode")
    return None if made is _unchanged else made


def decoded(decode: Decoder | None, data: bytes | None, topic: str, headers: Sequence[tuple[str, bytes | None]]) -> Any:
    """What a decoder of `decoder` makes of the key or the value of a record."""
    if data is None or decode is None:
        return data
    return decode.at(data, topic, headers) if isinstance(decode, RecordDecoder) else decode(data)


def _resolve(given: Any, name: str, side: int, method: str) -> Callable[[Any], Any]:
    if isinstance(given, str):
        known = _known(given)
        if known is not None:
            return known[side]
        given = load_dotted(given, name)
    made = given() if isinstance(given, type) else given
    function = getattr(made, method, None) or made
    if not callable(function):
        raise ConfigurationError(f"{name}: {given!r} is neither callable nor has it a method {method}")
    return function  # type: ignore[no-any-return]  # the user's own


def _known(name: str) -> tuple[Encoder, Decoder] | None:
    short = next((name.removeprefix(package) for package in _JAVA_PACKAGES if name.startswith(package)), None)
    if short is None:
        return _KNOWN.get(name.lower()) if "." not in name else None
    for role in _ROLES:
        short = short.removesuffix(role)
    return _KNOWN.get(short.lower())


def load_dotted(path: str, name: str) -> Any:
    """What a dotted path such as ``package.module.Class`` names.

    Raises `ConfigurationError` that says what is missing."""
    module, dot, attribute = path.replace(":", ".").rpartition(".")
    if not dot:
        raise ConfigurationError(f"{name}={path}: a dotted path is expected, such as package.module.Class")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        raise ConfigurationError(f"{name}={path}: cannot import {module} ({error})") from error
    except AttributeError:
        raise ConfigurationError(f"{name}={path}: {module} has no {attribute}") from None
