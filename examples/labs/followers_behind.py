"""Lab: both followers are behind when the leader is lost.

A record is committed once every in-sync replica has it; only then does a consumer see it, and only
then does the leader acknowledge it to a producer with acks=all. What is not committed may be lost
with the leader. A producer with acks=all has no acknowledgement for it and sends it again; one with
acks=1 has an acknowledgement that proved wrong.
"""

import sys

from lab import PATIENT, Lab, run

from barnabas.client import Producer

COMMITTED, HASTY, CAREFUL = 100, 10, 10


def body(lab: Lab) -> None:
    """Pause both followers, write to the leader, kill it, and let the followers go on."""
    lab.step("1. A partition with three replicas, and committed records")
    lab.create("orders", "--partitions 1 --replication-factor 3")
    lab.describe("orders")
    leader = lab.leader("orders")
    followers = sorted({0, 1, 2} - {leader})
    lab.produce("orders", [f"committed-{number}" for number in range(COMMITTED)], "--request-required-acks -1")
    seen = len(lab.read("orders"))
    lab.check(f"consumers see {seen} records", holds=seen == COMMITTED)

    lab.step(f"2. Brokers {followers[0]} and {followers[1]} stand still (kill -STOP)")
    for broker in followers:
        lab.cluster.pause_broker(broker)
    lab.say(
        "They stay in the in-sync set until replica.lag.time.max.ms is over: no other broker knows yet that they are behind."
    )
    own = f"--topic orders --bootstrap-server {lab.address(leader)}"
    lab.barnabas(f"console-producer {own} --request-required-acks 1", stdin="on-its-way\n")
    lab.say("That one may still arrive: the followers' fetches were open, and their kernels took the answer for them.")
    hasty = "".join(f"hasty-{number}\n" for number in range(HASTY))
    lab.barnabas(f"console-producer {own} --request-required-acks 1", stdin=hasty)
    copies = {broker: lab.log_bytes("orders", broker).count(b"hasty-") for broker in range(3)}
    lab.check(
        f"the leader acknowledged {HASTY} records that are in its log alone, to a producer that asked for acks=1",
        holds=copies == {broker: HASTY if broker == leader else 0 for broker in range(3)},
        otherwise=copies,
    )
    with Producer({"bootstrap.servers": lab.cluster.bootstrap_servers, "acks": "all", "linger.ms": 0}) as careful:
        receipts = [careful.send("orders", f"careful-{number}") for number in range(CAREFUL)]
        lab.until(
            lambda: lab.log_bytes("orders", leader).count(b"careful-") == CAREFUL, "the records in the leader's log"
        )
        careful.poll(0.5)
        done = sum(receipt.done for receipt in receipts)
        lab.check(f"of {CAREFUL} records with acks=all in the same log, {done} are acknowledged", holds=done == 0)
        reached = lab.barnabas(f"get-offsets {own}")
        lab.check(
            f"the leader's log has {COMMITTED + 1 + HASTY + CAREFUL} records, yet consumers are shown {COMMITTED}",
            holds=reached == f"orders:0:{COMMITTED}",
            otherwise=reached,
        )

        lab.step(f"3. Broker {leader}, the leader, is lost (kill -9), and the followers go on")
        lab.cluster.kill_broker(leader)
        for broker in followers:
            lab.cluster.resume_broker(broker)
        lab.until(lambda: lab.in_sync("orders", set(followers)), "a new leader")
        lab.describe("orders")
        offsets = [receipt.result(60).offset for receipt in receipts]
        lab.check(
            f"the producer sent its {CAREFUL} again: offsets {offsets[0]} to {offsets[-1]}, behind what is committed",
            holds=offsets[0] >= COMMITTED and offsets == sorted(set(offsets)),
            otherwise=offsets,
        )

    lab.step("4. What is left")
    values = lab.read("orders")
    kinds = {
        kind: sum(value.startswith(kind) for value in values)
        for kind in ("committed", "on-its-way", "hasty", "careful")
    }
    lab.say(f"{'records':<12}{'acks':<6}{'acknowledged':>16}{'there now':>11}")
    acknowledged = {"committed": COMMITTED, "on-its-way": 1, "hasty": HASTY, "careful": CAREFUL}
    for kind, acks in (("committed", "all"), ("on-its-way", "1"), ("hasty", "1"), ("careful", "all")):
        lab.say(f"{kind:<12}{acks:<6}{acknowledged[kind]:>16}{kinds[kind]:>11}")
    first = [value for value in values if value.startswith("committed")]
    lab.check(
        "every committed record is there, in its place",
        holds=values[:COMMITTED] == first == [f"committed-{number}" for number in range(COMMITTED)],
    )
    lab.check(
        "every record with acks=all is there once, in order",
        holds=[value for value in values if value.startswith("careful")] == [f"careful-{n}" for n in range(CAREFUL)],
        otherwise=values[COMMITTED:],
    )
    lab.check(f"the {HASTY} records that the leader alone had are lost, though acknowledged", holds=kinds["hasty"] == 0)

    lab.step(f"5. Broker {leader} comes back with records that no other broker has")
    lab.cluster.start_broker(leader)
    lab.until(lambda: lab.in_sync("orders", {0, 1, 2}), "the old leader in sync")
    lab.describe("orders")
    lab.until(lambda: len({lab.log_bytes("orders", broker) for broker in range(3)}) == 1, "equal logs")
    log = lab.log_bytes("orders", leader)
    left = {kind: log.count(f"{kind}-".encode()) for kind in ("hasty", "careful")}
    lab.check(
        "it cut off its own records and copied the new leader's: the three logs are equal",
        holds=left == {"hasty": 0, "careful": CAREFUL},
        otherwise=left,
    )
    lab.say("How it finds the place to cut is the lab rejoin.py.")


if __name__ == "__main__":
    sys.exit(run("The leader is lost while both followers are behind", body, settings=PATIENT))
