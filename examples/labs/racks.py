"""Lab: six brokers in two racks, and a whole rack is lost.

Replicas are placed evenly and over the racks: the brokers are put in an order that takes one rack
after the other (0, 3, 1, 4, 2, 5), leaders follow that order from a place drawn by lot, and
followers start further along it.
"""

import random
import sys

from lab import Lab, run

from barnabas.base.tasks import done_here
from barnabas.broker.topics.placement import assign_replicas

RACKS = ({0, 1, 2}, {3, 4, 5})
ORDER = [0, 3, 1, 4, 2, 5]
PARTITIONS = 10


def body(lab: Lab) -> None:
    """See the placement, lose a rack, and ask for the three reports that show it."""
    lab.step(f"1. {PARTITIONS} partitions, replication factor 3, on brokers 0, 1, 2 in one rack and 3, 4, 5 in another")
    lab.create("flights", f"--partitions {PARTITIONS} --replication-factor 3")
    lab.describe("flights")
    placed = lab.topic("flights")
    by_broker: dict[int, list[list[str]]] = {broker: [[], [], []] for broker in ORDER}
    for number, partition in placed.items():
        for rank, broker in enumerate(partition.replicas):
            by_broker[broker][rank].append(f"P{number}")
    lab.say(f"{'':<18}" + "".join(f"broker {broker:<5}" for broker in ORDER))
    for rank, name in enumerate(("leader", "first follower", "second follower")):
        lab.say(f"{name:<18}" + "".join(f"{' '.join(by_broker[broker][rank]):<12}" for broker in ORDER))
    leaders = [placed[number].replicas[0] for number in range(PARTITIONS)]
    start = ORDER.index(leaders[0])
    wanted = [ORDER[(start + number) % len(ORDER)] for number in range(PARTITIONS)]
    lab.check("leaders follow the order 0, 3, 1, 4, 2, 5", holds=leaders == wanted, otherwise=leaders)
    compare_with_the_simple_rule(lab)
    spread = all(set(each.replicas) & rack for each in placed.values() for rack in RACKS)
    lab.check("every partition has a replica in both racks", holds=spread)
    lab.say("For comparison a topic of six partitions without a second replica, and one that wants two in sync:")
    lab.create("unsafe", "--replica-assignment 0,1,2,3,4,5")
    lab.create("strict", "--replica-assignment 0:3:1,0:3:4 --config min.insync.replicas=2")
    reports = ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions")
    for report in reports:
        text = lab.barnabas(f"topics --describe --{report} --exclude-internal --bootstrap-server $KAFKA")
        lab.check(f"no {report.replace('-', ' ')}", holds=not text, otherwise=text)
    lab.produce("flights", [f"flight-{number}" for number in range(1000)], "--request-required-acks -1")

    lab.step("2. The rack of brokers 3, 4 and 5 is lost (kill -9)")
    for broker in (3, 4, 5):
        lab.cluster.kill_broker(broker)
    for topic in ("flights", "strict"):
        lab.until(
            lambda topic=topic: lab.everywhere(topic, lambda each: set(each.isr) <= RACKS[0]),
            f"in-sync sets of {topic} without it",
        )
    lab.until(
        lambda: lab.everywhere("unsafe", lambda each: (each.leader is None) == (each.replicas[0] in RACKS[1])),
        "news of the other topic",
    )
    found = lab.topic("flights")
    lab.check("every partition of flights has a leader", holds=all(each.leader in RACKS[0] for each in found.values()))
    lab.broker_ids()
    lines = {
        report: lab.barnabas(f"topics --describe --{report} --exclude-internal --bootstrap-server $KAFKA").splitlines()
        for report in reports
    }
    under, unavailable, below = (
        [" ".join(line.split()[1:4:2]) for line in lines[report]] for report in reports
    )  # as in "flights 0"
    lab.check(
        "under-replicated: all of flights", holds=sum(each.startswith("flights ") for each in under) == PARTITIONS
    )
    lost = [f"unsafe {number}" for number in (3, 4, 5)]
    lab.check(
        "unavailable: what had its only replica in the lost rack", holds=unavailable == lost, otherwise=unavailable
    )
    lab.check(
        "under-min-isr: those, and partition 1 of strict, which had one replica in the rack that is left",
        holds=sorted(below) == sorted([*lost, "strict 1"]),
        otherwise=below,
    )
    count = len(lab.read("flights"))
    lab.check(f"a lost rack leaves a copy of everything: {count:,} records", holds=count == 1000)

    lab.step("3. The rack is back")
    for broker in (3, 4, 5):
        lab.cluster.start_broker(broker)
    for topic in ("flights", "strict", "unsafe"):
        lab.until(
            lambda topic=topic: lab.everywhere(
                topic, lambda each: each.leader is not None and set(each.isr) == set(each.replicas)
            ),
            f"all of {topic} in sync",
        )
    for report in reports:
        text = lab.barnabas(f"topics --describe --{report} --exclude-internal --bootstrap-server $KAFKA")
        lab.check(f"no {report.replace('-', ' ')} again", holds=not text, otherwise=text)


def compare_with_the_simple_rule(lab: Lab) -> None:
    """The table as it is often drawn, followers one and two places further, beside what Kafka
    does with the same start."""
    racks: dict[int, str | None] = {broker: f"R{number}" for number, rack in enumerate(RACKS, 1) for broker in rack}
    simple = {n: tuple(ORDER[(n + place) % len(ORDER)] for place in range(3)) for n in range(PARTITIONS)}
    kafka = done_here(assign_replicas(racks, PARTITIONS, 3, random.Random(), fixed_start=0))
    lab.say(
        "Drawn by hand, the first follower stands one place after the leader and the second two. Kafka, begun at broker 0:"
    )
    lab.say(f"  {'':<5}{'by hand':<12}{'Kafka':<12}")
    for number in range(PARTITIONS):
        differs = "" if kafka[number] == simple[number] else "differs"
        shown = ["-".join(map(str, table[number])) for table in (simple, kafka)]
        lab.say(f"  P{number:<4}{shown[0]:<12}{shown[1]:<12}{differs}".rstrip())
    equal = [number for number in range(PARTITIONS) if kafka[number] == simple[number]]
    lab.check("both agree on P0 to P5, one round of the leaders", holds=equal == list(range(6)), otherwise=equal)
    lab.say(
        "In the next round Kafka moves the followers one place further, so that the partitions which one broker leads"
    )
    lab.say(
        "have their followers on different brokers: when it dies, more than two others share its work. Followers that"
    )
    lab.say("would put both copies into one rack are skipped. A real topic begins at a place drawn by lot.")


if __name__ == "__main__":
    sys.exit(run("Two racks, and one of them is lost", body, brokers=6, racks=2))
