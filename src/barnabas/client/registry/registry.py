"""Codecs with schemas of a registry: Avro and Protobuf, in the format of Confluent's
serializers (`wire_format`).

A schema is registered under its subject, or looked up there, when the first value is sent,
and kept; an id never changes its meaning. Avro needs fastavro, Protobuf protobuf: both are in
the extra ``pipelines``.

Kafka has no counterpart; Confluent's client has KafkaAvroSerializer, KafkaProtobufSerializer and
CachedSchemaRegistryClient.
"""

import base64
import io
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from barnabas.base.installation import install_command
from barnabas.base.json_text import parse_json
from barnabas.base.redaction import redacted_address
from barnabas.client.codecs import Codec
from barnabas.client.errors import ClientError, ConfigurationError, ConnectError, SerializationError
from barnabas.client.registry.avro_bounds import avro_bounds
from barnabas.client.registry.web import WEB_ERRORS, basic_authorization, open_request, split_login
from barnabas.client.registry.wire_format import (
    encode_message_indexes,
    encode_schema_id,
    split_message_indexes,
    split_schema_id,
)

__all__ = ["SchemaRegistry", "UnknownSchemaError", "UnsupportedSchemaError"]

_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404
_LARGEST_ID = 2**31 - 1
_MOST_BYTES = 16 << 20  # of an answer: schemas have a few thousand
_TOO_MANY_REQUESTS = 429
_NO_SUCH_SCHEMA = 40403
"""The registry's own error code: another 404 is of a server that is no registry."""


class UnknownSchemaError(ConfigurationError):
    """The registry answers that it has no schema with this id."""


class UnsupportedSchemaError(ConfigurationError):
    """The registry has the schema, but it is of a kind that is not supported."""


class ProtobufMessage(Protocol):
    """What protoc makes of a message."""

    DESCRIPTOR: Any

    def SerializeToString(self) -> bytes: ...  # noqa: N802  # protobuf's name

    def ParseFromString(self, data: bytes, /) -> Any: ...  # noqa: N802  # protobuf's name


M = TypeVar("M", bound=ProtobufMessage)


class SchemaRegistry:
    """A Confluent-compatible registry of schemas, by its address. For several threads.

    ``username`` and ``password`` may be in the address, too; they are sent to this server alone,
    wherever it redirects. With ``register=False`` a schema must be registered under its subject
    already. Raises `ConnectError` when the registry does not answer, `ConfigurationError` for
    what it refuses; while records are sent and read, these are causes of `SerializationError`
    and `DeserializationError`.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        register: bool = True,
        timeout_s: float = 10.0,
    ) -> None:
        try:
            address, user_in_url, password_in_url = split_login(url)
        except ConfigurationError:
            raise ConfigurationError(
                f"{redacted_address(url)} is not a registry's address: it must be such as http://localhost:8081"
            ) from None
        self._url = address.rstrip("/")
        if username is None:
            username, password = user_in_url, password_in_url
        try:
            self._login = None if username is None else basic_authorization(username, password or "")
        except ConfigurationError as error:
            raise ConfigurationError(f"the registry at {self._url}: {error}") from None
        self._registers = register
        self._timeout_s = timeout_s
        self._schemas: dict[tuple[int, str], dict[str, Any]] = {}
        self._lock = threading.Lock()
        """Held at the first use of a schema: a second thread waits for the first one's answer."""

    def avro(self, subject: str, schema: str | Mapping[str, Any]) -> Codec[Any]:
        """Values as fastavro has them.

        What is read in another version of the schema is resolved to this one. ``subject`` is the
        topic with ``-value`` or ``-key`` after it, as Confluent's clients have it.
        """
        fastavro = _needed("fastavro")
        try:
            own = fastavro.parse_schema(parse_json(schema) if isinstance(schema, str) else dict(schema))
        except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
            raise ConfigurationError(f"the schema of {subject} is no Avro schema: {error}") from error
        text = schema if isinstance(schema, str) else json.dumps(schema)
        header = self._header(subject, {"schema": text})
        written: dict[int, tuple[Any, Callable[[bytes], None] | None]] = {}

        def encode(value: Any) -> bytes:
            out = io.BytesIO()
            out.write(header())
            fastavro.schemaless_writer(out, own, value, strict=True)
            return out.getvalue()

        def decode(data: bytes) -> Any:
            schema_id, rest = split_schema_id(data)
            if schema_id not in written:
                document = parse_json(self.schema(schema_id)["schema"])
                bounds = avro_bounds(document)
                written[schema_id] = fastavro.parse_schema(document), bounds
            schema_written, bounds = written[schema_id]
            if bounds:
                bounds(bytes(rest))
            return fastavro.schemaless_reader(io.BytesIO(rest), schema_written, own)

        return Codec(f"AVRO({subject})", encode, decode)

    def protobuf(self, subject: str, message: type[M]) -> Codec[M]:
        """Messages of a class that protoc made; its file may import Google's own files only."""
        file = message.DESCRIPTOR.file
        foreign = [each.name for each in file.dependencies if not each.name.startswith("google/protobuf/")]
        if foreign:
            raise ConfigurationError(
                f"{file.name} imports {', '.join(foreign)}: references between schemas are not supported"
            )
        text = base64.b64encode(file.serialized_pb).decode("ascii")
        header = self._header(subject, {"schema": text, "schemaType": "PROTOBUF"})
        own = _indexes(message.DESCRIPTOR)
        indexes = encode_message_indexes(own)

        def encode(value: M) -> bytes:
            if not isinstance(value, message):
                raise SerializationError(f"a {type(value).__name__} is not a {message.__name__}")
            return header() + indexes + value.SerializeToString()

        def decode(data: bytes) -> M:
            _, rest = split_schema_id(data)
            found, value = split_message_indexes(rest)
            if found != own:
                raise ClientError(f"the value is another message of {file.name} than {message.DESCRIPTOR.full_name}")
            made = message()
            made.ParseFromString(value)
            return made

        return Codec(f"PROTOBUF({subject})", encode, decode)

    # Asking the registry

    def schema(self, schema_id: int, *, form: str = "") -> dict[str, Any]:
        """The registry's document of a schema, asked for once.

        ``form`` is another form of its text, as ``serialized`` for Protobuf. Raises
        `UnknownSchemaError` for an id that the registry does not have.
        """
        if (schema_id, form) not in self._schemas:
            query = f"?format={form}" if form else ""
            found = self._ask(f"/schemas/ids/{schema_id}{query}", f"schema {schema_id}")
            if found.get("references"):
                raise UnsupportedSchemaError(f"schema {schema_id} refers to other schemas, which is not supported")
            if not isinstance(found.get("schema"), str):
                raise ConfigurationError(f"the registry at {self._url} gives no schema {schema_id}: is it a registry?")
            self._schemas[schema_id, form] = found
        return self._schemas[schema_id, form]

    def _header(self, subject: str, schema: dict[str, str]) -> Callable[[], bytes]:
        """The first bytes of each value; the registry is asked for them once."""
        known = b""

        def header() -> bytes:
            nonlocal known
            if not known:
                with self._lock:
                    known = known or encode_schema_id(self._id(subject, schema))
            return known

        return header

    def _id(self, subject: str, schema: dict[str, str]) -> int:
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}" + ("/versions" if self._registers else "")
        found = self._ask(path, f"the schema of {subject}", schema).get("id")
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= _LARGEST_ID:
            raise ConfigurationError(f"the registry at {self._url} gives no id for {subject}: is it a registry?")
        return found

    def _ask(self, path: str, what: str, document: Mapping[str, str] | None = None) -> dict[str, Any]:
        data = None if document is None else json.dumps(document).encode()
        headers = {"Content-Type": _TYPE, **({"Authorization": self._login} if self._login else {})}
        request = urllib.request.Request(self._url + path, data, headers)  # noqa: S310  # http(s), checked
        try:
            with open_request(request, self._timeout_s) as answer:
                return self._document(answer.read(_MOST_BYTES + 1))
        except urllib.error.HTTPError as error:
            said = _said(error)
            refused = f"the registry at {self._url} refuses {what}: {_message(said) or error.reason}"
            if error.code >= 500 or error.code == _TOO_MANY_REQUESTS:
                raise ConnectError(refused) from None
            if error.code == _NOT_FOUND and _code(said) == _NO_SUCH_SCHEMA:
                raise UnknownSchemaError(refused) from None
            raise ConfigurationError(refused) from None
        except WEB_ERRORS as error:
            raise ConnectError(
                f"the registry at {self._url} does not answer: {str(getattr(error, 'reason', error)).strip():.200}",
                remedy="check the address, and that it runs",
            ) from None

    def _document(self, data: bytes) -> dict[str, Any]:
        """The object in an answer."""
        wrong = "is no JSON object"
        try:
            if len(data) > _MOST_BYTES:
                wrong = f"has more than {_MOST_BYTES >> 20} MiB"
            elif isinstance(found := json.loads(data), dict):
                return found
        except RecursionError:
            wrong = "is nested too deeply"
        raise ConfigurationError(f"the answer of the registry at {self._url} {wrong}: is it a registry?")


def _said(error: urllib.error.HTTPError) -> str:
    try:
        with error:
            return error.read(_MOST_BYTES).decode(errors="replace")
    except WEB_ERRORS:  # the connection broke after the status
        return ""


def _code(said: str) -> int:
    """The number of a registry's error, -1 for an answer that has none."""
    try:
        return int(json.loads(said)["error_code"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1


def _message(said: str) -> str:
    """The words of a registry's error."""
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _needed(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise ConfigurationError(
            f"{module} is not installed", remedy=f"{install_command('pipelines')}, or this library alone"
        ) from None


def _indexes(descriptor: Any) -> tuple[int, ...]:
    """The number of the message among its siblings, below those of the messages that contain it."""
    numbers: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = descriptor.file.message_types_by_name.values() if parent is None else parent.nested_types
        numbers.insert(0, [each.full_name for each in siblings].index(descriptor.full_name))
        descriptor = parent
    return tuple(numbers)
