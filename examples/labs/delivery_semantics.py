"""Lab: at most once, at least once, and each record once: retries=0, the default, and
enable.idempotence=true.

An acknowledgement can be lost while the record is not. A producer that does not try again may lose
what it sent; one that does may store it twice; an idempotent one numbers its batches, so that the
leader recognizes a second try.
"""

import sys
from collections import Counter
from typing import NamedTuple

from lab import PATIENT, Lab, run

from barnabas.client import ClientError, Producer, Receipt

AT_MOST_ONCE, AT_LEAST_ONCE, IDEMPOTENT = "retries=0", "retries (the default)", "enable.idempotence=true"
SETTINGS = {
    AT_MOST_ONCE: {"retries": "0", "enable.idempotence": "false"},
    AT_LEAST_ONCE: {"enable.idempotence": "false"},
    IDEMPOTENT: {"enable.idempotence": "true"},
}
TOPICS = {AT_MOST_ONCE: "at-most-once", AT_LEAST_ONCE: "at-least-once", IDEMPOTENT: "idempotent"}
RECORDS = 100
LATE = {"socket.timeout.ms": "3000"}
"""How long a request may take."""


class Found(NamedTuple):
    """How many of the records are there, how many are not, and how many are there twice or more."""

    there: int
    lost: int
    twice: int


def body(lab: Lab) -> None:
    """Let acknowledgements come too late, then kill a leader under the same producers,
    then send twice on purpose."""
    lab.step("1. The leader stands still for a while (kill -STOP), so its acknowledgements come too late")
    for topic in TOPICS.values():
        lab.create(topic, "--replica-assignment 2:0:1")
    producers = {kind: producer(lab, kind, LATE) for kind in SETTINGS}
    for kind, each in producers.items():
        each.send(TOPICS[kind], "warm").result(30)
    lab.cluster.pause_broker(2)
    receipts = {
        kind: [each.send(TOPICS[kind], f"late-{n}") for n in range(RECORDS)] for kind, each in producers.items()
    }
    failed = sum(fails(receipt) for receipt in receipts[AT_MOST_ONCE])
    lab.say(f"{AT_MOST_ONCE}: {failed} of {RECORDS} sends have failed: no acknowledgement came within 3 s.")
    for kind in (AT_LEAST_ONCE, IDEMPOTENT):
        producers[kind].poll(0.5)  # their first tries have timed out too, and they are trying again
    lab.cluster.resume_broker(2)
    for kind in (AT_LEAST_ONCE, IDEMPOTENT):
        for receipt in receipts[kind]:
            receipt.result(60)
    for each in producers.values():
        each.close()
    late = {kind: count(lab, kind, "late-") for kind in SETTINGS}
    table(lab, late)
    lab.check(
        "retries=0 has no record twice, though each send ended with an error", holds=late[AT_MOST_ONCE].twice == 0
    )
    lab.check(
        "the default stored records twice: the first try had arrived, its acknowledgement had not",
        holds=late[AT_LEAST_ONCE].twice > 0 and late[AT_LEAST_ONCE].lost == 0,
        otherwise=late,
    )
    lab.check(
        "the idempotent producer sent them twice too, and the leader stored them once",
        holds=late[IDEMPOTENT] == Found(RECORDS, 0, 0),
        otherwise=late,
    )

    lab.step("2. The leader is killed (kill -9) while they send")
    producers = {kind: producer(lab, kind, {}) for kind in SETTINGS}
    for kind, each in producers.items():
        each.send(TOPICS[kind], "warm").result(30)
    lab.cluster.pause_broker(2)  # what is sent now is on its way when the leader dies
    receipts = {
        kind: [each.send(TOPICS[kind], f"killed-{n}") for n in range(RECORDS)] for kind, each in producers.items()
    }
    for each in producers.values():
        each.poll(0.3)
    lab.cluster.kill_broker(2)
    failed = sum(fails(receipt) for receipt in receipts[AT_MOST_ONCE])
    for kind in (AT_LEAST_ONCE, IDEMPOTENT):
        for receipt in receipts[kind]:
            receipt.result(60)
    for each in producers.values():
        each.close()
    for topic in TOPICS.values():
        lab.until(lambda topic=topic: lab.in_sync(topic, {0, 1}), "a new leader")
    killed = {kind: count(lab, kind, "killed-") for kind in SETTINGS}
    table(lab, killed)
    lab.check(
        f"retries=0 lost records, and its program was given an error for each ({failed})",
        holds=0 < killed[AT_MOST_ONCE].lost <= failed and killed[AT_MOST_ONCE].twice == 0,
        otherwise=killed,
    )
    lab.check(
        "the others lost none", holds=killed[AT_LEAST_ONCE].lost == killed[IDEMPOTENT].lost == 0, otherwise=killed
    )
    lab.check("the idempotent one stored none twice", holds=killed[IDEMPOTENT].twice == 0, otherwise=killed)

    lab.step("3. The program sends the same value twice")
    with producer(lab, IDEMPOTENT, {}) as each:
        each.send(TOPICS[IDEMPOTENT], "paid: 10 EUR").result(30)
        each.send(TOPICS[IDEMPOTENT], "paid: 10 EUR").result(30)
    kept = lab.read(TOPICS[IDEMPOTENT]).count("paid: 10 EUR")
    lab.check("both are kept: for the leader they are two records", holds=kept == 2, otherwise=kept)


def producer(lab: Lab, kind: str, more: dict[str, str]) -> Producer[str, str]:
    """One of the three."""
    common = {"bootstrap.servers": lab.cluster.bootstrap_servers, "acks": "all", "linger.ms": "5", "log_level": "0"}
    return Producer({**common, **SETTINGS[kind], **more}, on_failure=lambda _: None)


def fails(receipt: Receipt) -> bool:
    """Whether the record's send ended with an error."""
    try:
        receipt.result(60)
    except ClientError:
        return True
    return False


def count(lab: Lab, kind: str, prefix: str) -> Found:
    """Look for the records of one step in the kind's topic."""
    times = Counter(value for value in lab.read(TOPICS[kind]) if value.startswith(prefix))
    return Found(len(times), RECORDS - len(times), sum(1 for number in times.values() if number > 1))


def table(lab: Lab, found: dict[str, Found]) -> None:
    """What each kind of producer sent, and what is there."""
    lab.say(f"{'producer':<24}{'sent':>6}{'there':>7}{'lost':>6}{'twice':>7}")
    for kind, each in found.items():
        lab.say(f"{kind:<24}{RECORDS:>6}{each.there:>7}{each.lost:>6}{each.twice:>7}")


if __name__ == "__main__":
    sys.exit(run("At most once, at least once, once", body, settings=PATIENT))
