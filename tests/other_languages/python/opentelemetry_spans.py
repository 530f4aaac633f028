"""OpenTelemetry's instrumentation of confluent-kafka and of kafka-python.

Each line of standard input is a number of records to send; a line of output says that they are
acknowledged. At its end all are read, and the spans of all are printed as JSON.
"""

import itertools
import json
import sys
from collections.abc import Iterator

import confluent_kafka
import kafka
from opentelemetry import trace
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.instrumentation.kafka import KafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

client, bootstrap, topic = sys.argv[1:]


def with_confluent_kafka(counts: Iterator[int]) -> None:
    """Producer.produce and Consumer.poll."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    sent = 0
    for count in counts:
        for _ in range(count):
            producer.produce(topic, str(sent))
            sent += 1
        producer.flush()
        print(count, flush=True)
    settings = {"bootstrap.servers": bootstrap, "group.id": client, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    while sent:
        message = consumer.poll(1)
        sent -= message is not None and message.error() is None
    consumer.close()


def with_kafka_python(counts: Iterator[int]) -> None:
    """KafkaProducer.send and KafkaConsumer's iterator."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), enable_idempotence=True)
    sent = 0
    for count in counts:
        for _ in range(count):
            producer.send(topic, str(sent).encode())
            sent += 1
        producer.flush()
        print(count, flush=True)
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), group_id=client, auto_offset_reset="earliest"
    )
    for _ in itertools.islice(consumer, sent):
        pass
    consumer.close()
    producer.close()


def described(span) -> dict[str, object]:
    """What the test compares; contexts are trace and span in hexadecimal."""

    def named(context) -> str:
        return f"{context.trace_id:032x}-{context.span_id:016x}"

    return {
        "name": span.name,
        "kind": span.kind.name,
        "context": named(span.context),
        "parent": named(span.parent) if span.parent else None,
        "links": [named(link.context) for link in span.links],
    }


spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
if client == "confluent-kafka":
    ConfluentKafkaInstrumentor().instrument()
    with_confluent_kafka(map(int, sys.stdin))
else:
    KafkaInstrumentor().instrument()
    with_kafka_python(map(int, sys.stdin))
print(json.dumps([described(span) for span in spans.get_finished_spans()]))
