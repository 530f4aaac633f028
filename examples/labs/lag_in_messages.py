"""Lab: replica.lag.max.messages, the old rule for followers that are behind.

A follower leaves the in-sync set when it was not caught up for replica.lag.time.max.ms. Older
versions had a second rule: a follower also left when it was more than replica.lag.max.messages
records behind. The lab sets both, the time so long that it plays no part.
"""

import sys
import time

from lab import PATIENT, Lab, run

MOST = 100


def body(lab: Lab) -> None:
    """Let one follower stand still, and count how far behind it may be."""
    lab.step("1. Two replicas in sync")
    # The controller writes the in-sync set, so it must not stand still.
    leader = int(str(lab.znode("/controller")["brokerid"]))
    follower = 1 - leader
    lab.create("orders", f"--replica-assignment {leader}:{follower}")
    lab.describe("orders")
    own = f"--topic orders --bootstrap-server {lab.address(leader)}"

    lab.step(
        f"2. Broker {follower} stands still (kill -STOP), and the leader takes half as many records as it may miss"
    )
    lab.cluster.pause_broker(follower)
    lines = "".join(f"order-{number}\n" for number in range(MOST // 2))
    lab.barnabas(f"console-producer {own} --request-required-acks 1", stdin=lines)
    behind = lab.log_bytes("orders", leader).count(b"order-") - lab.log_bytes("orders", follower).count(b"order-")
    lab.check(
        f"it is {behind} records behind, and in sync",
        holds=0 < behind <= MOST // 2 and lab.in_sync("orders", {leader, follower}),
        otherwise=behind,
    )

    lab.step(f"3. {2 * MOST} records more")
    began = time.monotonic()
    lines = "".join(f"burst-{number}\n" for number in range(2 * MOST))
    lab.barnabas(f"console-producer {own} --request-required-acks 1", stdin=lines)
    lab.until(lambda: lab.in_sync("orders", {leader}), "an in-sync set without the follower")
    took_s = time.monotonic() - began
    lab.describe("orders")
    lab.check(
        f"the follower is out after {took_s:.0f} s, before replica.lag.time.max.ms (60 s)",
        holds=took_s < 60,
        otherwise=took_s,
    )

    lab.step(f"4. Broker {follower} continues (kill -CONT)")
    lab.cluster.resume_broker(follower)
    lab.until(lambda: lab.in_sync("orders", {leader, follower}), "an in-sync set of two")
    lab.describe("orders")
    found = len(lab.read("orders"))
    wanted = MOST // 2 + 2 * MOST
    lab.check(f"it copied what it missed, and is back: {found} records", holds=found == wanted, otherwise=found)
    lab.say(
        "Kafka removed the rule (KIP-16): a burst of records removes followers that keep up, and the rate of a topic is hard "
        "to predict. Barnabas still applies the rule if it is set."
    )


if __name__ == "__main__":
    settings = {**PATIENT, "replica.lag.max.messages": str(MOST)}
    sys.exit(run("How many records may a follower miss?", body, brokers=2, settings=settings))
