"""Lab: min.insync.replicas=2, and "not enough replicas".

acks=all means that every in-sync replica has the record. The in-sync set may shrink to one, so that
alone would be a promise about one disk. With min.insync.replicas=2 the leader refuses such records
while fewer are in sync: for these producers it is read-only.
"""

import sys

from lab import Lab, run

ALL = "--request-required-acks -1 --message-send-max-retries 0"


def body(lab: Lab) -> None:
    """Stop one follower, then the other, and try to write."""
    lab.step("1. Three replicas, of which two must be in sync for a write")
    lab.create("orders", "--partitions 1 --replication-factor 3 --config min.insync.replicas=2")
    lab.describe("orders")
    leader = lab.leader("orders")
    first, second = sorted({0, 1, 2} - {leader})
    lab.produce("orders", ["with-three"], ALL)

    lab.step(f"2. Broker {first} stops: two are left, and two are enough")
    lab.cluster.stop_broker(first)
    lab.until(lambda: lab.in_sync("orders", {leader, second}), "an in-sync set of two")
    lab.produce("orders", ["with-two"], ALL)
    reported = lab.barnabas("topics --describe --at-min-isr-partitions --topic orders --bootstrap-server $KAFKA")
    lab.check("the partition is at its minimum", holds="Partition: 0" in reported)

    lab.step(f"3. Broker {second} stops: the leader is alone")
    lab.cluster.stop_broker(second)
    lab.until(lambda: lab.in_sync("orders", {leader}), "an in-sync set of one")
    reported = lab.barnabas("topics --describe --under-min-isr-partitions --topic orders --bootstrap-server $KAFKA")
    lab.check("the partition is below its minimum", holds="Partition: 0" in reported)
    refused = lab.produce("orders", ["with-one"], ALL, may_fail=True)
    lab.check(
        "the leader refuses: NOT_ENOUGH_REPLICAS", holds="Not enough in-sync replicas" in refused, otherwise=refused
    )
    found = lab.read("orders")
    lab.check(f"what was acknowledged can be read still: {', '.join(found)}", holds=found == ["with-three", "with-two"])

    lab.step("4. Producers that the setting does not bind")
    lab.produce("orders", ["for-the-leader-alone"], "--request-required-acks 1")
    lab.check(
        "with acks=1 the leader takes the record: min.insync.replicas is about acks=all only",
        holds=b"for-the-leader-alone" in lab.log_bytes("orders", leader),
    )
    found = lab.read("orders")
    lab.check(f"but consumers are not shown it yet: {', '.join(found)}", holds=found == ["with-three", "with-two"])
    lab.say("Below the minimum the high watermark stands still: nothing is committed.")

    lab.step(f"5. Broker {second} comes back, and an in-sync set of two with it")
    lab.cluster.start_broker(second)
    lab.until(lambda: lab.in_sync("orders", {leader, second}), "two in sync again")
    lab.describe("orders")
    lab.produce("orders", ["with-two-again"], ALL)
    found = lab.read("orders")
    wanted = ["with-three", "with-two", "for-the-leader-alone", "with-two-again"]
    lab.check(
        "writes go on; the leader's record is committed now, the refused one is nowhere",
        holds=found == wanted,
        otherwise=found,
    )


if __name__ == "__main__":
    sys.exit(run("min.insync.replicas=2, and not enough replicas", body))
