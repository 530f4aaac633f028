"""The kinds ``topic`` and ``function``, whose batches Spark writes
(`barnabas.pipelines.running.batch_sinks`). Needs no package."""

import inspect
import re
from typing import ClassVar

from barnabas.pipelines.flow_file.fields import SpecTable, check_web_address
from barnabas.pipelines.flow_file.function_fields import read_function
from barnabas.pipelines.outputs.declared import FunctionSink, TopicFormat, TopicSink
from barnabas.pipelines.outputs.kind import Declaration, OutputKind, read_deletion

__all__ = ["FUNCTIONS", "TOPICS"]


_FORMATS = ("json", "avro", "json-schema", "protobuf")
_RECORD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_STRATEGIES = ("topic", "record", "topic_record")


class _TopicKind(OutputKind[TopicSink]):
    type: ClassVar[str] = "topic"
    template: ClassVar[str] = 'topic = "{name}-results"'

    def declare(self, given: Declaration) -> TopicSink:
        table, near = given.table, given.near
        kafka = table.kafka_properties()
        servers = table.brokers("bootstrap_servers")
        # Another cluster's security settings are not this one's.
        own = kafka if servers else {**near.kafka, **kafka}
        topic = table.needed("topic")
        return TopicSink(
            topic,
            given.key,
            servers or near.bootstrap_servers,
            table.require_protection(own),
            read_deletion(given),
            format=_read_topic_format(table, topic),
        )

    def title(self, sink: TopicSink) -> str:
        return f"topic {sink.topic}"

    def places(self, sink: TopicSink) -> set[object]:
        return {(sink.bootstrap_servers, sink.topic)}

    def repetition(self, sink: TopicSink) -> str:
        return f"takes the results again, with the same keys ({', '.join(sink.key)})"


def _read_topic_format(sink: SpecTable, topic: str) -> TopicFormat | None:
    """The table ``format`` of a topic; None for JSON without a schema."""
    table = sink.table("format")
    if table is None:
        return None
    kind = table.choice("type", _FORMATS)
    if kind == "json":
        return None
    registry = table.needed_address("registry", "the address of a registry, such as http://localhost:8081")
    check_web_address(table, "registry", registry, "http://localhost:8081")
    schema_file = table.text("schema_file")
    if schema_file:
        schema_file = table.resolve("schema_file", schema_file)
    name = table.text("name")
    if kind == "protobuf" and schema_file and not name:
        raise table.fail("name", 'is missing: the full name of the message in the file, such as "shop.Order"')
    if name is None:
        name = _name_of(topic)
    if kind != "json-schema" and not _RECORD_NAME.fullmatch(name):
        raise table.fail("name", f"is {name!r}, which is no name of a record, such as shop.Order")
    strategy = table.choice("subject_name_strategy", _STRATEGIES, "topic")
    subject = table.text("subject")
    if subject and table.has("subject_name_strategy"):
        raise table.fail("subject_name_strategy", "makes the subject, which is given: one of them")
    made = {"topic": f"{topic}-value", "record": name, "topic_record": f"{topic}-{name}"}[strategy]
    register = table.boolean("register", default=True)
    return TopicFormat(kind, registry, name, subject or made, schema_file, register)


def _name_of(topic: str) -> str:
    """The name of a topic's records where none is given."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"_{name}" if name[0].isdigit() else name


class _FunctionKind(OutputKind[FunctionSink]):
    type: ClassVar[str] = "function"
    tells_positions_apart: ClassVar[bool] = False
    unreadable: ClassVar[str] = "what a function does with rows cannot be seen"

    def declare(self, given: Declaration) -> FunctionSink:
        table = given.table
        function = read_function(table, "function")
        if function is None:
            raise table.fail("function", 'goes with type = "function", a Python function that takes each micro-batch')
        try:
            inspect.signature(function).bind(None, 0)
        except TypeError as error:
            name = getattr(function, "__name__", "it")
            raise table.fail("function", f"{name} must take a micro-batch's rows and its number: {error}") from error
        return FunctionSink(function, given.key)

    def title(self, sink: FunctionSink) -> str:
        return f"function {sink.name}"

    def places(self, sink: FunctionSink) -> set[object]:  # noqa: ARG002  # what it does cannot be seen
        return set()

    def repetition(self, sink: FunctionSink) -> str:  # noqa: ARG002  # the same for all
        return "is called again, with micro-batches numbered from 0"


TOPICS = _TopicKind()
FUNCTIONS = _FunctionKind()
