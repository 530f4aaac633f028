"""Lab: replication factor 3, and what it means on disk.

Every partition is a folder in the log dirs of three brokers. Followers copy the leader's
bytes, so the three are equal.
"""

import hashlib
import sys

from lab import Lab, run

LINES = 3000
OFFSET = 7


def body(lab: Lab) -> None:
    """Look at the replicas of one topic."""
    lab.step("1. A topic of three partitions, three replicas each")
    lab.create("topic1", "--partitions 3 --replication-factor 3")
    lab.describe("topic1")
    partitions = lab.topic("topic1")
    lab.say("The first replica of each partition is its preferred leader; Isr lists the replicas that are in sync.")
    leaders = sorted(str(each.leader) for each in partitions.values())
    lab.check("each of the three brokers leads one partition", holds=leaders == ["0", "1", "2"], otherwise=leaders)

    lab.step(f"2. {LINES:,} records, acknowledged by all in-sync replicas (acks -1)")
    lab.produce("topic1", [f"customer {number}" for number in range(LINES)], "--request-required-acks -1")
    lab.barnabas("get-offsets --topic topic1 --bootstrap-server $KAFKA")

    lab.step("3. The folders, one for each replica")
    copies: dict[int, set[str]] = {}
    for partition in sorted(partitions):
        for broker in range(3):
            folder = lab.replica_files("topic1", broker, partition)
            data = lab.log_bytes("topic1", broker, partition)
            digest = hashlib.sha256(data).hexdigest()[:16]
            copies.setdefault(partition, set()).add(digest)
            lab.say(f"  {folder.parent.name + '/' + folder.name:<24} {len(data):>7,} bytes in .log, sha256 {digest}")
    lab.check(
        "the three replicas of each partition have equal bytes", holds=[len(c) for c in copies.values()] == [1] * 3
    )

    lab.step("4. One record log, looked into on two brokers")
    first, second = (next(lab.replica_files("topic1", broker, 0).glob("*.log")) for broker in (0, 1))
    dumps = [
        lab.barnabas(f"dump-log --files {path}".replace(str(lab.cluster.data_dir), "$DATA")) for path in (first, second)
    ]
    listed = [dump.split("\n", 1)[1] for dump in dumps]  # the first line names the file
    lab.check("dump-log prints the same batches, offsets and CRCs for both", holds=listed[0] == listed[1])
    lab.say("partitionLeaderEpoch says under which leader a batch was written: 0 until leadership moves.")
    lab.step("5. A record's address: topic, partition, offset")
    found = [record_at(lab, partition, OFFSET) for partition in (0, 1, 1)]
    lab.check(
        f"offset {OFFSET} is in every partition, and names another record in each: {found[0]}, {found[1]}",
        holds=found[0] != found[1] and all(each.startswith("customer ") for each in found),
        otherwise=found,
    )
    lab.check("with its partition it names the same record every time", holds=found[1] == found[2], otherwise=found)
    total = len(lab.read("topic1"))
    lab.check(f"a consumer reads every record once: {total:,}", holds=total == LINES)


def record_at(lab: Lab, partition: int, offset: int) -> str:
    """The record that a consumer reads there."""
    where = f"--partition {partition} --offset {offset} --max-messages 1"
    return lab.barnabas(f"console-consumer --topic topic1 {where} --bootstrap-server $KAFKA").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(run("Three replicas of everything", body))
