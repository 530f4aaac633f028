"""Schemas of the registry, and the codecs made of them: what a request names is looked up once.

Asking the registry blocks, so it is done in threads. A schema with a rule that is not executed
here, such as one that encrypts, is refused.

In Confluent's proxy: SchemaManagerImpl.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from barnabas.base.errors import ConfigError
from barnabas.client.errors import ClientError, ConfigurationError, ConnectError
from barnabas.client.registry.references import resolve_references
from barnabas.client.registry.requests import RegistryRequests
from barnabas.client.registry.rules import rules_problem
from barnabas.client.registry.wire_format import encode_schema_id, split_schema_id
from barnabas.rest.core.embedded import EmbeddedFormat, encode_plain
from barnabas.rest.core.produce_requests import DatumRequest, ProduceDatum, SchemaUse
from barnabas.rest.core.schema_values import SchemaText, ValueCodec, record_name, value_codec
from barnabas.rest.errors import RestCode, RestError

__all__ = ["SchemaCodecs", "registry_requests"]

_THREADS = 4
_LOGIN, _TOKEN, _CA_FILE = "basic.auth.user.info", "bearer.auth.token", "ssl.ca.location"
_MOST_KEPT = 1000
_LATEST_S = 30.0
_TYPES = {"AVRO": EmbeddedFormat.AVRO, "JSON": EmbeddedFormat.JSONSCHEMA, "PROTOBUF": EmbeddedFormat.PROTOBUF}
_TYPE_NAMES = {form: name for name, form in _TYPES.items()}
_SERIALIZED = "?format=serialized"


@dataclass(frozen=True, slots=True)
class _Known:
    use: SchemaUse
    header: bytes
    codec: ValueCodec
    until_s: float


class SchemaCodecs:
    """Turns JSON into the bytes of records, and back."""

    def __init__(self, requests: RegistryRequests | None) -> None:
        """``requests`` None: there is no registry."""
        self._requests = requests
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="barnabas-rest-schemas")
        self._found: OrderedDict[tuple[Any, ...], _Known] = OrderedDict()
        self._codecs: OrderedDict[int, tuple[EmbeddedFormat, ValueCodec]] = OrderedDict()
        self._lock = threading.Lock()

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
                text = self._by_id(schema_id, writes=False)
            except (RestError, ClientError) as error:
                raise ValueError(str(error)) from None
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
            except ValueError as error:
                raise RestError(RestCode.INVALID_SCHEMA, f"Invalid schema: {error}") from None
            except ConnectError as error:
                raise RestError(RestCode.SCHEMA_REGISTRY, str(error)) from None
            except ConfigurationError as error:
                raise RestError(RestCode.SERIALIZATION, f"Error serializing message. {error}") from None

        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        if self._requests is None:
            raise RestError(RestCode.BAD_REQUEST, "schema.registry.url is not set: there is no schema registry")
        return self._requests.ask(path, body)

    def _find(self, topic: str, subject: str, datum: DatumRequest) -> _Known:
        until_s = float("inf")
        if datum.schema is not None:
            schema_id, version, subject = self._register(topic, subject, datum)
        elif datum.schema_id is not None:
            schema_id, version = datum.schema_id, None
        else:
            if datum.strategy not in (None, "TOPIC_NAME"):
                raise RestError(
                    RestCode.BAD_REQUEST,
                    f"Cannot use schema_subject_strategy={datum.strategy} without schema_id or schema.",
                )
            if datum.schema_version is None:
                until_s = time.monotonic() + _LATEST_S
            wanted = "latest" if datum.schema_version is None else datum.schema_version
            found = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{wanted}")
            schema_id, version = int(found["id"]), int(found["version"])
        text = self._by_id(schema_id, writes=True)
        if datum.schema_id is not None:
            subject = _subject(topic, subject, datum, text)
            document = self._ask(f"/schemas/ids/{schema_id}")
            version = int(self._ask(f"/subjects/{quote(subject, safe='')}", _lookup(document))["version"])
        if datum.form is not None and datum.form is not text.form:
            raise RestError(RestCode.BAD_REQUEST, f"the schema of {subject} is {text.form}, not {datum.form}")
        use = SchemaUse(text.form, subject, schema_id, version)
        return _Known(use, encode_schema_id(schema_id), value_codec(text), until_s)

    def _register(self, topic: str, subject: str, datum: DatumRequest) -> tuple[int, int, str]:
        """A schema that stands in the request: its id, its version, and its subject."""
        form, given = datum.form, datum.schema
        assert form is not None, "a schema has a type"
        assert given is not None, "this one stands in the request"
        if datum.strategy not in (None, "TOPIC_NAME"):
            if form is EmbeddedFormat.PROTOBUF:
                raise RestError(RestCode.BAD_REQUEST, f"{datum.strategy} needs schema_id for PROTOBUF.")
            subject = _subject(topic, subject, datum, SchemaText(form, given))
        document = {"schema": given, "schemaType": _TYPE_NAMES[form]}
        path = f"/subjects/{quote(subject, safe='')}"
        made = self._ask(f"{path}/versions", document)
        version = made.get("version")
        return int(made["id"]), int(version if version is not None else self._ask(path, document)["version"]), subject

    def _by_id(self, schema_id: int, *, writes: bool) -> SchemaText:
        """A schema with what it refers to; Protobuf's in its serialized form."""
        what = f"schema {schema_id}"
        document = self._ask(f"/schemas/ids/{schema_id}")
        form = _TYPES.get(str(document.get("schemaType") or "AVRO"))
        if form is None:
            raise RestError(RestCode.INVALID_SCHEMA, f"Invalid schema: {what} is of a type that is not known")
        if problem := rules_problem(document.get("ruleSet"), writes=writes):
            raise RestError(RestCode.INVALID_SCHEMA, f"Invalid schema: {what}: {problem}")
        query = _SERIALIZED if form is EmbeddedFormat.PROTOBUF else ""
        text = document["schema"] if not query else self._ask(f"/schemas/ids/{schema_id}{query}")["schema"]
        references = resolve_references(
            what,
            document,
            lambda subject, version: self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}{query}"),
        )
        return SchemaText(form, str(text), references)

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


def _lookup(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a registry looks a schema up by."""
    return {name: document[name] for name in ("schema", "schemaType", "references") if name in document}


def registry_requests(properties: Mapping[str, str], user: tuple[str, str] | None) -> RegistryRequests | None:
    """What asks the schema registry, as a request's user where the properties name no other one.

    None without a registry. Raises `ConfigError` for what is not supported."""
    if not properties:
        return None
    rest = dict(properties)
    url, login, token, ca_file = (rest.pop(name, None) for name in ("url", _LOGIN, _TOKEN, _CA_FILE))
    sources = {"basic": "USER_INFO", "bearer": "STATIC_TOKEN"}
    for kind, source in sources.items():
        name = f"{kind}.auth.credentials.source"
        if rest.pop(name, source) != source:
            raise ConfigError(f"schema.registry.{name}: only {source} is supported")
    if rest:
        raise ConfigError(f"schema.registry.{min(rest)} is not supported")
    if login is not None:
        name, _, password = login.partition(":")
        user = name, password
    if user is None or token is not None:
        return RegistryRequests(url or "", token=token, ca_file=ca_file)
    return RegistryRequests(url or "", username=user[0], password=user[1], ca_file=ca_file)
