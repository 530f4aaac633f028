"""The formats in which keys and values stand in requests and answers, without a schema: BINARY,
JSON and STRING. Pure.

In Confluent's proxy: EmbeddedFormat and NoSchemaRecordSerializer.
"""

import base64
import binascii
import json
from enum import StrEnum
from typing import Any

from barnabas.rest.core.json_stream import json_bytes
from barnabas.rest.errors import RestCode, RestError

__all__ = ["EmbeddedFormat", "binary", "binary_text", "decode_plain", "encode_plain"]


class EmbeddedFormat(StrEnum):
    """How a key or a value stands in JSON."""

    BINARY = "BINARY"
    """Base64"""
    JSON = "JSON"
    STRING = "STRING"
    AVRO = "AVRO"
    JSONSCHEMA = "JSONSCHEMA"
    PROTOBUF = "PROTOBUF"

    @property
    def has_schema(self) -> bool:
        """Whether a registry has the schema of its values."""
        return self in (EmbeddedFormat.AVRO, EmbeddedFormat.JSONSCHEMA, EmbeddedFormat.PROTOBUF)

    @classmethod
    def of(cls, text: object) -> "EmbeddedFormat":
        """The format of this name. Raises `RestError`."""
        try:
            return cls(str(text).upper())
        except ValueError:
            names = ", ".join(cls)
            raise RestError(RestCode.BAD_REQUEST, f"{str(text)[:50]!r} is no format: one of {names}") from None


def binary(text: object, what: str = "data") -> bytes:
    """The bytes of base64. Raises `RestError`."""
    if not isinstance(text, str):
        raise RestError(RestCode.BAD_REQUEST, f"{what} is not a base64 string.")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RestError(RestCode.BAD_REQUEST, f"{what} is not a valid base64 string.") from None


def binary_text(data: bytes) -> str:
    """Base64 of the bytes."""
    return base64.b64encode(data).decode("ascii")


def encode_plain(form: EmbeddedFormat, data: Any) -> bytes | None:
    """The bytes of a key or value; null is none. Raises `RestError`."""
    if data is None:
        return None
    if form is EmbeddedFormat.BINARY:
        return binary(data)
    if form is EmbeddedFormat.STRING:
        if not isinstance(data, str):
            raise RestError(RestCode.BAD_REQUEST, "data is not a string.")
        try:
            return data.encode()
        except UnicodeEncodeError:
            raise RestError(RestCode.BAD_REQUEST, "data has half a character (a lone surrogate).") from None
    return json_bytes(data)


def decode_plain(form: EmbeddedFormat, data: bytes | None) -> Any:
    """What stands in an answer for the bytes of a record. Raises `RestError` for bytes that are
    not of this format."""
    if data is None:
        return None
    if form is EmbeddedFormat.BINARY:
        return binary_text(data)
    try:
        if form is EmbeddedFormat.STRING:
            return data.decode()
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RestError(RestCode.KAFKA, f"a record is not in the format {form}: {str(error)[:200]}") from None
