"""The kinds ``topic`` and ``function``, whose batches Spark writes
(`barnabas.pipelines.running.batch_sinks`). Needs no package."""

import inspect
from typing import ClassVar

from barnabas.pipelines.flow_file.function_fields import read_function
from barnabas.pipelines.outputs.declared import FunctionSink, TopicSink
from barnabas.pipelines.outputs.kind import Declaration, OutputKind, read_deletion

__all__ = ["FUNCTIONS", "TOPICS"]


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
        )

    def title(self, sink: TopicSink) -> str:
        return f"topic {sink.topic}"

    def places(self, sink: TopicSink) -> set[object]:
        return {(sink.bootstrap_servers, sink.topic)}

    def repetition(self, sink: TopicSink) -> str:
        return f"takes the results again, with the same keys ({', '.join(sink.key)})"


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
