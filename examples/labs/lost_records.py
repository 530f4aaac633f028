"""Lab: all brokers are killed, and one of them has lost half of its log.

The disk of one broker gives back less than it took. That broker starts first. By Kafka's rules it
is a member of the in-sync set, so it leads, and the others truncate to it: records that two intact
replicas still have are gone. A broker of ours notices that its log ends below the high watermark
that it noted on disk. It leaves the in-sync set and waits; an intact replica leads, and the damaged
one copies what it lost.
"""

import os
import sys

from lab import Lab, run

RECORDS = 2000
DAMAGED = 0
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
}


def body(lab: Lab) -> None:
    """Cut one log, start its broker first, and count the records."""
    lab.step("1. Records on three replicas, each acknowledged by all")
    lab.create("orders", "--replica-assignment 0:1:2 --config min.insync.replicas=2")
    lab.produce("orders", [f"order {number:04}" for number in range(RECORDS)], "--request-required-acks -1")
    lab.until(lambda: all(high_watermark(lab, broker) == RECORDS for broker in range(3)), "a checkpoint on each broker")
    lab.show(f"grep orders $DATA/*/replication-offset-checkpoint # broker {DAMAGED}", f"orders 0 {RECORDS}")

    lab.step("2. All three brokers are killed at once (kill -9), and the log of broker 0 is cut in half")
    for broker in range(3):
        lab.cluster.pause_broker(broker)  # none of them is to see another one die
    for broker in range(3):
        lab.cluster.kill_broker(broker)
    lab.state("orders", show=True)
    log = max(lab.replica_files("orders", DAMAGED).glob("*.log"))
    size = log.stat().st_size
    os.truncate(log, size // 2)
    lab.say(f"{log.name} of broker {DAMAGED}: {size} bytes, now {size // 2}")

    lab.step("3. Broker 0 starts first")
    lab.cluster.start_broker(DAMAGED)
    lines = lab.until(lambda: said(lab, "has lost records"), "what broker 0 says of its log")
    lab.say(lines[0])
    lab.until(lambda: said(lab, "leaves its in-sync set"), "broker 0 out of the in-sync set")
    lab.until(lambda: said(lab, "started"), "broker 0 in service")
    lab.until(lambda: lab.state("orders")["leader"] == -1, "the end of the other brokers' sessions")
    state = lab.state("orders", show=True)
    members = state["isr"]
    lab.check("it is not in the in-sync set any more", holds=DAMAGED not in members, otherwise=members)  # type: ignore[operator]  # a list
    lab.check(
        "it does not lead: the partition waits for an intact replica", holds=state["leader"] == -1, otherwise=state
    )

    lab.step("4. The other brokers come back")
    for broker in (1, 2):
        lab.cluster.start_broker(broker)
    leader = lab.leader("orders")
    lab.check(f"broker {leader} leads, which has every record", holds=leader != DAMAGED, otherwise=leader)
    lab.until(lambda: lab.in_sync("orders", {0, 1, 2}), "three replicas in sync")
    lab.describe("orders")
    count = len(set(lab.read("orders")))
    lab.check(f"{count} of {RECORDS} acknowledged records are there", holds=count == RECORDS, otherwise=count)
    logs = {lab.log_bytes("orders", broker) for broker in range(3)}
    lab.check("the three logs are equal again", holds=len(logs) == 1)


def said(lab: Lab, what: str) -> list[str]:
    """The lines of the damaged broker's log since its last start that contain a text."""
    lines = lab.cluster.broker_log(DAMAGED).read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if "Cluster ID =" in line]
    return [line for line in lines[starts[-1] :] if what in line] if len(starts) > 1 else []


def high_watermark(lab: Lab, broker: int) -> int:
    """As the broker noted it on disk."""
    try:
        lines = (lab.cluster.log_dir(broker) / "replication-offset-checkpoint").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[2]) for line in lines if line.startswith("orders 0 ")), 0)


if __name__ == "__main__":
    sys.exit(run("All brokers are killed, and one has lost half of its log", body, settings=SETTINGS))
