"""Lab: the coordinator is killed in the middle of a commit.

A transaction is many records, in partitions that many brokers lead, seen together or not at all.
One broker, the producer's coordinator, decides. It writes PrepareCommit to ``__transaction_state``,
then a marker to each partition, then CompleteCommit. The next coordinator reads that topic, and
completes what was decided.
"""

import re
import sys
from collections import Counter
from pathlib import Path

from lab import Lab, run

from barnabas.client import Consumer, Producer, Record, TopicPartition

SETTINGS = {"zookeeper.session.timeout.ms": "6000", "min.insync.replicas": "2"}
PATIENCE_S = 60.0
ORDERS, BATCH = 100, 25


def body(lab: Lab) -> None:
    """Commit, commit and abort with a kill in the middle, and copy a topic through one."""
    lab.step("1. A transaction in two topics")
    for topic in ("orders", "payments"):
        lab.create(topic, "--partitions 1 --replication-factor 3")
    with transactional(lab, "till") as producer:
        send(producer, "first")
        lab.check("before its commit a consumer sees nothing", holds=seen(lab) == ([], []), otherwise=seen(lab))
        producer.commit_transaction(PATIENCE_S)
        expect(lab, ["first"], "after its commit a consumer sees both records")

        lab.step("2. The coordinator is killed (kill -9) in the middle of a commit")
        send(producer, "second")
        with lab.cluster.killing_coordinator("till") as kill:
            producer.commit_transaction(PATIENCE_S)
        lab.say(f"Broker {kill.broker_id} was the coordinator. What it left in its log of __transaction_state:")
        states = states_at(lab, kill.broker_id)
        lab.check("its last word is the decision", holds=states[-1] == "state=PrepareCommit", otherwise=states)
        left = markers(lab, kill.broker_id)
        lab.check(
            "on its disk no partition has the marker: one each, of the first transaction",
            holds=[len(each) for each in left] == [1, 1],
            otherwise=left,
        )
        expect(lab, ["first", "second"], "yet the commit has returned, and both records are there")
        leader = lab.leader("orders")
        lab.say(f"The markers were written by the next coordinator, as the log of broker {leader} says:")
        epochs = markers(lab, leader, show=True)[0]
        lab.check(
            f"its epoch is higher: {epochs[1]} after {epochs[0]}, so late markers of the dead one would be refused",
            holds=len(epochs) == 2 and epochs[0] < epochs[1],
            otherwise=epochs,
        )

        lab.step("3. The same in the middle of an abort")
        come_back(lab, kill.broker_id)
        send(producer, "third")
        with lab.cluster.killing_coordinator("till", during="abort") as kill:
            producer.abort_transaction(PATIENCE_S)
        states = states_at(lab, kill.broker_id)
        lab.check("the decision is the other one", holds=states[-1] == "state=PrepareAbort", otherwise=states)
        send(producer, "fourth")
        producer.commit_transaction(PATIENCE_S)
        expect(lab, ["first", "second", "fourth"], "a consumer does not see what was aborted")
        lab.say("The aborted record is in the log; the marker behind it hides it:")
        markers(lab, lab.leader("orders"), show=True)
        come_back(lab, kill.broker_id)

    lab.step("4. A program that reads orders and writes invoices")
    for topic in ("incoming", "invoices", "careless"):
        lab.create(topic, "--partitions 1 --replication-factor 3")
    with Producer(servers(lab)) as producer:
        for number in range(ORDERS):
            producer.send("incoming", str(number))
    bill(lab)
    counts = Counter(lab.read("invoices"))
    lab.check(
        f"its coordinator was killed in a commit, and each of {ORDERS} orders has one invoice",
        holds=counts == Counter(f"invoice {number}" for number in range(ORDERS)),
        otherwise=counts,
    )
    bill_without_transactions(lab)
    counts = Counter(lab.read("careless"))
    twice = sum(1 for count in counts.values() if count == 2)
    lab.check(
        f"without transactions {twice} have two: the program ended between its records and its offset",
        holds=len(counts) == ORDERS and twice == BATCH,
        otherwise=counts,
    )


def servers(lab: Lab) -> dict[str, str]:
    """What every client is given."""
    return {"bootstrap.servers": lab.cluster.bootstrap_servers, "reconnect.backoff.max.ms": "200", "log_level": "0"}


def transactional(lab: Lab, name: str) -> Producer[str, str]:
    """A producer with a transactional id."""
    producer = Producer({**servers(lab), "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    return producer


def send(producer: Producer[str, str], value: str) -> None:
    """Begin a transaction with a record in each topic, which the brokers have when this returns."""
    producer.begin_transaction()
    for topic in ("orders", "payments"):
        producer.send(topic, value).result(PATIENCE_S)


def seen(lab: Lab) -> tuple[list[str], list[str]]:
    """What consumers at read_committed get."""
    return lab.read("orders"), lab.read("payments")


def expect(lab: Lab, values: list[str], claim: str) -> None:
    """A coordinator answers a client when it has decided; the markers follow."""
    lab.until(lambda: seen(lab) == (values, values), f"{values} in both topics")
    found = seen(lab)
    lab.check(claim, holds=found == (values, values), otherwise=found)


def states_at(lab: Lab, broker: int | None) -> list[str]:
    """The states of the transaction in a dead coordinator's log, shown."""
    assert broker is not None
    (log,) = [path for path in lab.cluster.log_dir(broker).glob("__transaction_state-*/*.log") if path.stat().st_size]
    return grep(lab, "--transaction-log-decoder", log, r"state=\w*", show=True)


def markers(lab: Lab, broker: int | None, *, show: bool = False) -> list[list[int]]:
    """The epochs of the coordinators that wrote the markers, in a broker's copy of each topic."""
    assert broker is not None
    found = []
    for topic in ("orders", "payments"):
        (log,) = lab.replica_files(topic, broker).glob("*.log")
        lines = grep(lab, "--print-data-log", log, r"payload:.*\|endTxnMarker:.*", show=show and topic == "orders")
        found.append([int(line.rpartition(" ")[2]) for line in lines if line.startswith("endTxnMarker")])
    return found


def grep(lab: Lab, option: str, log: Path, pattern: str, *, show: bool) -> list[str]:
    """What grep finds in a dump of a log."""
    command = f"dump-log {option} --files $DATA/{log.relative_to(lab.cluster.data_dir)}"
    found = re.findall(pattern.replace("\\|", "|"), lab.ask(command))
    if show:
        lab.show(f"barnabas {command} | grep -o '{pattern}'", "\n".join(found))
    return found


def come_back(lab: Lab, broker: int | None) -> None:
    """Start a broker that was killed, and wait until it has what it missed."""
    assert broker is not None
    lab.cluster.start_broker(broker)
    for topic in ("orders", "payments", "__transaction_state"):
        lab.until(
            lambda topic=topic: lab.everywhere(topic, lambda each: set(each.isr) == {0, 1, 2}),
            f"every replica of {topic} in sync",
        )


def orders(lab: Lab, group: str) -> Consumer[str, str]:
    """A member of a group, at the offset that the group has committed."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    consumer = Consumer({**servers(lab), **settings})
    consumer.subscribe(["incoming"])
    return consumer


def next_offset(records: list[Record[str, str]]) -> dict[TopicPartition, int]:
    """Where a program that has processed these goes on."""
    return {TopicPartition("incoming", 0): records[-1].offset + 1}


def bill(lab: Lab) -> None:
    """Invoices and offsets in transactions. The coordinator is killed in the second one."""
    with orders(lab, "billing") as consumer, transactional(lab, "billing") as producer:
        for start in range(0, ORDERS, BATCH):
            records = whole_batch(consumer)
            producer.begin_transaction()
            for record in records:
                producer.send("invoices", f"invoice {record.value}")
            producer.send_offsets_to_transaction(next_offset(records), consumer.group_metadata(), PATIENCE_S)
            if start == BATCH:
                with lab.cluster.killing_coordinator("billing", restart=True) as kill:
                    producer.commit_transaction(PATIENCE_S)
                lab.say(f"Broker {kill.broker_id} was killed in the commit of the second {BATCH} invoices.")
            else:
                producer.commit_transaction(PATIENCE_S)


def bill_without_transactions(lab: Lab) -> None:
    """The same, but invoices first and the offset then. The program ends once between them."""
    ends = True
    done = 0
    while done < ORDERS:
        with orders(lab, "careless") as consumer, Producer(servers(lab)) as producer:
            while done < ORDERS:
                records = whole_batch(consumer)
                for record in records:
                    producer.send("careless", f"invoice {record.value}")
                producer.flush(PATIENCE_S)
                if ends:
                    ends = False
                    break
                consumer.commit(next_offset(records))
                done += len(records)


def whole_batch(consumer: Consumer[str, str]) -> list[Record[str, str]]:
    """As many records as asked for."""
    records: list[Record[str, str]] = []
    while len(records) < BATCH:
        records += consumer.consume(BATCH - len(records), timeout_s=1.0)
    return records


if __name__ == "__main__":
    sys.exit(run("The coordinator is killed in a commit", body, settings=SETTINGS, faults=True))
