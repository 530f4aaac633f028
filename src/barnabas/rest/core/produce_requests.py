"""Requests that produce records: what their JSON says, in version 2 and in version 3. Pure.

In Confluent's proxy: ProduceRequest and SchemaTopicProduceRequest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.base.record_times import instant_ms, instant_text
from barnabas.client.records import Delivery
from barnabas.rest.core.embedded import EmbeddedFormat, binary
from barnabas.rest.errors import RestCode, RestError

__all__ = [
    "DatumRequest",
    "ProduceDatum",
    "ProducedRecord",
    "SchemaUse",
    "batch_entries",
    "read_produce_record",
    "read_records_of_version_2",
    "report_of",
]

_RECORD_FIELDS = {"partition_id", "headers", "key", "value", "timestamp"}
_DATUM_FIELDS = {"type", "subject", "subject_name_strategy", "schema_id", "schema_version", "schema", "data"}
_STRATEGIES = ("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME")
_LARGEST = (1 << 31) - 1
_LONGEST_ID = 80


@dataclass(frozen=True, slots=True)
class DatumRequest:
    """A key or a value, and which schema it has. ``form`` None: that of the schema."""

    form: EmbeddedFormat | None
    data: Any
    subject: str | None = None
    strategy: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    schema: str | None = None

    @property
    def has_schema(self) -> bool:
        """Whether the registry is needed."""
        return self.form is None or self.form.has_schema


@dataclass(frozen=True, slots=True)
class ProducedRecord:
    """A record to be produced."""

    partition: int | None
    key: DatumRequest | None
    value: DatumRequest | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SchemaUse:
    """The schema with which a key or a value was written."""

    form: EmbeddedFormat
    subject: str
    schema_id: int
    version: int | None


@dataclass(frozen=True, slots=True)
class ProduceDatum:
    """A key's or value's bytes, and how they came to be."""

    form: EmbeddedFormat
    data: bytes | None
    schema: SchemaUse | None = None


def _bad(message: str) -> RestError:
    return RestError(RestCode.BAD_REQUEST, message)


def _object(document: Any, what: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise _bad(f"{what}: an object is expected")
    if unknown := document.keys() - known:
        raise _bad(f"Unrecognized field: {min(unknown)[:100]}")
    return document


def _number(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise _bad(f"{name}: a whole number is expected")
    return value


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise _bad(f"{name}: a text is expected")
    return value


def _partition(given: Mapping[str, Any], name: str) -> int | None:
    partition = _number(given, name)
    if partition is not None and partition < 0:
        raise RestError(RestCode.PARTITION_NOT_FOUND, "Partition not found.")
    return partition


def read_produce_record(document: Any, *, more: set[str] = frozenset()) -> ProducedRecord:  # type: ignore[assignment]
    """A record of version 3. Raises `RestError`. ``more`` are names that are read elsewhere."""
    given = _object(document, "a record", _RECORD_FIELDS | more)
    when = _text(given, "timestamp")
    return ProducedRecord(
        _partition(given, "partition_id"),
        _datum(given.get("key"), "key"),
        _datum(given.get("value"), "value"),
        _headers(given.get("headers")),
        None if when is None else _time(when),
    )


def _time(text: str) -> int:
    try:
        return instant_ms(text)
    except ValueError:
        raise _bad(f"timestamp={text[:50]!r}: a time such as 2021-02-05T19:14:42Z is expected") from None


def _headers(found: Any) -> tuple[tuple[str, bytes | None], ...]:
    if found is None:
        return ()
    if not isinstance(found, list):
        raise _bad("headers: a list is expected")
    made = []
    for each in found:
        header = _object(each, "a header", {"name", "value"})
        name = _text(header, "name")
        if name is None:
            raise _bad("a header has no name")
        value = header.get("value")
        made.append((name, None if value is None else binary(value, "the value of a header")))
    return tuple(made)


def _datum(found: Any, what: str) -> DatumRequest | None:
    if found is None:
        return None
    given = _object(found, what, _DATUM_FIELDS)
    form = given.get("type")
    strategy = _text(given, "subject_name_strategy")
    if strategy is not None and strategy.upper() not in _STRATEGIES:
        raise _bad(f"subject_name_strategy={strategy[:50]}: one of {', '.join(_STRATEGIES)} is expected")
    made = DatumRequest(
        None if form is None else EmbeddedFormat.of(form),
        given.get("data"),
        _text(given, "subject"),
        None if strategy is None else strategy.upper(),
        _number(given, "schema_id"),
        _number(given, "schema_version"),
        _text(given, "schema"),
    )
    _check_schema(made)
    return made


def _check_schema(datum: DatumRequest) -> None:
    """The combinations that Confluent's reference allows."""
    named = [each for each in (datum.schema_id, datum.schema_version, datum.schema) if each is not None]
    if not datum.has_schema:
        if named or datum.subject is not None or datum.strategy is not None:
            raise _bad(f"'type'={datum.form} cannot be used with a schema or a subject.")
        return
    if len(named) > 1:
        raise _bad("Only one of schema_id, schema_version and schema can be used.")
    if datum.subject is not None and datum.strategy is not None:
        raise _bad("Only one of 'subject' and 'subject_name_strategy' can be used.")
    if datum.schema is not None and datum.form is None:
        raise _bad("'schema' needs 'type'.")
    if datum.schema is None and datum.form is not None and not named:
        return  # the latest version of the subject must be of this type
    if datum.form is not None and datum.schema is None:
        raise _bad("'type' cannot be used with schema_id or schema_version.")


def batch_entries(document: Any, most: int) -> list[tuple[str, Any]]:
    """The entries of a batch of version 3, each with its id. Raises `RestError`."""

    def wrong(message: str) -> RestError:
        return RestError(RestCode.PRODUCE_BATCH, message)

    if document is None:
        raise wrong("Request body is empty. Data is required.")
    entries = _object(document, "a batch", {"entries"}).get("entries")
    if not isinstance(entries, list) or not entries:
        raise wrong("Empty batch.")
    if len(entries) > most:
        raise wrong(f"Too many entries in batch: {most} are allowed.")
    found = []
    for entry in entries:
        entry_id = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(entry_id, str) or not 0 < len(entry_id) <= _LONGEST_ID:
            raise wrong("Batch entry identifier is not a valid string.")
        found.append((entry_id, entry))
    if len({entry_id for entry_id, _ in found}) != len(found):
        raise wrong("Batch entry IDs are not distinct.")
    return found


def report_of(
    cluster_id: str, delivery: Delivery, key: ProduceDatum | None, value: ProduceDatum | None
) -> dict[str, Any]:
    """What version 3 says of a record that was delivered."""
    made: dict[str, Any] = {
        "cluster_id": cluster_id,
        "topic_name": delivery.topic,
        "partition_id": delivery.partition,
        "offset": delivery.offset,
        "timestamp": None if delivery.timestamp_ms is None else instant_text(delivery.timestamp_ms),
    }
    for name, datum in (("key", key), ("value", value)):
        if datum is not None:
            made[name] = _datum_report(datum)
    return made


def _datum_report(datum: ProduceDatum) -> dict[str, Any]:
    size = 0 if datum.data is None else len(datum.data)
    schema = datum.schema
    if schema is None:
        return {"type": datum.form, "size": size}
    return {
        "type": schema.form,
        "subject": schema.subject,
        "schema_id": schema.schema_id,
        "schema_version": schema.version,
        "size": size,
    }


def read_records_of_version_2(document: Any, form: EmbeddedFormat, partition: int | None) -> list[ProducedRecord]:
    """The records of a request of version 2, which all have one format. Raises `RestError`."""
    schemas = {"key_schema", "key_schema_id", "value_schema", "value_schema_id"}
    given = _object(document, "the request", {"records"} | schemas)
    records = given.get("records")
    if not isinstance(records, list) or not records:
        raise RestError(RestCode.UNPROCESSABLE, "records may not be empty")
    key_schema, value_schema = (
        (_number(given, f"{what}_schema_id"), _text(given, f"{what}_schema")) for what in ("key", "value")
    )
    if form.has_schema:
        _check_schemas(records, key_schema, value_schema)
    known = {"key", "value"} if partition is not None else {"key", "value", "partition"}
    made = []
    for each in records:
        record = _object(each, "a record", known)
        made.append(
            ProducedRecord(
                partition if partition is not None else _partition(record, "partition"),
                _plain_datum(form, record.get("key"), key_schema),
                _plain_datum(form, record.get("value"), value_schema),
            )
        )
    return made


def _check_schemas(
    records: list[Any], key_schema: tuple[int | None, str | None], value_schema: tuple[int | None, str | None]
) -> None:
    """A key or value that is not null needs a schema."""
    used = {
        name: any(isinstance(each, dict) and each.get(name) is not None for each in records)
        for name in ("key", "value")
    }
    if used["key"] and key_schema == (None, None):
        raise RestError(RestCode.KEY_SCHEMA_MISSING, "Request includes keys but does not include key schema")
    if used["value"] and value_schema == (None, None):
        raise RestError(RestCode.VALUE_SCHEMA_MISSING, "Request includes values but does not include value schema")


def _plain_datum(form: EmbeddedFormat, data: Any, schema: tuple[int | None, str | None]) -> DatumRequest | None:
    if data is None:
        return None
    if not form.has_schema:
        return DatumRequest(form, data)
    schema_id, text = schema
    if schema_id is not None:
        return DatumRequest(None, data, schema_id=schema_id)
    return DatumRequest(form, data, schema=text)
