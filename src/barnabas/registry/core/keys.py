"""The keys of records in ``_schemas``, byte for byte as Confluent's registry writes them.

Compaction compares bytes, so the order of fields matters: ``keytype``, what the key names, and
``magic``. Other registries and older versions order them otherwise; such a key means the same, and
the state remembers its bytes, to delete it in its own form.

In Confluent's registry: `SchemaRegistryKey` and its subclasses.
"""

import json
from enum import StrEnum
from typing import Any, NamedTuple

from barnabas.registry.core.json_values import ShapeError, java_int, json_object, utf8_text

__all__ = ["SchemasKey", "SchemasKeyType", "decode_json", "decode_schemas_key", "encode_json", "encode_schemas_key"]


class SchemasKeyType(StrEnum):
    """The kinds of records."""

    SCHEMA = "SCHEMA"
    CONFIG = "CONFIG"
    MODE = "MODE"
    DELETE_SUBJECT = "DELETE_SUBJECT"
    CLEAR_SUBJECT = "CLEAR_SUBJECT"
    CONTEXT = "CONTEXT"
    NOOP = "NOOP"


class SchemasKey(NamedTuple):
    """What a record is about.

    ``name`` is a subject, or a context for CONTEXT. A configuration or a mode without a name is
    the global one. NOOP has no name in Confluent's registry; with the name of a context it holds
    the highest id that was ever given there, once no schema has it any more. Confluent's readers
    pass over it, because they know a NOOP by its type."""

    type: SchemasKeyType
    name: str | None = None
    version: int = 0

    def __str__(self) -> str:
        """The key in a text of errors, in Confluent's words."""
        if self.type is SchemasKeyType.SCHEMA:
            return f"{{magic=1,keytype=SCHEMA,subject={self.name},version={self.version}}}"
        return f"{{magic=0,keytype={self.type},subject={self.name}}}"


_TENANT = "default"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def encode_json(value: object) -> bytes:
    """JSON as Jackson writes it: without spaces, and without escapes that are not needed."""
    return _encode(value).encode()


def encode_schemas_key(key: SchemasKey) -> bytes:
    """The bytes of a key; an empty name is left out."""
    fields: dict[str, Any] = {"keytype": key.type}
    if key.type is SchemasKeyType.CONTEXT:
        fields |= {"tenant": _TENANT, "context": key.name}
    elif key.type is SchemasKeyType.NOOP:
        return encode_json(fields | {"magic": 0} | ({"context": key.name} if key.name else {}))
    elif key.name:
        fields["subject"] = key.name
    if key.type is SchemasKeyType.SCHEMA:
        return encode_json(fields | {"version": key.version, "magic": 1})
    return encode_json(fields | {"magic": 0})


def decode_schemas_key(raw: bytes) -> SchemasKey:
    """The key in bytes of any registry. Raises ShapeError."""
    body = json_object(decode_json(raw), "the key")
    text = utf8_text(body.get("keytype"), "keytype")
    if text not in SchemasKeyType.__members__:
        raise ShapeError(f"the key's type {text} is unknown")
    key_type = SchemasKeyType[text]
    name = body.get("context" if key_type in (SchemasKeyType.CONTEXT, SchemasKeyType.NOOP) else "subject")
    if name is not None:
        name = utf8_text(name, "the key's name")
    if key_type is SchemasKeyType.SCHEMA:
        if body.get("magic", 1) not in (0, 1):
            raise ShapeError(f"the key's magic is {body['magic']}, not 0 or 1")
        return SchemasKey(key_type, name or "", java_int(body.get("version"), "the key's version", 1))
    if key_type is SchemasKeyType.CONTEXT and not name:
        raise ShapeError("the key names no context")
    if key_type is SchemasKeyType.DELETE_SUBJECT:
        return SchemasKey(key_type, name or "")
    return SchemasKey(key_type, name or None)


def decode_json(raw: bytes) -> object:
    """The value in bytes of JSON. Raises ShapeError."""
    try:
        return json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"no JSON: {error or type(error).__name__}") from None
