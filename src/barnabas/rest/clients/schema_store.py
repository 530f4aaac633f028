"""Schemas of the registry, and the codecs made of them: what a request names is looked up once.

The registry's client is confluent-kafka's; it blocks, so it runs in threads.

Kafka has no counterpart; Confluent's is SchemaManagerImpl.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.client.errors import ClientError
from barnabas.client.registry.wire_format import encode_schema_id, split_schema_id
from barnabas.rest.core.embedded import EmbeddedFormat, encode_plain
from barnabas.rest.core.produce_requests import DatumRequest, ProduceDatum, SchemaUse
from barnabas.rest.core.schema_values import SchemaText, ValueCodec, record_name, value_codec
from barnabas.rest.errors import RestCode, RestError

__all__ = ["SchemaStore"]

_THREADS = 4
_MOST_KEPT = 1000
_LATEST_S = 30.0
_DEEPEST_REFERENCE = 20
_TYPES = {"AVRO": EmbeddedFormat.AVRO, "JSON": EmbeddedFormat.JSONSCHEMA, "PROTOBUF": EmbeddedFormat.PROTOBUF}
_TYPE_NAMES = {form: name for name, form in _TYPES.items()}
_NOT_FOUND = 404
_FIRST_SERVER_ERROR = 500
_SERIALIZED = "serialized"


@dataclass(frozen=True, slots=True)
class _Known:
    use: SchemaUse
    header: bytes
    codec: ValueCodec
    until_s: float


class SchemaStore:
    """Turns JSON into the bytes of records, and back."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """``properties`` are those of confluent-kafka's client; none where there is no registry.

        Raises `ConfigError` for those that it does not know."""
        self._client: Any = None
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="barnabas-rest-schemas")
        self._found: OrderedDict[tuple[Any, ...], _Known] = OrderedDict()
        self._codecs: OrderedDict[int, tuple[EmbeddedFormat, ValueCodec]] = OrderedDict()
        self._lock = threading.Lock()
        if properties:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            try:
                self._client = SchemaRegistryClient({"max.retries": 1, "timeout": 10, **properties})
            except (ValueError, TypeError) as error:
                raise ConfigError(f"schema.registry: {error}") from None

    async def encode(self, topic: str, datum: DatumRequest | None, *, is_key: bool) -> ProduceDatum | None:
        """The bytes of a key or value, None where the request has none. Raises `RestError`."""
        if datum is None:
            return None
        if not datum.has_schema:
            assert datum.form is not None, "a datum without a schema has a format"
            return ProduceDatum(datum.form, encode_plain(datum.form, datum.data))
        subject = datum.subject or f"{topic}-{'key' if is_key else 'value'}"
        wanted = (datum.form, subject, datum.strategy, datum.schema_id, datum.schema_version, datum.schema)
        known = self._found.get(wanted)
        if known is None or time.monotonic() > known.until_s:
            known = await self._in_thread(lambda: self._find(topic, subject, datum))
            self._found[wanted] = known
            if len(self._found) > _MOST_KEPT:
                self._found.popitem(last=False)
        if datum.data is None:
            return ProduceDatum(known.use.form, None, known.use)
        try:
            return ProduceDatum(known.use.form, known.header + known.codec.encode(datum.data), known.use)
        except ValueError as error:
            raise RestError(RestCode.JSON_CONVERSION, f"Conversion of JSON to Object failed: {error}") from None

    def decode(self, form: EmbeddedFormat, data: bytes) -> Any:
        """The JSON of bytes that begin with a schema's id. Blocks. Raises ValueError."""
        try:
            schema_id, rest = split_schema_id(data)
        except ClientError as error:
            raise ValueError(str(error)) from None
        with self._lock:
            found = self._codecs.get(schema_id)
        if found is None:
            try:
                text = self._text(self._require().get_schema(schema_id), schema_id=schema_id)
            except RestError as error:
                raise ValueError(error.message) from None
            except Exception as error:  # the client raises those of its libraries, too
                raise ValueError(_registry_error(error, f"schema {schema_id}").message) from None
            found = text.form, value_codec(text)
            with self._lock:
                self._codecs[schema_id] = found
                if len(self._codecs) > _MOST_KEPT:
                    self._codecs.popitem(last=False)
        if found[0] is not form:
            raise ValueError(f"the schema of the value is {found[0]}, not {form}")
        return found[1].decode(bytes(rest))

    async def _in_thread(self, function: Callable[[], _Known]) -> _Known:
        def call() -> _Known:
            try:
                return function()
            except RestError:
                raise
            except ValueError as error:
                raise RestError(RestCode.INVALID_SCHEMA, f"Invalid schema: {error}") from None
            except Exception as error:  # the client raises those of its libraries, too
                raise _registry_error(error, "the schema") from None

        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def _require(self) -> Any:
        if self._client is None:
            raise RestError(RestCode.BAD_REQUEST, "schema.registry.url is not set: there is no schema registry")
        return self._client

    def _find(self, topic: str, subject: str, datum: DatumRequest) -> _Known:
        client = self._require()
        until_s = float("inf")
        if datum.schema is not None:
            return self._registered(topic, subject, datum)
        if datum.schema_id is not None:
            schema = client.get_schema(datum.schema_id)
            text = self._text(schema, schema_id=datum.schema_id)
            subject = _subject(topic, subject, datum, text)
            schema_id, version = datum.schema_id, client.lookup_schema(subject, schema).version
        else:
            if datum.strategy not in (None, "TOPIC_NAME"):
                raise RestError(
                    RestCode.BAD_REQUEST,
                    f"Cannot use schema_subject_strategy={datum.strategy} without schema_id or schema.",
                )
            if datum.schema_version is None:
                found, until_s = client.get_latest_version(subject), time.monotonic() + _LATEST_S
            else:
                found = client.get_version(subject, datum.schema_version)
            text = self._text(found.schema, schema_id=found.schema_id)
            schema_id, version = found.schema_id, found.version
        if datum.form is not None and datum.form is not text.form:
            raise RestError(RestCode.BAD_REQUEST, f"the schema of {subject} is {text.form}, not {datum.form}")
        use = SchemaUse(text.form, subject, schema_id, version)
        return _Known(use, encode_schema_id(schema_id), value_codec(text), until_s)

    def _registered(self, topic: str, subject: str, datum: DatumRequest) -> _Known:
        """A schema that stands in the request: it is registered."""
        from confluent_kafka.schema_registry import Schema

        form, given = datum.form, datum.schema
        assert form is not None, "a schema has a type"
        assert given is not None, "this one stands in the request"
        if datum.strategy not in (None, "TOPIC_NAME"):
            if form is EmbeddedFormat.PROTOBUF:
                raise RestError(RestCode.BAD_REQUEST, f"{datum.strategy} needs schema_id for PROTOBUF.")
            subject = _subject(topic, subject, datum, SchemaText(form, given))
        made = self._require().register_schema_full_response(subject, Schema(given, _TYPE_NAMES[form]))
        text = self._text(self._client.get_schema(made.schema_id), schema_id=made.schema_id)
        version = made.version
        if version is None:
            version = self._client.lookup_schema(subject, Schema(given, _TYPE_NAMES[form])).version
        use = SchemaUse(form, subject, made.schema_id, version)
        return _Known(use, encode_schema_id(made.schema_id), value_codec(text), float("inf"))

    def _text(self, schema: Any, *, schema_id: int | None = None, depth: int = 0) -> SchemaText:
        """A schema with what it refers to; Protobuf's in its serialized form."""
        if depth > _DEEPEST_REFERENCE:
            raise RestError(RestCode.INVALID_SCHEMA, "Invalid schema: its references are too deep")
        form = _TYPES.get(schema.schema_type or "AVRO")
        if form is None:
            raise RestError(RestCode.INVALID_SCHEMA, f"Invalid schema: {schema.schema_type} is not known")
        references = {}
        for reference in schema.references or ():
            found = self._require().get_version(reference.subject, reference.version)
            references[reference.name] = self._text(found.schema, schema_id=found.schema_id, depth=depth + 1)
        text = schema.schema_str
        if form is EmbeddedFormat.PROTOBUF and schema_id is not None:
            text = self._require().get_schema(schema_id, fmt=_SERIALIZED).schema_str
        return SchemaText(form, text, references)

    def close(self) -> None:
        """Let the threads end."""
        self._executor.shutdown(wait=False)


def _subject(topic: str, subject: str, datum: DatumRequest, text: SchemaText) -> str:
    """The subject that a strategy makes; ``subject`` is the topic's, or the one that is named."""
    if datum.strategy in (None, "TOPIC_NAME"):
        return subject
    name = record_name(text)
    if not name:
        raise RestError(RestCode.BAD_REQUEST, f"the schema has no name, which {datum.strategy} needs")
    return name if datum.strategy == "RECORD_NAME" else f"{topic}-{name}"


def _registry_error(error: Exception, what: str) -> RestError:
    """What the registry answers, or that it does not."""
    status = getattr(error, "http_status_code", None)
    if status is None or status >= _FIRST_SERVER_ERROR:
        return RestError(RestCode.SCHEMA_REGISTRY, f"the schema registry does not answer: {str(error)[:300]}")
    if status == _NOT_FOUND:
        return RestError(RestCode.SERIALIZATION, f"Error when fetching {what}: {str(error)[:300]}")
    return RestError(RestCode.INVALID_SCHEMA, f"Invalid schema: {str(error)[:300]}")
