"""Lab: ten records as one message, by an own encoder, and what is lost when the producer
dies while it gathers them.

A sync producer waits for the acknowledgement of each message, so it has no batches of its own.
The first clients' remedy: the program gathers a list, and ``serializer.class`` makes one
message of it; the consumer's decoder makes a list of it again. The broker knows nothing of
that: for it, ten records are one.
"""

import json
import mmap
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

from lab import CheckFailed, Lab, run

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin, Consumer, Producer
from barnabas.client.admin import LATEST, FoundOffset

TOPIC = "readings"
RECORDS = 1000
TOGETHER = 10
KILL_AFTER = 497  # in the middle of a list


def encode(readings: list[dict[str, int]]) -> bytes:
    """A list of records as one message: a line of JSON for each."""
    return "\n".join(json.dumps(reading) for reading in readings).encode()


def decode(message: bytes) -> list[dict[str, int]]:
    """The list again."""
    return [json.loads(line) for line in message.decode().splitlines()]


def body(lab: Lab) -> None:
    """Compare the two ways, and kill a producer while it gathers."""
    lab.step(f"1. {RECORDS:,} records, sync: one by one, and {TOGETHER} as one message")
    taken_s = {}
    for together in (1, TOGETHER):
        lab.create(f"{TOPIC}-{together}", "--partitions 1 --replication-factor 3")
        began = time.monotonic()
        send(lab.cluster.bootstrap_servers, f"{TOPIC}-{together}", together, RECORDS)
        taken_s[together] = time.monotonic() - began
    lab.say(f"{'records a message':>18}{'messages':>10}{'seconds':>9}{'records/s':>11}")
    for together, seconds in taken_s.items():
        lab.say(f"{together:>18}{RECORDS // together:>10}{seconds:>9.2f}{RECORDS / seconds:>11,.0f}")
    for together in taken_s:
        found = read(lab, f"{TOPIC}-{together}")
        lab.check(
            f"{RECORDS // together:,} messages hold each record once, in order",
            holds=found == list(range(RECORDS)),
            otherwise=found[:20],
        )
    lab.check("fewer acknowledgements to wait for, more records a second", holds=taken_s[TOGETHER] < taken_s[1])

    lab.step(f"2. The producer is killed (kill -9) after its program has handed over {KILL_AFTER} records")
    lab.create("killed", "--partitions 1 --replication-factor 3")
    counter = lab.cluster.data_dir / "killed.count"
    counter.write_bytes(bytes(8))
    command = [sys.executable, __file__, "produce", lab.cluster.bootstrap_servers, str(counter)]
    with subprocess.Popen(command) as process:
        try:
            lab.until(
                lambda: process.poll() is not None or int.from_bytes(counter.read_bytes(), "little") == KILL_AFTER,
                f"{KILL_AFTER} records",
            )
        finally:
            process.kill()
    if process.returncode != -signal.SIGKILL:
        raise CheckFailed(f"the producer ended by itself, with {process.returncode}")
    found = read(lab, "killed")
    whole = KILL_AFTER // TOGETHER * TOGETHER
    lab.say(f"in the topic: {len(found)} of {KILL_AFTER} records")
    lab.check(
        f"every list that was acknowledged is there, whole: {whole} records",
        holds=found == list(range(whole)),
        otherwise=found[-20:],
    )
    lost = set(range(KILL_AFTER)) - set(found)
    lab.check(
        f"the list that was being gathered is lost, and nothing else: {len(lost)} records",
        holds=lost == set(range(whole, KILL_AFTER)),
        otherwise=sorted(lost),
    )
    lab.say("A list is stored as a whole or not at all. What a program gathers by hand, it must be able to make again.")


def send(bootstrap: str, topic: str, together: int, count: int, counter: Path | None = None) -> None:
    """Gather ``together`` records, and send the list.

    ``counter`` is where a killed process leaves how many there were."""
    settings = {"bootstrap.servers": bootstrap, "producer.type": "sync", "request.required.acks": "-1"}
    with Producer(settings, serializer=encode) as producer:
        gathered: list[dict[str, int]] = []
        for number in range(count):
            gathered.append({"reading": number, "celsius": number % 40})
            if len(gathered) == together:
                producer.send(topic, gathered)
                gathered = []
            if counter is not None:
                with counter.open("r+b") as file, mmap.mmap(file.fileno(), 8) as handed_over:
                    handed_over[:] = (number + 1).to_bytes(8, "little")


def read(lab: Lab, topic: str) -> list[int]:
    """The numbers of all records, as the decoder gives them back."""
    place, settings = TopicPartition(topic, 0), {"bootstrap.servers": lab.cluster.bootstrap_servers}
    with Admin(settings) as admin:
        end = admin.list_offsets({place: LATEST})[place]
    count = end.offset if isinstance(end, FoundOffset) else 0
    with Consumer(settings, deserializer=decode) as consumer:
        consumer.assign({place: 0})
        return [reading["reading"] for record in islice(consumer, count) for reading in record.value]


def produce(bootstrap: str, counter: str) -> None:
    """The producer that is killed."""
    send(bootstrap, "killed", TOGETHER, KILL_AFTER, Path(counter))
    # Still inside its work, as far as anyone outside can see.
    signal.pause()


if __name__ == "__main__":
    if sys.argv[1:2] == ["produce"]:
        produce(*sys.argv[2:])
    else:
        sys.exit(run("Ten records as one message", body))
