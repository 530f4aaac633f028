"""A version of a subject: its bytes, and the answers that show it.

In Confluent's registry: `SchemaValue`.
"""

import hashlib
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from barnabas.registry.core.json_values import (
    ShapeError,
    java_int,
    json_object,
    optional_boolean,
    optional_string,
    utf8_text,
)
from barnabas.registry.core.keys import SchemasKey, SchemasKeyType, encode_json
from barnabas.registry.core.metadata import Metadata
from barnabas.registry.core.rules import RuleSet
from barnabas.registry.formats.schema import SchemaReference, SchemaType

__all__ = ["StoredSchema", "digest_of", "guid_of", "references_from_json", "references_to_json", "schema_digest"]


_DIGEST = re.compile("[0-9A-Fa-f]{32}")


def schema_digest(
    text: str, references: Sequence[SchemaReference], metadata: Metadata | None, rule_set: RuleSet | None
) -> bytes:
    """The MD5 by which equal schemas are found, as Confluent's registry computes it.

    Its text as a UUID is the schema's guid."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False)
    for reference in references:
        digest.update(reference.name.encode())
        digest.update(reference.subject.encode())
        digest.update(reference.version.to_bytes(4, "big", signed=True))
    if metadata is not None:
        digest.update(b"\x01")
        metadata.update_hash(digest)
    if rule_set is not None:
        digest.update(b"\x01")
        rule_set.update_hash(digest)
    return digest.digest()


def guid_of(digest: bytes) -> str:
    """The guid of a schema with a digest."""
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def digest_of(guid: str) -> bytes | None:
    """The digest in a guid, with or without its dashes; none if it is no guid."""
    digits = guid.replace("-", "")
    return bytes.fromhex(digits) if _DIGEST.fullmatch(digits) else None


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """What the log holds about a version of a subject."""

    subject: str
    version: int
    id: int
    schema_type: str
    text: str
    references: tuple[SchemaReference, ...]
    metadata: Metadata | None
    rule_set: RuleSet | None
    deleted: bool
    digest: bytes
    md5: str | None = None
    """The digest, where a registry wrote it: its metadata are encrypted, and say nothing."""
    timestamp_ms: int = 0

    @property
    def key(self) -> SchemasKey:
        return SchemasKey(SchemasKeyType.SCHEMA, self.subject, self.version)

    @classmethod
    def decode(cls, key: SchemasKey, value: object, timestamp_ms: int) -> Self:
        """The version in a record. Raises ShapeError."""
        body = json_object(value, "the value")
        subject = key.name or ""
        if (optional_string(body, "subject") or "") != subject or body.get("version", key.version) != key.version:
            raise ShapeError("the value is about another version than the key")
        text = utf8_text(body.get("schema"), "schema")
        references = references_from_json(body.get("references"))
        metadata = Metadata.from_json(body.get("metadata"))
        rule_set = RuleSet.from_json(body.get("ruleSet"))
        md5 = optional_string(body, "md5")
        return cls(
            subject=subject,
            version=key.version,
            id=java_int(body.get("id"), "id", 0),
            schema_type=optional_string(body, "schemaType") or SchemaType.AVRO,
            text=text,
            references=references,
            metadata=metadata,
            rule_set=rule_set,
            deleted=bool(optional_boolean(body, "deleted")),
            digest=_digest_from(md5) if md5 else schema_digest(text, references, metadata, rule_set),
            md5=md5,
            timestamp_ms=timestamp_ms,
        )

    def encode(self) -> bytes:
        """The value of the record, in the order of Confluent's fields."""
        body: dict[str, Any] = {"subject": self.subject, "version": self.version, "id": self.id}
        if not self.subject:
            del body["subject"]
        if self.md5:
            body["md5"] = self.md5
        return encode_json(body | self._content() | {"schema": self.text, "deleted": self.deleted})

    def to_json(self) -> dict[str, Any]:
        """The version in an answer: Confluent's entity Schema."""
        return (
            {"subject": self.subject, "version": self.version, "id": self.id, "guid": guid_of(self.digest)}
            | self._content()
            | {"schema": self.text, "ts": self.timestamp_ms, "deleted": self.deleted}
        )

    def schema_to_json(self) -> dict[str, Any]:
        """The schema in an answer that names no version: Confluent's entity SchemaString."""
        return (
            {"guid": guid_of(self.digest), "schemaType": self.schema_type, "schema": self.text}
            | self._content()
            | {"ts": self.timestamp_ms, "deleted": self.deleted}
        )

    def with_deleted(self, deleted: bool) -> Self:
        return replace(self, deleted=deleted)

    def is_same_schema(self, other: "StoredSchema") -> bool:
        return self.digest == other.digest and self.schema_type == other.schema_type

    def _content(self) -> dict[str, Any]:
        body: dict[str, Any] = {"schemaType": self.schema_type}
        if self.references:
            body["references"] = references_to_json(self.references)
        if self.metadata is not None:
            body["metadata"] = self.metadata.to_json()
        if self.rule_set is not None:
            body["ruleSet"] = self.rule_set.to_json()
        return body


def references_from_json(value: object) -> tuple[SchemaReference, ...]:
    """References of a request or a record. Raises ShapeError."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ShapeError("references are not a list")
    return tuple(_reference(json_object(each, "a reference")) for each in value)


def references_to_json(references: Sequence[SchemaReference]) -> list[dict[str, Any]]:
    """References in a record or an answer."""
    return [{"name": each.name, "subject": each.subject, "version": each.version} for each in references]


def _reference(body: Mapping[str, Any]) -> SchemaReference:
    return SchemaReference(
        utf8_text(body.get("name"), "a reference's name"),
        utf8_text(body.get("subject"), "a reference's subject"),
        java_int(body.get("version"), "a reference's version", -1),
    )


def _digest_from(md5: str) -> bytes:
    try:
        digest = b64decode(md5, validate=True)
    except ValueError:
        digest = b""
    if len(digest) != 16:
        raise ShapeError(f"md5 {md5} is not the Base64 of 16 bytes")
    return digest
