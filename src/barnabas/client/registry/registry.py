"""Codecs with schemas of a registry: Avro, JSON Schema and Protobuf, in the format of Confluent's
serializers, which do the work (`serializers`).

A schema is registered under its subject, or looked up there, when the first value is sent,
and kept; an id never changes its meaning. Codecs need the extra ``registry``. What asks the
registry needs nothing: `SchemaRegistry.schema` and the like are all that a pipeline's worker loads.

Kafka has no counterpart; Confluent's client has KafkaAvroSerializer, KafkaJsonSchemaSerializer,
KafkaProtobufSerializer and CachedSchemaRegistryClient.
"""

import json
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.base.installation import install_command
from barnabas.client.codecs import Codec
from barnabas.client.errors import ConfigurationError
from barnabas.client.registry.references import SchemaReference, UnsupportedSchemaError, resolve_references
from barnabas.client.registry.requests import RegistryRequests, UnknownSchemaError

if TYPE_CHECKING:
    from barnabas.client.registry.serializers import Serializers

__all__ = ["SchemaReference", "SchemaRegistry", "UnknownSchemaError", "UnsupportedSchemaError"]

_MOCK = "mock://"
_LATEST = ("use.latest.version", "use.latest.with.metadata", "use.schema.id")
_STRATEGIES = ("TOPIC", "RECORD", "TOPIC_RECORD")
_PROPERTIES = frozenset(
    {
        *("auto.register.schemas", "normalize.schemas", "subject.name.strategy.type", *_LATEST),
        *("cache.capacity", "cache.latest.ttl.sec"),
        *("validate", "validate.strict", "validate.strict.allow.default", "skip.known.types"),
    }
)
"""Those of Confluent's serializers that are taken over."""


class ProtobufMessage(Protocol):
    """What protoc makes of a message."""

    DESCRIPTOR: Any

    def SerializeToString(self) -> bytes: ...  # noqa: N802  # protobuf's name

    def ParseFromString(self, data: bytes, /) -> Any: ...  # noqa: N802  # protobuf's name


M = TypeVar("M", bound=ProtobufMessage)


class SchemaRegistry:
    """A Confluent-compatible registry of schemas, by its address. For several threads.

    ``username`` and ``password`` may be in the address, too; ``token`` is a bearer token. They are
    sent to this server alone, wherever it redirects. ``ca_file`` has the certificates to trust. An
    address ``mock://NAME`` is a registry in this process, for tests.

    ``properties`` are those of Confluent's serializers, by their names: ``auto.register.schemas``,
    ``normalize.schemas``, ``use.latest.version``, ``use.latest.with.metadata``, ``use.schema.id``,
    ``subject.name.strategy.type`` (TOPIC, RECORD, TOPIC_RECORD), ``cache.latest.ttl.sec`` ... With
    ``register=False``, as with ``auto.register.schemas``, a schema must be registered already.

    Raises `ConnectError` when the registry does not answer, `ConfigurationError` for what it
    refuses; while records are sent and read, these are causes of `SerializationError` and
    `DeserializationError`.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        register: bool | None = None,
        properties: Mapping[str, Any] | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._mock = url.removeprefix(_MOCK) if url.startswith(_MOCK) else None
        self._requests = (
            None
            if self._mock is not None
            else RegistryRequests(
                url, username=username, password=password, token=token, ca_file=ca_file, timeout_s=timeout_s
            )
        )
        self._properties = _checked(properties or {}, register)
        self._schemas: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._versions: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._made: Serializers | None = None
        self._lock = threading.Lock()

    def avro(
        self,
        subject: str | None,
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        references: Sequence[SchemaReference] = (),
    ) -> Codec[Any]:
        """Values as fastavro has them.

        What is read in another version of the schema is resolved to this one. ``subject`` is the
        topic with ``-value`` or ``-key`` after it, as Confluent's clients have it; None for the
        subject of ``subject.name.strategy.type``. Without a schema the codec reads what the writer
        wrote, and writes with the latest version.
        """
        return self._serializers().avro(subject, _text(schema), references)

    def json_schema(
        self,
        subject: str | None,
        schema: str | Mapping[str, Any] | None = None,
        *,
        references: Sequence[SchemaReference] = (),
    ) -> Codec[Any]:
        """Values as the json module has them; each is checked against the schema, in both
        directions.

        ``subject`` is as of `avro`."""
        return self._serializers().json_schema(subject, _text(schema), references)

    def protobuf(self, subject: str | None, message: type[M]) -> Codec[M]:
        """Messages of a class that protoc made.

        Files that its file imports are registered under their names, as references."""
        codec: Codec[M] = self._serializers().protobuf(subject, message)
        return codec

    def reader(self) -> Codec[Any]:
        """Values of every schema of the registry: what `avro` and `json_schema` give, and messages
        of Protobuf. It writes none."""
        return self._serializers().reader()

    def _serializers(self) -> "Serializers":
        try:
            from barnabas.client.registry.serializers import Serializers
        except ImportError as error:
            raise ConfigurationError(
                f"{error.name or error} is not installed", remedy=install_command("registry")
            ) from error
        with self._lock:
            if self._made is None:
                self._made = Serializers(self, self._requests, self._mock, self._properties)
            return self._made

    # Asking the registry

    def schema(self, schema_id: int, *, form: str = "", subject: str = "") -> dict[str, Any]:
        """The registry's document of a schema, asked for once.

        ``form`` is another form of its text, as ``serialized`` for Protobuf. ``subject`` matters if
        it is one of a context (``:.NAME:SUBJECT``), because each has ids of its own. Raises
        `UnknownSchemaError` for an id that the registry does not have.
        """
        context = subject if subject.startswith(":.") else ""
        key = (context, schema_id, form)
        if key not in self._schemas:
            if self._requests is None:
                self._schemas[key] = self._serializers().mocked_schema(schema_id)
            else:
                query = _query(format=form, subject=context)
                self._schemas[key] = self._requests.ask(f"/schemas/ids/{schema_id}{query}")
        return self._schemas[key]

    def version(self, subject: str, version: int, *, form: str = "") -> dict[str, Any]:
        """The registry's document of a version of a subject, also of a deleted one, asked for
        once."""
        key = (subject, version, form)
        if key not in self._versions:
            if self._requests is None:
                self._versions[key] = self._serializers().mocked_version(subject, version)
            else:
                query = _query(deleted="true", format=form)
                path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}{query}"
                self._versions[key] = self._requests.ask(path)
        return self._versions[key]

    def latest(self, subject: str, *, form: str = "") -> dict[str, Any]:
        """The registry's document of a subject's latest version; raises `UnknownSchemaError` for a
        subject without one."""
        if self._requests is None:
            return self._serializers().mocked_version(subject, "latest")
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest{_query(format=form)}"
        return self._requests.ask(path)

    def incompatibilities(self, subject: str, schema: str, schema_type: str = "AVRO") -> list[str]:
        """Why the registry would not take a schema as the next version; empty if it would.

        Nothing is registered."""
        if self._requests is None:
            return []  # it takes all
        path = f"/compatibility/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest?verbose=true"
        try:
            found = self._requests.ask(path, {"schema": schema, "schemaType": schema_type})
        except UnknownSchemaError:
            return []
        if found.get("is_compatible") is True:
            return []
        messages = found.get("messages")
        return [str(each) for each in messages] if isinstance(messages, list) and messages else ["it is not compatible"]

    def references(self, what: str, document: Mapping[str, Any], *, form: str = "") -> dict[str, str]:
        """The texts of all schemas that a document of `schema` refers to, by name, those that
        others refer to first.

        ``what`` names the schema in errors. Raises `UnsupportedSchemaError` for a circle."""
        return resolve_references(what, document, lambda subject, version: self.version(subject, version, form=form))

    def register(self, subject: str, schema: str, schema_type: str = "AVRO") -> dict[str, Any]:
        """Register a schema under a subject, or look it up there if ``auto.register.schemas`` is
        false; the registry's document of it, with ``id``.

        Raises `ConfigurationError` for a schema that is not compatible with those before it."""
        if self._requests is None:
            schema_id = self._serializers().mocked_id(subject, schema, schema_type)
        else:
            ending = "/versions" if self._properties["auto.register.schemas"] else ""
            body = {"schema": schema, "schemaType": schema_type}
            query = "?normalize=true" if self._properties.get("normalize.schemas") else ""
            path = f"/subjects/{urllib.parse.quote(subject, safe='')}{ending}{query}"
            schema_id = int(self._requests.ask(path, body)["id"])
        return {**self.schema(schema_id, subject=subject), "id": schema_id}


def _checked(properties: Mapping[str, Any], register: bool | None) -> dict[str, Any]:
    """The properties; where nothing says whether schemas are registered, they are unless the latest
    version is used."""
    if unknown := sorted(properties.keys() - _PROPERTIES):
        raise ConfigurationError(
            f"{', '.join(unknown)}: no property of codecs; there are {', '.join(sorted(_PROPERTIES))}"
        )
    strategy = properties.get("subject.name.strategy.type", "TOPIC")
    if str(strategy).upper() not in _STRATEGIES:
        raise ConfigurationError(f"subject.name.strategy.type={strategy}: {', '.join(_STRATEGIES)} are expected")
    latest = any(properties.get(name) not in (None, False) for name in _LATEST)
    registers = properties.get("auto.register.schemas", register)
    if registers and latest:
        raise ConfigurationError("auto.register.schemas is true, and the latest version is to be used: one of them")
    return {**properties, "auto.register.schemas": not latest if registers is None else bool(registers)}


def _query(**names: str) -> str:
    given = {name: text for name, text in names.items() if text}
    return f"?{urllib.parse.urlencode(given)}" if given else ""


def _text(schema: Any) -> str | None:
    """A schema as the registry takes it."""
    if schema is None or isinstance(schema, str):
        return schema
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"the schema cannot be written as JSON: {error}") from error
