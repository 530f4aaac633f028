"""Lab: a group shares the partitions of a topic: 12,435 customers, three partitions, two consumers, then five.

Give it a file of your own: ``python customers_group.py customers.csv``. Without one it makes 12,435 lines.
"""

import random
import re
import sys
from pathlib import Path

from lab import Background, Lab, run

TOPIC = "customers"
GROUP = "customer-group"
PARTITIONS = 3
CUSTOMERS = 12_435
FIRST = ("Ada", "Barnabas", "Clara", "David", "Edith", "Felix", "Grace", "Hugo", "Ines", "Jonas", "Karin", "Leo")
LAST = ("Adams", "Brown", "Clark", "Davis", "Evans", "Fischer", "Garcia", "Huber", "Ivanov", "Jones", "Keller")
CITIES = ("Brownsville", "Caguas", "Chicago", "Los Angeles", "Miami", "New York", "San Antonio", "Tucson")
STICKY = "org.apache.kafka.clients.producer.UniformStickyPartitioner"


def body(lab: Lab) -> None:
    """Send the file in two ways, and read it by two and by five consumers."""
    lines = customers()
    lab.step(f"1. A topic of {PARTITIONS} partitions, and a group of two consumers")
    lab.create(TOPIC, f"--partitions {PARTITIONS} --replication-factor 1")
    two = [join(lab) for _ in range(2)]
    lab.until(lambda: sorted(partitions_of_members(lab)) == [1, 2], "a group of two members")
    lab.barnabas(f"consumer-groups --describe --members --verbose --group {GROUP} --bootstrap-server $KAFKA")
    lab.check("one consumer has two partitions, the other one", holds=True)

    lab.step(f"2. customers.csv, {len(lines):,} lines, without keys: each record to the next partition (round robin)")
    send(lab, lines, "")
    even = counts(lab, two, len(lines))
    per_partition = [len(range(first, len(lines), PARTITIONS)) for first in range(PARTITIONS)]
    lab.check(
        f"each record was read once, and the split is the best that three partitions allow: {even[0]:,} and {even[1]:,}",
        holds=sum(even) == len(lines) and min(even) in per_partition,
        otherwise=even,
    )

    lab.step("3. The same file as Java's clients send it today, and five consumers")
    lab.barnabas(f"consumer-groups --delete --group {GROUP} --bootstrap-server $KAFKA")
    lab.barnabas(f"topics --delete --topic {TOPIC} --bootstrap-server $KAFKA")
    lab.until(lambda: not lab.has_topic(TOPIC), "the topic's end")
    lab.create(TOPIC, f"--partitions {PARTITIONS} --replication-factor 1")
    five = [join(lab) for _ in range(5)]
    lab.until(lambda: sorted(partitions_of_members(lab)) == [0, 0, 1, 1, 1], "a group of five members")
    lab.barnabas(f"consumer-groups --describe --members --group {GROUP} --bootstrap-server $KAFKA")
    send(lab, lines, f"--producer-property partitioner.class={STICKY}")
    sticky = counts(lab, five, len(lines))
    lab.check(
        "with three partitions, two of five consumers are idle", holds=sticky.count(0) >= 2, otherwise=sorted(sticky)
    )
    lab.check("each record was read once", holds=sum(sticky) == len(lines), otherwise=sticky)
    lab.say(
        "Here records without a key stay with a partition until their batch is full, and go on to one that is drawn"
    )
    lab.say(
        "by lot. So these counts differ from run to run, and two consumers do not always share a file as two to one."
    )


def customers() -> list[str]:
    """The lines of the file that was given, or as many made ones, the same in every run."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1]).read_text().splitlines()
    draw = random.Random(CUSTOMERS)
    return [
        f"{number},{draw.choice(FIRST)},{draw.choice(LAST)},{draw.choice(CITIES)}" for number in range(1, CUSTOMERS + 1)
    ]


def join(lab: Lab) -> Background:
    """One more consumer of the group."""
    return lab.background(
        f"console-consumer --topic {TOPIC} --group {GROUP} --from-beginning --bootstrap-server $KAFKA"
    )


def partitions_of_members(lab: Lab) -> list[int]:
    """How many partitions each member has; empty while the group is being made."""
    text = lab.ask(f"consumer-groups --describe --members --group {GROUP} --bootstrap-server $KAFKA")
    return [
        int(line.split()[-1]) for line in text.splitlines() if line.startswith(GROUP) and line.split()[-1].isdigit()
    ]


def send(lab: Lab, lines: list[str], options: str) -> None:
    """The file, as ``< customers.csv``."""
    command = f"console-producer --topic {TOPIC} --bootstrap-server $KAFKA {options}".rstrip()
    lab.barnabas(command, stdin="".join(f"{line}\n" for line in lines), source="customers.csv")


def counts(lab: Lab, members: list[Background], expected: int) -> list[int]:
    """Wait until all is read, stop the consumers with Ctrl-C, and show what each says at its end."""
    lab.until(
        lambda: sum(member.output().count("\n") for member in members) >= expected, "all records at the consumers"
    )
    found = []
    for member in members:
        last = member.stop().rstrip().rpartition("\n")[2]
        lab.show("^C", last)
        found.append(int(re.fullmatch(r"Processed a total of (\d+) messages", last)[1]))  # type: ignore[index]
    return sorted(found, reverse=True)


if __name__ == "__main__":
    sys.exit(run("A group shares partitions: the customers", body))
