"""Lab: a group shares the partitions of a topic: 12,435 customers, three partitions,
two consumers, then five.

How many records each consumer gets depends on who has two partitions, and on how the producer
spreads records without a key: one after the other, or a batch at a time, as Java's clients
do. Give the lab a file of your own: ``python customers_group.py customers.csv``. Without one
it makes 12,435 lines.
"""

import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab import Background, Lab, run

from barnabas.client import Producer

TOPIC, BATCHED = "customers", "customers-by-batches"
PARTITIONS = 3
CUSTOMERS = 12_435
KNOWN = (8_432, 4_002)
"""Two consumers' counts of an earlier run with such a file, often quoted."""
BATCH_BYTES = 16_384
"""``batch.size`` of Java's clients."""
RECORD_BYTES = 8
"""What a record takes beside its value, about."""
DRAWS = 1000
FIRST = ("Ada", "Barnabas", "Clara", "David", "Edith", "Felix", "Grace", "Hugo", "Ines", "Jonas", "Karin", "Leo")
LAST = ("Adams", "Brown", "Clark", "Davis", "Evans", "Fischer", "Garcia", "Huber", "Ivanov", "Jones", "Keller")
STREETS = ("Heather Plaza", "Noble Embers Ridge", "Blue Pioneer Bend", "Thunder Beacon Gate", "Clear Barn Highlands")
CITIES = ("Brownsville", "Caguas", "Chicago", "Los Angeles", "Miami", "New York", "San Antonio", "Tucson")


def body(lab: Lab) -> None:
    """Send the file in two ways to two consumers, then let five read it."""
    lines = customers()
    for topic in (TOPIC, BATCHED):
        lab.create(topic, f"--partitions {PARTITIONS} --replication-factor 1")

    lab.step(f"1. A topic of {PARTITIONS} partitions, and a group of two consumers")
    two = group_of(lab, TOPIC, "customer-group", [1, 2])
    shown = lab.barnabas(
        "consumer-groups --describe --members --verbose --group customer-group --bootstrap-server $KAFKA"
    )
    owned = sorted(re.findall(r"customers\(([\d,]+)\)", shown), key=len)
    lab.check(
        f"one consumer has partitions {owned[-1]}, the other one {owned[0]}",
        holds=sorted(",".join(owned)) == [",", ",", "0", "1", "2"],
        otherwise=owned,
    )

    lab.step(f"2. customers.csv, {len(lines):,} lines, without keys: each record to the next partition (round robin)")
    text = "".join(f"{line}\n" for line in lines)
    lab.barnabas(f"console-producer --topic {TOPIC} --bootstrap-server $KAFKA", stdin=text, source="customers.csv")
    even = counts(lab, two, len(lines))
    per_partition = [len(range(first, len(lines), PARTITIONS)) for first in range(PARTITIONS)]
    lab.check(
        f"each record was read once, and the split is the best that three partitions allow: {even[0]:,} and {even[1]:,}",
        holds=sum(even) == len(lines) and min(even) in per_partition,
        otherwise=even,
    )

    lab.step(
        f"3. The same file a batch at a time: {BATCH_BYTES:,} bytes to a partition, then to another one, drawn by lot"
    )
    lab.say("So Java's clients have sent records without a key since version 2.4.")
    two = group_of(lab, BATCHED, "customer-group-2", [1, 2])
    # For step 4: they must be there before the records.
    five = group_of(lab, BATCHED, "five", [0, 0, 1, 1, 1])
    sizes = send_by_batches(lab, lines)
    drawn = counts(lab, two, len(lines))
    lab.say(f"In the partitions: {', '.join(f'{size:,}' for size in sizes)}.")
    lab.check(
        f"each record was read once, {drawn[0]:,} and {drawn[1]:,}: a partition is never split",
        holds=sum(drawn) == len(lines) and bool(set(drawn) & set(sizes)),
        otherwise=(drawn, sizes),
    )
    explain(lab, lines)

    lab.step("4. The five consumers, which read the same topic in a group of their own")
    lab.barnabas("consumer-groups --describe --members --group five --bootstrap-server $KAFKA")
    found = counts(lab, five, len(lines))
    lab.check("with three partitions, two of five consumers are idle", holds=found[3:] == [0, 0], otherwise=found)
    lab.check("each record was read once", holds=sum(found) == len(lines), otherwise=found)


def explain(lab: Lab, lines: Sequence[str]) -> None:
    """Draw many times, and look where a known split is among the results."""
    shares = sorted([*by_batches(lines)].count(0) for _ in range(DRAWS))
    least, middle, most = (shares[DRAWS * part // 100] for part in (5, 50, 95))
    lab.say(f"A known run of such a file, with {sum(KNOWN):,} records, gave {KNOWN[0]:,} and {KNOWN[1]:,}.")
    lab.say(f"{DRAWS:,} draws: the consumer with one partition gets {middle:,} in the middle, and in nine of ten draws")
    lab.say(f"between {least:,} and {most:,}. Two partitions hold about twice as much as one, and seldom exactly.")
    lab.check(
        f"{KNOWN[1]:,} is one of these draws, and {len(lines) // PARTITIONS:,} another one",
        holds=least < KNOWN[1] < most,
    )


def by_batches(lines: Sequence[str]) -> Iterator[int]:
    """Each line's partition: the same until a batch is full, then another one."""
    partition, filled = random.randrange(PARTITIONS), 0
    for line in lines:
        size = len(line.encode()) + RECORD_BYTES
        if filled + size > BATCH_BYTES:
            partition, filled = (partition + random.randrange(1, PARTITIONS)) % PARTITIONS, 0
        filled += size
        yield partition


def send_by_batches(lab: Lab, lines: Sequence[str]) -> list[int]:
    """Send the lines so; how many each partition has got."""
    sizes = [0] * PARTITIONS
    with Producer({"bootstrap.servers": lab.cluster.bootstrap_servers}) as producer:
        for line, partition in zip(lines, by_batches(lines), strict=True):
            producer.send(BATCHED, line, partition=partition)
            sizes[partition] += 1
    return sizes


def customers() -> list[str]:
    """The lines of the file that was given, or as many made ones, the same in every run."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    draw = random.Random(CUSTOMERS)
    return [
        f"{number},{draw.choice(FIRST)},{draw.choice(LAST)},XXXXXXXXX,XXXXXXXXX,{draw.randrange(1, 10_000)} "
        f"{draw.choice(STREETS)},{draw.choice(CITIES)},PR,{draw.randrange(10_000, 100_000)}"
        for number in range(1, CUSTOMERS + 1)
    ]


def group_of(lab: Lab, topic: str, group: str, shares: list[int]) -> list[Background]:
    """Consumers of a group, once they share the partitions like this."""
    command = f"console-consumer --topic {topic} --group {group} --from-beginning --bootstrap-server $KAFKA"
    members = [lab.background(command) for _ in shares]
    lab.until(lambda: sorted(partitions_of_members(lab, group)) == shares, f"a group of {len(shares)} members")
    return members


def partitions_of_members(lab: Lab, group: str) -> list[int]:
    """How many partitions each member has; empty while the group is being made."""
    rows = lab.ask(f"consumer-groups --describe --members --group {group} --bootstrap-server $KAFKA").splitlines()
    last = [row.split()[-1] for row in rows if row.startswith(f"{group} ")]
    return [int(word) for word in last if word.isdigit()]


def counts(lab: Lab, members: list[Background], expected: int) -> list[int]:
    """Wait until all is read, stop the consumers with Ctrl-C, and show what each
    says at its end."""
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
