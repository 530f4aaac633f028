"""Processes stopped (SIGSTOP) until others have taken their place, then let go on:
zombies change nothing.

``BARNABAS_PAUSES`` is how many pauses there are in all (default 3: a leader, the controller,
the coordination server; 50 for a full trial). Sessions are of 2 s, so that a pause of a
broker ends its session soon.

What waits in the paused leader's sockets is handled first when it goes on: an idempotent load,
and on a connection of our own a record with acks=1 and one with acks=all. The one with acks=1
may be acknowledged by the zombie and lost, as Kafka documents; the one with acks=all is
acknowledged only if it stays.
"""

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.frames import decode_response_header, encode_request
from barnabas.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.kafka.records.records import Record, build_batch
from support.load import PARTITIONS, Load, Reader, assert_exactly_once_in_order, read_all
from support.raw import receive
from support.servers import Server
from support.trio import SESSION_MS, Epochs, Trio, trio
from support.waiting import eventually

PAUSES = int(os.environ.get("BARNABAS_PAUSES", "3"))
SEED = 3
TOPIC = "trial"
VICTIMS = ("leader", "controller", "zookeeper")
STALE = 10**9
"""Numbers from here on are of records written to a paused leader."""
PRODUCE_VERSION = 8
pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(600 + 60 * PAUSES)]


@dataclass
class StaleWrites:
    """Records sent to leaders while these were paused, and what came of them."""

    topic: str
    acks_all: set[int] = field(default_factory=set)
    """Acknowledged, and so to be kept."""
    acks_one: set[int] = field(default_factory=set)
    """Acknowledged by a leader alone."""
    refused: int = 0
    _next: Iterator[int] = field(default_factory=lambda: iter(range(STALE, 2 * STALE)))

    def send(self, port: int, partition: int) -> "Sent":
        """The kernel takes the requests for the paused process: ``connect`` before
        the pause, this in it."""
        return Sent(self, socket.create_connection(("127.0.0.1", port), 30), partition)

    def take(self, number: int, acks: int, error_code: int) -> None:
        if error_code:
            self.refused += 1
        elif acks == 1:
            self.acks_one.add(number)
        else:
            self.acks_all.add(number)

    def number(self) -> int:
        return next(self._next)


class Sent:
    """One connection with two produce requests on it."""

    def __init__(self, writes: StaleWrites, connection: socket.socket, partition: int) -> None:
        self._writes = writes
        self._connection = connection
        self._sent: list[tuple[int, int]] = []
        for correlation_id, acks in enumerate((1, -1)):
            number = writes.number()
            batch = build_batch([Record(0, int(time.time() * 1000), None, str(number).encode(), [])])
            request = ProduceRequest(
                acks=acks,
                timeout_ms=20_000,
                topic_data=[
                    TopicProduceData(
                        name=writes.topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
                    )
                ],
            )
            parts = encode_request(request, PRODUCE_VERSION, correlation_id, "stale")
            connection.sendall(b"".join(bytes(part) for part in parts))
            self._sent.append((number, acks))

    def answers(self) -> None:
        """Wait for what the leader says now that it goes on.

        A connection that it closes is a refusal."""
        with self._connection as connection:
            connection.settimeout(60)
            for number, acks in self._sent:
                prefix = receive(connection, 4)
                if len(prefix) < 4:
                    self._writes.refused += 1
                    continue
                frame = receive(connection, struct.unpack(">i", prefix)[0])
                header = decode_response_header(frame, ProduceRequest.API_KEY, PRODUCE_VERSION)
                response = decode(ProduceResponse, PRODUCE_VERSION, memoryview(frame), header.body_offset)
                self._writes.take(number, acks, response.responses[0].partition_responses[0].error_code)


def pause_broker(cluster: Trio, epochs: Epochs, load: Load, stale: StaleWrites, number: int) -> None:
    """Until its session is over, others lead what it led, and one of them is controller."""
    led = [partition for partition in range(PARTITIONS) if epochs.state(partition)["leader"] == number]
    was_controller = epochs.controller() == number
    broker = cluster.brokers[number]
    broker.pause()
    try:
        sent = [stale.send(broker.port, partition) for partition in led]
        eventually(
            lambda: all(epochs.state(partition)["leader"] not in (-1, number) for partition in led),
            timeout_s=60,
            what="others lead",
        )
        if was_controller:
            eventually(lambda: epochs.controller() not in (-1, number), timeout_s=60, what="another controller")
        load.goes_on(500, "the load goes on with the others")
    finally:
        broker.resume()
    for requests in sent:
        requests.answers()


def pause_coordination(server: Server, load: Load) -> None:
    """Longer than the sessions; leaders continue during the pause."""
    server.pause()
    try:
        end = time.monotonic() + 2 * SESSION_MS / 1000
        load.goes_on(500, "the load goes on without coordination")
        time.sleep(max(end - time.monotonic(), 0))  # the pause is the fault
    finally:
        server.resume()


def test_zombies_lose_and_double_nothing_and_leave_equal_logs(tmp_path: Path, record_property) -> None:
    """After each pause the zombie hears that it was replaced, cuts its log back, and
    is in sync again."""
    rng = random.Random(SEED)
    settings = {"zookeeper.session.timeout.ms": SESSION_MS, "zookeeper.connection.timeout.ms": 18_000}
    with trio(tmp_path, settings) as cluster:
        cluster.create(TOPIC)
        epochs = Epochs(cluster, TOPIC)
        load = Load(cluster.bootstrap, TOPIC)
        reader = Reader(cluster.bootstrap, TOPIC)
        stale = StaleWrites(TOPIC)
        for pause in range(PAUSES):
            load.goes_on(500, "the load goes on")
            cluster.wait_until_in_sync(TOPIC)
            # The moment of the pause is the trial's chance, not a wait.
            time.sleep(rng.uniform(0, 0.2))
            match VICTIMS[pause % 3]:
                case "leader":
                    pause_broker(cluster, epochs, load, stale, cluster.leader(TOPIC, rng.randrange(3)))
                case "controller":
                    pause_broker(cluster, epochs, load, stale, cluster.controller())
                case _:
                    pause_coordination(cluster.zookeeper, load)
        load.goes_on(500, "the load goes on after the last pause")
        cluster.wait_until_in_sync(TOPIC)
        load.finish()
        records = read_all(cluster.bootstrap, TOPIC)
        kept = [number for _, _, number in records if number >= STALE]
        record_property("pauses, their moments from seed", [PAUSES, SEED])
        record_property("acknowledged", len(load.acknowledged))
        record_property("acks=1 by zombies: acknowledged, lost", [len(stale.acks_one), len(stale.acks_one - {*kept})])
        record_property("acks=all to zombies: acknowledged, refused", [len(stale.acks_all), stale.refused])
        assert load.failed == []
        assert_exactly_once_in_order(load, [record for record in records if record[2] < STALE], tmp_path)
        assert stale.acks_all <= set(kept)
        assert len(kept) == len(set(kept))
        reader.finish(records)
        cluster.wait_until_equal(TOPIC)
        assert epochs.faults == []
        assert epochs.elections >= PAUSES // 3
