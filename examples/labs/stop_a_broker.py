"""Lab: broker 0 stops and comes back.

Its ephemeral znode goes, the controller gives its partitions to other in-sync replicas, and clients
go on. Back again, it fetches what it missed, is in sync, and gets its leadership back when
preferred leaders are elected.
"""

import sys

from lab import Lab, run


def body(lab: Lab) -> None:
    """Stop broker 0, use the topic, start it again."""
    lab.step("1. Three brokers, a topic with three replicas")
    lab.create("topic1", "--partitions 3 --replication-factor 3")
    before = lab.broker_ids()
    lab.check("/brokers/ids holds all three", holds=before == "[0, 1, 2]", otherwise=before)
    shown = {lab.describe("topic1"), *(describe_at(lab, broker) for broker in range(3))}
    lab.check(
        "each of the three brokers, asked alone, describes the topic like this", holds=len(shown) == 1, otherwise=shown
    )
    led = next(number for number, each in lab.topic("topic1").items() if each.leader == 0)
    epoch = lab.state("topic1", led, show=True)["leader_epoch"]
    lab.produce("topic1", [f"early {number}" for number in range(300)])

    lab.step("2. Broker 0 stops (kill with TERM)")
    lab.cluster.stop_broker(0)
    during = lab.broker_ids()
    lab.check("its znode is gone: " + during, holds=during == "[1, 2]", otherwise=during)
    lab.until(lambda: all(lab.in_sync("topic1", {1, 2}, n) for n in range(3)), "an in-sync set without broker 0")
    lab.describe("topic1")
    state = lab.state("topic1", led, show=True)
    lab.check(
        f"partition {led} is led by broker {state['leader']} now, in a later leader epoch",
        holds=state["leader"] in (1, 2) and int(str(state["leader_epoch"])) > int(str(epoch)),
        otherwise=state,
    )
    lab.barnabas("topics --describe --under-replicated-partitions --topic topic1 --bootstrap-server $KAFKA")
    lab.say("Each partition still has its three Replicas; Isr says which of them are in sync.")

    lab.step("3. Clients continue without it")
    lab.produce("topic1", [f"late {number}" for number in range(300)])
    count = len(lab.read("topic1"))
    lab.check(f"all {count} records are there, those from before too", holds=count == 600)

    lab.step("4. Broker 0 comes back")
    lab.cluster.start_broker(0)
    lab.until(lambda: all(lab.in_sync("topic1", {0, 1, 2}, n) for n in range(3)), "broker 0 in sync")
    lab.broker_ids()
    lab.describe("topic1")
    fetched = sum(lab.log_bytes("topic1", 0, n).count(b"late ") for n in range(3))
    lab.check("broker 0 fetched what it missed: 300 records", holds=fetched == 300, otherwise=fetched)
    equal = all(len({lab.log_bytes("topic1", broker, n) for broker in range(3)}) == 1 for n in range(3))
    lab.check("its logs have the bytes of the others'", holds=equal)

    lab.step("5. Back to the preferred leaders")
    lab.say("By itself this happens every leader.imbalance.check.interval.seconds (300); now it is asked for.")
    command = "leader-election --election-type preferred --all-topic-partitions --bootstrap-server $KAFKA"
    lab.barnabas(command)
    lab.until(lambda: lab.leader("topic1", led) == 0, "broker 0 as a leader")
    lab.describe("topic1")
    later = lab.state("topic1", led, show=True)
    lab.check(
        f"broker 0 leads partition {led} again, in a later leader epoch still",
        holds=later["leader"] == 0 and int(str(later["leader_epoch"])) > int(str(state["leader_epoch"])),
        otherwise=later,
    )


def describe_at(lab: Lab, broker: int) -> str:
    """What one of the brokers says of the topic."""
    return lab.ask(f"topics --describe --topic topic1 --bootstrap-server {lab.address(broker)}").strip("\n")


if __name__ == "__main__":
    sys.exit(run("Broker 0 stops, and comes back", body))
