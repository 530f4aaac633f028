"""Lab: primary-backup beside a majority quorum, with the same failures.

Primary-backup, as in an in-sync set: a write waits for every replica in the set, a dead one is
dropped from it, and the last one goes on alone. f+1 replicas so survive f failures.

Majority, as in a quorum of a fixed group: a write needs more than half of all replicas, dead ones
counted. 2f+1 replicas survive f failures; below a majority the client gets an error.

Here f is 2: a topic of three replicas stands beside an ensemble of five coordination servers, and
each loses one after the other. A second topic asks for two of three by min.insync.replicas, and so
has a majority's rule of survival. It does not have a majority's way of waiting: its leader waits
for all that are in sync, where a quorum waits for the fastest half.
"""

import sys
import time

from lab import Lab, run

from barnabas.client import Producer

ALL = "--request-required-acks -1 --message-send-max-retries 0"
TOPICS = ("backup", "majority")
SERVERS = 5
LAG_MS = 3000
NEXT = 5


def body(lab: Lab) -> None:
    """Take one broker after the other from both topics, and as many servers from the ensemble."""
    lab.step("1. Two topics of three replicas, which differ in min.insync.replicas, and an ensemble of five servers")
    # Broker 0 leads both, so that it can be the one that stays to the end.
    lab.create("backup", "--replica-assignment 0:1:2 --config min.insync.replicas=1")
    lab.create("majority", "--replica-assignment 0:1:2 --config min.insync.replicas=2")
    outcomes = [written(lab, "three live")]

    lab.step("2. Broker 1 is lost, and server 1 of the ensemble")
    lab.cluster.kill_broker(1)
    lab.cluster.kill_zookeeper(1)
    lab.until(lambda: all(lab.in_sync(topic, {0, 2}) for topic in TOPICS), "in-sync sets of two")
    outcomes.append(written(lab, "two live"))

    lab.step("3. Broker 2 is lost, and server 2")
    lab.cluster.kill_broker(2)
    lab.cluster.kill_zookeeper(2)
    lab.until(lambda: all(lab.in_sync(topic, {0}) for topic in TOPICS), "in-sync sets of one")
    outcomes.append(written(lab, "one lives"))

    lab.step("4. Who survives what")
    lab.cluster.kill_zookeeper(3)
    alone = decided(lab, "/three-lost")
    lab.say(f"{'replicas':<12}{'primary-backup':<18}{'two of three':<18}{'quorum of five':<18}")
    for when, *acknowledged in outcomes:
        lab.say(f"{when:<12}" + "".join(f"{_word(each):<18}" for each in acknowledged))
    lab.say(f"{'one more lost':<12}{'':<17}{'':<18}{_word(alone):<18}")
    lab.check("primary-backup: 3 replicas survive 2 losses (f+1 survive f)", holds=all(each[1] for each in outcomes))
    lab.check(
        "a rule of two of three: 3 replicas survive 1 loss, then writers get an error",
        holds=[each[2] for each in outcomes] == [True, True, False],
    )
    lab.check(
        "a quorum: 5 servers survive 2 losses (2f+1 survive f), and not a third",
        holds=[each[3] for each in outcomes] == [True, True, True] and not alone,
    )
    for server in (1, 2, 3):
        lab.cluster.start_zookeeper(server)
    lab.until(lambda: lab.broker_ids_quietly() == "[0]", "the ensemble, with broker 0's session")
    kept = lab.read("majority")
    lab.check("reading does not need a majority: " + ", ".join(kept), holds=kept == ["three-live", "two-live"])

    lab.step("5. The price of going on alone")
    lab.cluster.stop_broker(0)
    lab.cluster.start_broker(1)
    lab.until(lambda: "1" in lab.broker_ids_quietly(), "broker 1 registered")
    lab.until(
        lambda: (found := lab.topic("backup")) and found[0].leader is None, "news of a partition without a leader"
    )
    lab.describe("backup")
    state = lab.state("backup", show=True)
    holders = [broker for broker in (0, 1) if b"one-lives" in lab.log_bytes("backup", broker)]
    lab.check(
        "broker 1 is back, and may not lead: only broker 0 was in sync, it alone has the last record",
        holds=(state["leader"], state["isr"], holders) == (-1, [0], [0]),
        otherwise=f"{state}, the last record is on {holders}",
    )
    lab.cluster.start_broker(0)
    lab.until(lambda: all(lab.in_sync(topic, {0, 1}) for topic in TOPICS), "brokers 0 and 1 in sync")
    lab.describe("backup")
    found = lab.read("backup")
    lab.check(
        "broker 0 is back, and nothing is lost: " + ", ".join(found),
        holds=found == ["three-live", "two-live", "one-lives"],
        otherwise=found,
    )
    lab.say(
        "Had its disk gone with it, one-lives would be lost. The majority's topic never took a record for one disk."
    )

    lab.step("6. The price of waiting for all")
    lab.say(
        "Broker 2 is back, and now stands still (kill -STOP). A quorum would not notice; an in-sync set waits for it."
    )
    lab.cluster.start_broker(2)
    lab.until(lambda: lab.in_sync("majority", {0, 1, 2}), "three in sync")
    settings = {"bootstrap.servers": lab.address(0), "acks": "all", "linger.ms": "0", "log_level": "0"}
    with Producer(settings) as producer:
        # The producer is connected after this: only waiting is measured.
        producer.send("majority", "before").result(60)
        began = time.monotonic()
        lab.cluster.pause_broker(2)
        waiting = producer.send("majority", "waited-for")
        lab.until(
            lambda: all(b"waited-for" in lab.log_bytes("majority", broker) for broker in (0, 1)),
            "the record on two of three brokers",
        )
        on_two_s = time.monotonic() - began
        producer.poll(0)
        lab.check(
            "two of three brokers have the record: a quorum would acknowledge it now, the in-sync set does not",
            holds=not waiting.done,
        )
        waiting.result(60)
        first_s = time.monotonic() - began
        left = lab.state("majority", show=True)["isr"]
        lab.check("it was acknowledged once the set was without broker 2", holds=left == [0, 1], otherwise=left)
        next_s = min(seconds_for(producer, f"next-{number}") for number in range(NEXT))
    lab.cluster.resume_broker(2)
    lab.say(f"{'write':<9}{'on two of three':>16}{'acknowledged':>15}")
    lab.say(f"{'first':<9}{on_two_s:>14.2f} s{first_s:>13.2f} s")
    lab.say(f"{'next':<9}{'':>16}{next_s:>13.2f} s")
    lab.check(
        f"the set waited once, until replica.lag.time.max.ms={LAG_MS} was nearly over or past",
        holds=first_s > LAG_MS / 2000 and next_s < first_s / 2,
        otherwise=(first_s, next_s),
    )


def seconds_for(producer: Producer, value: str) -> float:
    """How long a write takes that is waited for."""
    began = time.monotonic()
    producer.send("majority", value).result(60)
    return time.monotonic() - began


def written(lab: Lab, when: str) -> tuple[str, bool, bool, bool]:
    """Write one record to each topic, and a znode; whether each was acknowledged."""
    results = [
        "not delivered" not in lab.produce(topic, [when.replace(" ", "-")], ALL, may_fail=True) for topic in TOPICS
    ]
    return when, results[0], results[1], decided(lab, f"/{when.replace(' ', '-')}")


def decided(lab: Lab, path: str) -> bool:
    """Whether the ensemble makes a znode."""
    return f"Created {path}" in lab.barnabas(f"zookeeper-shell $ZK create {path} x", may_fail=True)


def _word(acknowledged: bool) -> str:
    return "acknowledged" if acknowledged else "refused"


if __name__ == "__main__":
    settings = {"replica.lag.time.max.ms": str(LAG_MS)}
    sys.exit(run("Primary-backup and majority", body, zk_servers=SERVERS, settings=settings))
