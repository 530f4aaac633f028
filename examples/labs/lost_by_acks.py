"""Lab: what is lost, by acks, sync and async, when the producer or the leader dies.

A producer's program has "sent" a record when the call returns. In async mode that means: it is in a
buffer of the producer's process. In sync mode the call returns with the broker's acknowledgement;
what that is worth, acks says.
"""

import mmap
import signal
import subprocess
import sys
import time
from pathlib import Path

from lab import PATIENT, CheckFailed, Lab, run

from barnabas.client import ClientError, Producer

ACKS = ("0", "1", "-1")
BATCH = 500
KILL_AFTER = {"sync": 300, "async": 1250}
SENT_AT_MOST = 1400
AT_LEADER = 30
WHY = {
    "sync": "each send waited; one more may be there, whose acknowledgement did not arrive",
    "async": "what waited in its buffer for a full batch went with the process",
}


def body(lab: Lab) -> None:
    """First kill six producers, then a leader under three."""
    producers_die(lab)
    a_leader_dies(lab)


def producers_die(lab: Lab) -> None:
    """A producer for each acks and mode, killed while it sends."""
    lab.step("1. A producer is killed in the middle (kill -9); brokers are well")
    lab.say(f"Async ones gather up to batch.num.messages={BATCH}, for up to queue.buffering.max.ms=60000.")
    rows = []
    for mode in ("sync", "async"):
        for acks in ACKS:
            topic = f"{mode}-acks{acks}"
            lab.create(topic, "--partitions 1 --replication-factor 3")
            sent = kill_a_producer(lab, topic, mode, acks)
            there = [int(value) for value in settled(lab, topic)]
            if there != list(range(len(there))):
                raise CheckFailed(f"{topic} has records twice or in disorder")
            rows.append((mode, acks, sent, len(there), max(0, sent - len(there))))
    lab.say(f"{'mode':<7}{'acks':>5}{'thought sent':>14}{'in the topic':>14}{'lost':>6}  why")
    for mode, acks, sent, there, lost in rows:
        lab.say(f"{mode:<7}{acks:>5}{sent:>14}{there:>14}{lost:>6}  {why(mode, acks)}")
    safe = [lost for mode, acks, _, _, lost in rows if mode == "sync" and acks != "0"]
    lab.check("sync with acks 1 or -1 lost nothing of what it thought sent", holds=safe == [0, 0], otherwise=safe)
    gone = [lost for mode, _, _, _, lost in rows if mode == "async"]
    lab.check("async lost its buffer, whatever acks said", holds=all(gone), otherwise=gone)


def kill_a_producer(lab: Lab, topic: str, mode: str, acks: str) -> int:
    """Start this file as a producer and kill it while it sends; how many records it
    thought sent."""
    path = lab.cluster.data_dir / f"{topic}.sent"
    path.write_bytes(bytes(8))
    command = [sys.executable, __file__, "produce", lab.cluster.bootstrap_servers, topic, mode, acks, str(path)]
    with subprocess.Popen(command) as process:
        try:
            lab.until(
                lambda: process.poll() is not None or read_count(path) >= KILL_AFTER[mode],
                f"{KILL_AFTER[mode]} records of the {mode} producer",
            )
        finally:
            process.kill()
    if process.returncode != -signal.SIGKILL:
        raise CheckFailed(f"the producer to {topic} ended by itself, with {process.returncode}")
    return read_count(path)


def settled(lab: Lab, topic: str) -> list[str]:
    """The topic's records, once no more come: what the kernel still had to send
    arrives within moments."""
    found = lab.read(topic)
    while True:
        time.sleep(0.3)
        again = lab.read(topic)
        if len(again) == len(found):
            return found
        found = again


def why(mode: str, acks: str) -> str:
    """A reason for the table."""
    return (
        "what the kernel had taken still arrives, without an acknowledgement"
        if (mode, acks) == ("sync", "0")
        else WHY[mode]
    )


def a_leader_dies(lab: Lab) -> None:
    """The same records to three topics of one leader, which is lost while its
    followers are behind."""
    lab.step("2. The leader is lost (kill -9) while its followers are behind; producers are well, and sync")
    for acks in ACKS:
        lab.create(f"leader-acks{acks}", "--replica-assignment 2:0:1")
        lab.produce(f"leader-acks{acks}", ["before"], "--request-required-acks -1")
    lab.say("Brokers 0 and 1 stand still (kill -STOP), but stay in the in-sync sets for the time being.")
    for broker in (0, 1):
        lab.cluster.pause_broker(broker)
    # An answer to the followers' open fetches may arrive yet; it holds no more than
    # this one record.
    with Producer(settings(lab, "1")) as first:
        first.send("leader-acks1", "on-its-way").result(30)
    believed = {}
    careful = Producer(settings(lab, "-1"))
    for acks in ACKS[:2]:
        with Producer(settings(lab, acks)) as producer:
            believed[acks] = sum(send_one(producer, f"leader-acks{acks}", number) for number in range(AT_LEADER))
    receipts = [careful.send("leader-acks-1", f"{number}") for number in range(AT_LEADER)]
    for acks in ACKS:
        lab.until(lambda acks=acks: has_all(lab, f"leader-acks{acks}"), "the records in the leader's log")
    careful.poll(0.2)
    before = sum(receipt.done for receipt in receipts)
    lab.check("with acks=-1 not one is acknowledged by the leader alone", holds=before == 0, otherwise=before)
    lab.cluster.kill_broker(2)
    for broker in (0, 1):
        lab.cluster.resume_broker(broker)
    believed["-1"] = sum(receipt.result(60).offset >= 0 for receipt in receipts)
    careful.close()
    for acks in ACKS:
        lab.until(lambda acks=acks: lab.in_sync(f"leader-acks{acks}", {0, 1}), "a new leader")
    reasons = {
        "0": "it never asks; the leader took them with it",
        "1": "the leader had them, and answered for itself alone",
        "-1": "the producer waited, and sent them again to the new leader",
    }
    lost = {}
    lab.say(f"{'acks':>4}{'thought sent':>14}{'in the topic':>14}{'lost':>6}  why")
    for acks in ACKS:
        found = sum(value.isdigit() for value in lab.read(f"leader-acks{acks}"))
        lost[acks] = believed[acks] - found
        lab.say(f"{acks:>4}{believed[acks]:>14}{found:>14}{lost[acks]:>6}  {reasons[acks]}")
    lab.check("acks 0 and 1 lost what the leader alone had", holds=lost["0"] > 0 and lost["1"] > 0, otherwise=lost)
    lab.check("acks -1 lost nothing", holds=lost["-1"] == 0, otherwise=lost)


def settings(lab: Lab, acks: str) -> dict[str, str]:
    """A producer that sends each record at once."""
    return {"bootstrap.servers": lab.cluster.bootstrap_servers, "acks": acks, "linger.ms": "0", "log_level": "0"}


def send_one(producer: Producer, topic: str, number: int) -> bool:
    """Send and wait; whether the producer believes it sent."""
    try:
        producer.send(topic, str(number)).result(30)
    except ClientError:
        return False
    return True


def has_all(lab: Lab, topic: str) -> bool:
    """Whether the leader's log has the last of the records."""
    # The last value, after its length as a varint.
    return f"\x04{AT_LEADER - 1}".encode() in lab.log_bytes(topic, 2)


def read_count(path: Path) -> int:
    """What a producer counted."""
    return int.from_bytes(path.read_bytes(), "little")


def produce(bootstrap: str, topic: str, mode: str, acks: str, counter: str) -> None:
    """The producer that is killed: counts what it thinks sent where a killed process leaves it."""
    properties = {
        "bootstrap.servers": bootstrap,
        "producer.type": mode,
        "request.required.acks": acks,
        "batch.num.messages": BATCH,
        "queue.buffering.max.ms": 0 if mode == "sync" else 60_000,
    }
    with Path(counter).open("r+b") as file, mmap.mmap(file.fileno(), 8) as sent, Producer(properties) as producer:
        for number in range(SENT_AT_MOST):
            producer.send(topic, str(number))
            sent[:] = (number + 1).to_bytes(8, "little")
            time.sleep(0.0005)
        signal.pause()  # its end comes from outside


if __name__ == "__main__":
    if sys.argv[1:2] == ["produce"]:
        produce(*sys.argv[2:])
    else:
        sys.exit(run("What is lost, by acks", body, settings=PATIENT))
