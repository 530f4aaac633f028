"""``barnabas e2e-latency``: how long a record takes from one client to another.

Kafka's ``EndToEndLatency``."""

import json
import random
import sys
import time

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.properties import client_properties_file
from barnabas.cli.connection.reachability import require_broker
from barnabas.cli.options.tool_parser import ToolParser, add_connect_timeout, add_output_option
from barnabas.cli.output.terminal import print
from barnabas.client.admin.admin import Admin
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer

__all__ = ["main"]

_TIMEOUT_S = 60.0


def main(argv: list[str]) -> int:
    """Send one record after the other, each when the one before has arrived, and
    print the latencies."""
    given = _parser().parse_args(argv)
    if given.producer_acks not in ("1", "all", "-1"):
        raise BarnabasError(
            f"Latency testing requires synchronous acknowledgement: acks {given.producer_acks} must be 1 or all"
        )
    shared = {**client_properties_file(given.properties_file), "bootstrap.servers": given.broker_list}
    require_broker(given.broker_list, shared, given.connect_timeout, [given.topic])
    with Admin(shared) as admin:
        if admin.create_topic(given.topic, partitions=1, replication_factor=1, if_not_exists=True):
            where = sys.stderr if given.output == "json" else sys.stdout
            print(f"Topic {given.topic} was created with one partition and replica", file=where)
        (topic,) = admin.describe_topics([given.topic])
    reading = {**shared, "fetch.wait.max.ms": "0"}
    writing = {**shared, "linger.ms": "0", "acks": given.producer_acks}
    latencies_ms = []
    with (
        Consumer(reading, deserializer=BYTES, key_deserializer=BYTES) as consumer,
        Producer(writing, serializer=BYTES, key_serializer=BYTES) as producer,
    ):
        partitions = [TopicPartition(given.topic, item.partition) for item in topic.partitions]
        consumer.assign({partition: consumer.watermarks(*partition)[1] for partition in partitions})
        consumer.poll(1.0)
        for number in range(given.num_messages):
            value = random.randbytes(given.message_size_bytes)
            began = time.monotonic()
            producer.send(given.topic, value).result(_TIMEOUT_S)
            record = consumer.poll(_TIMEOUT_S)
            latency_ms = (time.monotonic() - began) * 1000
            if record is None:
                raise BarnabasError(f"message {number} did not arrive within {_TIMEOUT_S:.0f} s")
            if record.value != value:
                raise BarnabasError(
                    f"message {number} is not the one that was sent: does another producer use {given.topic}?"
                )
            latencies_ms.append(latency_ms)
            if number % 1000 == 0 and given.output == "text":
                print(number, latency_ms, sep="\t")
    ordered = sorted(latencies_ms)
    marks = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.99, 0.999)]
    if given.output == "json":
        figures = dict(zip(("50th_ms", "99th_ms", "99.9th_ms"), marks, strict=True))
        print(json.dumps({"messages": len(ordered), "avg_ms": sum(ordered) / len(ordered), **figures}))
        return 0
    print(f"Avg latency: {sum(ordered) / len(ordered):.4f} ms", end="\n\n")
    print("Percentiles: 50th = {:.0f}, 99th = {:.0f}, 99.9th = {:.0f}".format(*marks))
    return 0


def _parser() -> ToolParser:
    parser = ToolParser("e2e-latency", "Measure how long a record takes from a producer to a consumer.")
    add = parser.add_argument
    add("broker_list", metavar="HOST:PORT[,...]", help="the brokers")
    add("topic", help="the topic; it is created if it is not there")
    add("num_messages", type=int, help="how many messages, one after the other")
    add("producer_acks", help="1 or all")
    add("message_size_bytes", type=int, help="the size of each")
    add("properties_file", nargs="?", metavar="FILE", help="a .properties file for the clients")
    add_connect_timeout(parser, waits=True)
    add_output_option(parser)
    return parser
