"""Lab: 500 partitions and 500 consumers.

The number of partitions bounds how many consumers of a group work at the same time. With 500 of
each, every consumer has one partition; one consumer more has none.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer
from lab import Lab, run

from barnabas.client import Producer

COUNT = 500
PATIENCE_S = 120


def body(lab: Lab) -> None:
    """Start a consumer more than there are partitions, all in this process, and let
    each read its share."""
    lab.step(f"1. A topic with {COUNT} partitions, and a record in each")
    lab.create("wide", f"--partitions {COUNT} --replication-factor 1")
    with Producer({"bootstrap.servers": lab.cluster.bootstrap_servers}) as producer:
        for number in range(COUNT):
            producer.send("wide", f"record {number}", partition=number)
    leaders = [each.leader for each in lab.topic("wide").values()]
    shares = [leaders.count(broker) for broker in range(3)]
    lab.check(f"the brokers lead {shares} of them", holds=max(shares) - min(shares) <= 1, otherwise=shares)

    lab.step(f"2. {COUNT + 1} consumers of one group")
    settings = {
        "bootstrap.servers": lab.cluster.bootstrap_servers,
        "group.id": "crowd",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range",
        # Members that join while others do begin the rebalance again: be patient with each other.
        "session.timeout.ms": 60_000,
        "heartbeat.interval.ms": 5_000,
        "log_level": 0,
    }
    # Static members: they do not leave when they end, so the last ones need not share again
    # what the first ones had.
    consumers = [Consumer({**settings, "group.instance.id": f"consumer-{n}"}) for n in range(COUNT + 1)]
    try:
        began = time.monotonic()
        for consumer in consumers:
            consumer.subscribe(["wide"])
        counts = read(consumers, began + PATIENCE_S)
        lab.say(f"  after {time.monotonic() - began:.0f} s all records are read")
        busy = sum(1 for count in counts if count)
        lab.check(
            f"{busy} consumers read one record each, {len(consumers) - busy} had nothing to read",
            holds=counts.count(1) == COUNT and counts.count(0) == 1,
            otherwise=counts,
        )
        rows = lab.ask("consumer-groups --describe --members --group crowd --bootstrap-server $KAFKA").splitlines()
        members = [row for row in rows if row.startswith("crowd ")]
        lab.check(
            f"the group has {len(members)} members, and one of them no partition",
            holds=len(members) == COUNT + 1 and sum(row.split()[-1] == "0" for row in members) == 1,
        )
    finally:
        with ThreadPoolExecutor(50) as pool:
            list(pool.map(Consumer.close, consumers))


def read(consumers: list[Consumer], end: float) -> list[int]:
    """How many records each consumer read, once all were read."""
    found = [0] * len(consumers)
    while sum(found) < COUNT and time.monotonic() < end:
        for number, consumer in enumerate(consumers):
            message = consumer.poll(0)
            if message is not None and not message.error():
                found[number] += 1
        time.sleep(0.1)
    return found


if __name__ == "__main__":
    sys.exit(run("500 partitions and 500 consumers", body, settings={"group.initial.rebalance.delay.ms": "5000"}))
