"""Confluent's serializers behind codecs (the extra ``registry``), with what they lack.

confluent-kafka registers, looks up, resolves, migrates and encodes. Around it stand:

- its requests, which go through `RegistryRequests`;
- the first bytes of a value, which are read here, from the value or from a header
  (``__value_schema_id``), because damaged ones are errors for a person;
- the bounds of Avro's values (`avro_bounds`), and of references (`references`);
- rules of a schema that nothing executes: such values are refused, never passed by (`rules`);
- the name of a Protobuf message, because another message's bytes may fit by chance;
- ``$ref`` of JSON Schema, which is looked for among a schema's references and nowhere else: a
  schema must not make its reader ask a server of somebody's choice.

Kafka has no counterpart; Confluent's client has AbstractKafkaSchemaSerDe.
"""

import io
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry import SchemaReference as ConfluentReference
from confluent_kafka.schema_registry import topic_record_subject_name_strategy as by_topic_and_record
from confluent_kafka.schema_registry import topic_subject_name_strategy as by_topic
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from confluent_kafka.serialization import SerializationError as ConfluentSerializationError

from barnabas.base.json_text import parse_json
from barnabas.client.codecs import RecordCodec, RecordPlace
from barnabas.client.errors import ClientError, ConfigurationError, SerializationError
from barnabas.client.registry.avro_bounds import avro_bounds
from barnabas.client.registry.protobuf_files import message_class, message_name
from barnabas.client.registry.references import SchemaReference, UnsupportedSchemaError
from barnabas.client.registry.requests import RegistryRequests, UnknownSchemaError
from barnabas.client.registry.rules import rules_problem
from barnabas.client.registry.wire_format import (
    GUID_MAGIC,
    header_of_id,
    split_guid,
    split_message_indexes,
    split_schema_id,
)

__all__ = ["Serializers"]

_OF_CLIENT = ("cache.capacity", "cache.latest.ttl.sec")
_LATEST = ("use.latest.version", "use.latest.with.metadata", "use.schema.id")
_OF_BOTH = ("use.latest.version", "use.latest.with.metadata")
_OF_WRITERS = ("auto.register.schemas", "normalize.schemas", *_LATEST)
_OF_FORMATS = {
    "AVRO": ("validate.strict", "validate.strict.allow.default"),
    "JSON": ("validate",),
    "PROTOBUF": ("skip.known.types",),
}
_STRATEGY = "subject.name.strategy.type"
_LEAST_BYTES = 6
"""What confluent-kafka takes for the shortest value of Avro; shorter ones are padded, and the
padding is taken off before it is read."""


class SchemaSource(Protocol):
    """What a `SchemaRegistry` gives its codecs."""

    def schema(self, schema_id: int, *, form: str = "", subject: str = "") -> dict[str, Any]: ...

    def references(self, what: str, document: Mapping[str, Any], *, form: str = "") -> dict[str, str]: ...


class _Context(SerializationContext):
    """A place as confluent-kafka has it, and how many bytes were put behind the value."""

    def __init__(self, place: RecordPlace, padding: int = 0) -> None:
        field = MessageField.KEY if place.is_key else MessageField.VALUE
        super().__init__(place.topic, field, list(place.headers))
        self.padding = padding


def _by_record(_: Any, record: str | None) -> str | None:
    return record


def _with_topic(strategy: Callable[..., Any]) -> Callable[[Any, str | None], Any]:
    def subject(context: Any, record: str | None) -> Any:
        if not context.topic:
            raise ConfigurationError(
                "the codec has no subject, and no topic to make one of: give it a subject, or let a Producer call it"
            )
        return strategy(context, record)

    return subject


_STRATEGIES = {
    "TOPIC": _with_topic(by_topic),
    "TOPIC_RECORD": _with_topic(by_topic_and_record),
    "RECORD": _by_record,
}


class _Client(SchemaRegistryClient):
    """confluent-kafka's client, whose requests are ours."""

    def __init__(self, registry: SchemaSource, requests: RegistryRequests, properties: Mapping[str, Any]) -> None:
        super().__init__({"url": requests.address, **properties})
        self._rest_client.session.close()
        self._rest_client: Any = requests
        self._registry = registry
        self._read: dict[tuple[str, int, str], Schema] = {}

    def get_schema(
        self,
        schema_id: int,
        subject_name: str | None = None,
        fmt: str | None = None,
        reference_format: str | None = None,  # noqa: ARG002  # of references that are resolved there
    ) -> Schema:
        """As the registry has it, with its rules; what was registered here has none."""
        key = (subject_name or "", schema_id, fmt or "")
        if key not in self._read:
            document = self._registry.schema(schema_id, form=fmt or "", subject=subject_name or "")
            self._read[key] = Schema.from_dict(document)
        return self._read[key]

    def close(self) -> None:
        """There is nothing open between requests."""


_mocks: dict[str, Any] = {}
"""By their names, as of Java's MockSchemaRegistry: a producer and a consumer share one."""


class Serializers:
    """What makes the codecs of a `SchemaRegistry`."""

    def __init__(
        self,
        registry: SchemaSource,
        requests: RegistryRequests | None,
        mock: str | None,
        properties: Mapping[str, Any],
    ) -> None:
        self._registry = registry
        self._properties = properties
        if requests is not None:
            of_client = {name: properties[name] for name in _OF_CLIENT if name in properties}
            self._client: Any = _Client(registry, requests, of_client)
            return
        if mock not in _mocks:
            _mocks[mock or ""] = SchemaRegistryClient.new_client({"url": f"mock://{mock}"})
        self._client = _mocks[mock or ""]

    def avro(self, subject: str | None, schema: str | None, references: Sequence[SchemaReference]) -> RecordCodec[Any]:
        _import("confluent_kafka.schema_registry.avro")
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

        if schema is not None:
            _checked_avro(subject, schema)
        self._check_references(subject, references)
        guard = _Guard(self._registry, self._client, "AVRO", subject, self._properties, has_schema=schema is not None)
        given: Any = schema
        if schema is not None and references:
            given = Schema(schema, "AVRO", _confluent(references))
        write = _made(subject, "Avro", lambda: AvroSerializer(self._client, given, conf=guard.of_writer()))
        read = _made(subject, "Avro", lambda: AvroDeserializer(self._client, given, conf=guard.of_reader()))
        return guard.codec("AVRO", write, read)

    def json_schema(
        self, subject: str | None, schema: str | None, references: Sequence[SchemaReference]
    ) -> RecordCodec[Any]:
        _import("confluent_kafka.schema_registry.json_schema")
        from barnabas.client.registry.json_serializers import LocalJsonDeserializer, LocalJsonSerializer

        if schema is not None:
            _checked_json(subject, schema)
        self._check_references(subject, references)
        guard = _Guard(self._registry, self._client, "JSON", subject, self._properties, has_schema=schema is not None)
        given = None if schema is None else Schema(schema, "JSON", _confluent(references))
        write = _made(
            subject,
            "JSON",
            lambda: LocalJsonSerializer(given, self._client, None, guard.of_writer(), json_encode=_json),
        )
        read = _made(
            subject,
            "JSON",
            lambda: LocalJsonDeserializer(given, None, self._client, guard.of_reader(), json_decode=parse_json),
        )
        return guard.codec("JSON", write, read)

    def protobuf(self, subject: str | None, message: Any) -> RecordCodec[Any]:
        _import("confluent_kafka.schema_registry.protobuf")
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

        guard = _Guard(self._registry, self._client, "PROTOBUF", subject, self._properties, message=message)
        write = _made(subject, "Protobuf", lambda: ProtobufSerializer(message, self._client, guard.of_writer()))
        read = _made(subject, "Protobuf", lambda: ProtobufDeserializer(message, guard.of_reader(), self._client))
        return guard.codec("PROTOBUF", write, read)

    def _check_references(self, subject: str | None, references: Sequence[SchemaReference]) -> None:
        """Follow them within bounds, which the libraries do not have."""
        if references:
            document = {"references": [each._asdict() for each in references]}
            self._registry.references(f"the schema of {subject}", document)

    def reader(self) -> RecordCodec[Any]:
        """What reads values of every schema, each as its kind is read; it writes none."""
        return _Reader(self, self._registry, self._client).codec()

    # A registry in this process

    def mocked_schema(self, schema_id: int) -> dict[str, Any]:
        found: dict[str, Any] = _asked(lambda: self._client.get_schema(schema_id), f"schema {schema_id}").to_dict()
        return found

    def mocked_version(self, subject: str, version: int | str) -> dict[str, Any]:
        found = _asked(lambda: self._client.get_version(subject, version, True), f"version {version} of {subject}")
        document: dict[str, Any] = found.to_dict()
        return document

    def mocked_id(self, subject: str, schema: str, schema_type: str) -> int:
        return int(self._client.register_schema(subject, Schema(schema, schema_type)))


class _Guard:
    """What stands around the two serializers of a codec."""

    def __init__(
        self,
        registry: SchemaSource,
        client: Any,
        kind: str,
        subject: str | None,
        properties: Mapping[str, Any],
        *,
        has_schema: bool = True,
        message: Any = None,
    ) -> None:
        self._registry, self._client, self._kind, self._subject = registry, client, kind, subject
        self._properties = dict(properties)
        self._message = message
        self._has_schema = has_schema
        self._form = "serialized" if kind == "PROTOBUF" else None
        # Without a schema of its own a codec has only the latest version to write with.
        self._writes_latest = not has_schema or any(self._properties.get(name) for name in _LATEST)
        self._reads_latest = any(self._properties.get(name) for name in _OF_BOTH)
        self._is_written: set[int] = set()
        self._is_checked: set[Schema] = set()
        """Ids and schemas whose values may be written."""
        self._bounds: dict[Any, Callable[[bytes], None] | None] = {}
        """Of schemas whose values may be read: what checks them."""

    # Settings

    def of_writer(self) -> dict[str, Any]:
        found = {name: self._properties[name] for name in _OF_WRITERS if self._properties.get(name) is not None}
        found |= {name: self._properties[name] for name in _OF_FORMATS[self._kind] if name in self._properties}
        if self._kind == "AVRO":
            found.setdefault("validate.strict", True)
        if self._writes_latest:
            found["auto.register.schemas"] = False
            if not any(found.get(name) for name in _LATEST):
                found["use.latest.version"] = True
        return {**found, "subject.name.strategy": self._subject_to_write}

    def of_reader(self) -> dict[str, Any]:
        found = {name: self._properties[name] for name in _OF_BOTH if self._properties.get(name) is not None}
        if self._kind == "JSON" and "validate" in self._properties:
            found["validate"] = self._properties["validate"]
        return {**found, "subject.name.strategy": self._subject_to_read, "schema.id.deserializer": self._split}

    def _subject_of(self, context: Any, record: str | None) -> Any:
        if self._subject is not None:
            return self._subject
        return _STRATEGIES[str(self._properties.get(_STRATEGY, "TOPIC")).upper()](context, record)

    def _subject_to_read(self, context: Any, record: str | None) -> Any:
        """The subject; None where none can be known, which matters for the latest version alone."""
        if self._subject is None and not context.topic and not self._reads_latest:
            return None
        return self._subject_of(context, record)

    def _subject_to_write(self, context: Any, record: str | None) -> Any:
        """The subject; the latest version's rules are looked at before they are executed."""
        subject = self._subject_of(context, record)
        if self._writes_latest and subject is not None:
            self._check_written(f"the schema of {subject}", self._latest(subject))
        return subject

    def _latest(self, subject: str) -> Any:
        if (schema_id := self._properties.get("use.schema.id")) is not None:
            return self._client.get_schema(schema_id, subject, self._form)
        metadata = self._properties.get("use.latest.with.metadata")
        if metadata is not None:
            return self._client.get_latest_with_metadata(subject, metadata, deleted=True, fmt=self._form).schema
        return self._client.get_latest_version(subject, self._form).schema

    # The codec

    def codec(self, name: str, write: Any, read: Any) -> RecordCodec[Any]:
        def encode(value: Any, place: RecordPlace) -> bytes:
            if self._message is not None and not isinstance(value, self._message):
                raise SerializationError(f"a {type(value).__name__} is not a {self._message.__name__}")
            data: bytes = _asked(lambda: write(value, _Context(place)), self._named())
            schema_id, _ = split_schema_id(data)
            if schema_id not in self._is_written:
                found = self._client.get_schema(schema_id, self._subject, self._form)
                self._check_written(f"schema {schema_id}", found)
                self._is_written.add(schema_id)
            return data

        def decode(data: bytes, place: RecordPlace) -> Any:
            padding = max(0, _LEAST_BYTES - len(data))
            return _asked(lambda: read(data + b"\0" * padding, _Context(place, padding)), self._named())

        return RecordCodec(
            f"{name}({self._named()})",
            lambda value: encode(value, RecordPlace()),
            lambda data: decode(data, RecordPlace()),
            encode,
            decode,
        )

    def _named(self) -> str:
        return self._subject or "the topic's subject"

    # Values that are written

    def _check_written(self, what: str, schema: Schema) -> None:
        if schema in self._is_checked:
            return
        is_executed = _is_executed if self._writes_latest else lambda _: False
        problem = rules_problem(_rule_set(schema), writes=True, is_executed=is_executed)
        if problem:
            raise UnsupportedSchemaError(f"{what}: {problem}")
        self._registry.references(what, schema.to_dict(), form=self._form or "")
        self._is_checked.add(schema)

    # Values that are read

    def _split(self, payload: bytes, context: Any, schema_id: Any) -> io.BytesIO:
        """The value without its id, which goes into ``schema_id``."""
        data = payload[: len(payload) - context.padding]
        header = _id_header(context.headers, context.field)
        rest = _read_id(data if header is None else header, schema_id)
        if self._kind == "PROTOBUF":
            indexes, rest = split_message_indexes(rest)
            schema_id.message_indexes = list(indexes)
        value = rest if header is None else data
        key = (schema_id.id, schema_id.guid, tuple(schema_id.message_indexes or ()))
        if key not in self._bounds:
            self._bounds[key] = self._check_read(schema_id)
        bounds = self._bounds[key]
        if bounds:
            bounds(value)
        return io.BytesIO(value)

    def _check_read(self, schema_id: Any) -> Callable[[bytes], None] | None:
        """Raise for a schema whose values cannot be read; what checks each of them."""
        if schema_id.id is not None:
            what, schema = f"schema {schema_id.id}", self._client.get_schema(schema_id.id, self._subject, self._form)
        else:
            guid = str(schema_id.guid)
            what, schema = f"schema {guid}", self._client.get_schema_by_guid(guid, self._form)
        kind = schema.schema_type or "AVRO"
        if kind != self._kind:
            raise UnsupportedSchemaError(f"{what} is one of {kind}, not of {self._kind}")
        executes = self._reads_latest or not self._has_schema
        problem = rules_problem(
            _rule_set(schema),
            writes=False,
            migrates=self._reads_latest,
            is_executed=_is_executed if executes else lambda _: False,
        )
        if problem:
            raise UnsupportedSchemaError(f"{what}: {problem}")
        texts = self._registry.references(what, schema.to_dict(), form=self._form or "")
        if self._kind == "PROTOBUF":
            self._check_message(schema, schema_id.message_indexes)
        if self._kind != "AVRO":
            return None
        return avro_bounds(parse_json(str(schema.schema_str)), [parse_json(each) for each in texts.values()])

    def _check_message(self, schema: Schema, indexes: Sequence[int]) -> None:
        found = message_name(str(schema.schema_str), indexes)
        own = self._message.DESCRIPTOR
        if found != own.full_name:
            raise ClientError(f"the value is another message of {own.file.name} than {own.full_name}: {found}")


class _Reader:
    """Reads values of every schema."""

    def __init__(self, serializers: Serializers, registry: SchemaSource, client: Any) -> None:
        self._registry, self._client = registry, client
        self._make = {
            "AVRO": lambda: serializers.avro(None, None, ()),
            "JSON": lambda: serializers.json_schema(None, None, ()),
        }
        self._codecs: dict[str, RecordCodec[Any]] = {}
        self._messages: dict[Any, Any] = {}

    def codec(self) -> RecordCodec[Any]:
        def refuse(_: Any, __: Any = None) -> bytes:
            raise SerializationError("this codec only reads", remedy="write with the codec of a schema")

        return RecordCodec("REGISTRY", refuse, lambda data: self._decode(data, RecordPlace()), refuse, self._decode)

    def _decode(self, data: bytes, place: RecordPlace) -> Any:
        header = _id_header(place.headers, _Context(place).field)
        schema_id = SchemaId("")
        rest = _read_id(data if header is None else header, schema_id)
        kind = self._schema(schema_id, None).schema_type or "AVRO"
        if kind == "PROTOBUF":
            return self._message(schema_id, rest, data if header is not None else None)
        if kind not in self._make:
            raise UnsupportedSchemaError(f"a schema of {kind} is not supported")
        if kind not in self._codecs:
            self._codecs[kind] = self._make[kind]()
        return self._codecs[kind].decode_at(data, place)

    def _schema(self, schema_id: Any, form: str | None) -> Any:
        def ask() -> Any:
            if schema_id.id is not None:
                return self._client.get_schema(schema_id.id, None, form)
            return self._client.get_schema_by_guid(str(schema_id.guid), form)

        return _asked(ask, f"schema {schema_id.id or schema_id.guid}")

    def _message(self, schema_id: Any, rest: bytes, value: bytes | None) -> Any:
        """``value`` is that of a record whose id stands in a header."""
        from google.protobuf.message import DecodeError

        indexes, rest = split_message_indexes(rest)
        key = (schema_id.id, schema_id.guid, indexes)
        if key not in self._messages:
            what, schema = f"schema {schema_id.id or schema_id.guid}", self._schema(schema_id, "serialized")
            if problem := rules_problem(_rule_set(schema), writes=False):
                raise UnsupportedSchemaError(f"{what}: {problem}")
            named = self._registry.references(what, schema.to_dict(), form="serialized")
            try:
                self._messages[key] = message_class(str(schema.schema_str), indexes, named)
            except (ConfigurationError, ValueError, TypeError, DecodeError) as error:
                raise ConfigurationError(f"{what} is no Protobuf file that can be used: {error}") from error
        message = self._messages[key]()
        message.ParseFromString(rest if value is None else value)
        return message


def _id_header(headers: Sequence[tuple[str, bytes | None]], field: Any) -> bytes | None:
    """The bytes of a schema's id in a record's headers."""
    wanted = header_of_id(is_key=field == MessageField.KEY)
    return next((value for name, value in headers if name == wanted and value is not None), None)


def _read_id(data: bytes, schema_id: Any) -> bytes:
    """Put the id at the begin of the bytes into ``schema_id``; what follows it."""
    if data[:1] == GUID_MAGIC:
        guid, rest = split_guid(data)
        schema_id.guid = uuid.UUID(bytes=guid)
    else:
        schema_id.id, rest = split_schema_id(data)
    return rest


def _rule_set(schema: Schema) -> Mapping[str, Any] | None:
    return None if schema.rule_set is None else schema.rule_set.to_dict()


def _is_executed(kind: str) -> bool:
    """Whether the program has registered what executes rules of a type."""
    rules: Any = RuleRegistry
    return rules.get_global_instance().get_executor(kind) is not None


def _confluent(references: Sequence[SchemaReference]) -> list[Any]:
    return [ConfluentReference(*each) for each in references]


def _checked_avro(subject: str | None, schema: str) -> None:
    try:
        avro_bounds(parse_json(schema))
    except ValueError as error:
        raise ConfigurationError(f"the schema of {subject} is no Avro schema: {error}") from error


def _checked_json(subject: str | None, schema: str) -> None:
    from jsonschema import SchemaError
    from referencing import Registry

    from barnabas.client.registry.json_validators import JsonValidator

    try:
        JsonValidator(parse_json(schema), Registry())
    except (ValueError, RecursionError, SchemaError) as error:
        reason = getattr(error, "message", "") or str(error)
        raise ConfigurationError(f"the schema of {subject} is no JSON schema: {reason:.300}") from error


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _made(subject: str | None, kind: str, make: Callable[[], Any]) -> Any:
    """A serializer; a schema that is none is refused when it is made."""
    try:
        return make()
    except ClientError:
        raise
    except Exception as error:  # of one of the libraries that parse schemas
        raise ConfigurationError(f"the schema of {subject} is no {kind} schema: {error}") from error


def _asked(call: Callable[[], Any], subject: str) -> Any:
    """What a call gives; confluent-kafka's own errors become ours."""
    try:
        return call()
    except SchemaRegistryError as error:
        refused = f"the registry refuses {subject}: {error.error_message}"
        if error.http_status_code == 404:
            raise UnknownSchemaError(refused) from error
        raise ConfigurationError(refused) from error
    except ConfluentSerializationError as error:
        cause = error.__cause__ or error
        raise SerializationError(f"{subject}: {str(cause) or type(cause).__name__}") from error
    except RecursionError as error:
        raise ClientError(f"{subject}: the value, or its schema, is nested too deeply") from error


def _import(module: str) -> None:
    """Raise `ConfigurationError` with what to install if a format's libraries are not there."""
    from importlib import import_module

    from barnabas.base.installation import install_command

    try:
        import_module(module)
    except ImportError as error:
        raise ConfigurationError(f"{error.name} is not installed", remedy=install_command("registry")) from error
