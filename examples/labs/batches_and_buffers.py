"""Lab: what an async producer gathers, how long it waits, and what it does when its buffer is full.

``batch.num.messages`` or ``queue.buffering.max.ms``, whichever comes first, sends a batch. Longer
batches bring more records a second, and each of them waits longer. What waits is bounded: by
``queue.buffering.max.messages`` and ``buffer.memory``; then ``queue.enqueue.timeout.ms``, or
today's ``max.block.ms``, says what a send does.
"""

import sys
import threading
import time

from lab import PATIENT, CheckFailed, Lab, run

from barnabas.client import BufferFullError, DroppedError, Producer

MANY = 20_000
FEW = 300
WAITS_MS = (0, 5, 50, 500)
FULL = 1000
BAR = 40
NEVER_MS = "60000"


def body(lab: Lab) -> None:
    """See when batches leave, what that costs and brings, and what a full buffer does."""
    lab.step("1. By number or by time, whichever comes first")
    lab.create("batches", "--partitions 1 --replication-factor 3")
    by_number = arrival_s(lab, count=100, number="100", wait_ms=NEVER_MS)
    lab.check(
        f"the 100th of batch.num.messages=100 sends all, long before queue.buffering.max.ms={NEVER_MS}: {by_number:.2f} s",
        holds=by_number < 30,
    )
    by_time = arrival_s(lab, count=50, number="10000", wait_ms="1000")
    lab.check(
        f"50 of batch.num.messages=10000 leave after queue.buffering.max.ms=1000: {by_time:.2f} s",
        holds=by_time >= 1,
        otherwise=by_time,
    )

    lab.step("2. Throughput against latency")
    lab.say(
        f"For each queue.buffering.max.ms: {MANY:,} records as fast as they go, then 20 records one after the other."
    )
    figures = {wait_ms: measure(lab, wait_ms) for wait_ms in WAITS_MS}
    alone, taken_ms = measure_sync(lab)
    lab.say(
        f"sync, each record acknowledged before the next is sent: {alone:,.0f} records a second, {taken_ms:.1f} ms each"
    )
    plot(lab, "records a second", {wait: each[0] for wait, each in figures.items()}, "{:,.0f}")
    plot(
        lab, "records a batch, as the broker stored them", {wait: each[1] for wait, each in figures.items()}, "{:,.0f}"
    )
    plot(lab, "milliseconds from send to acknowledgement", {wait: each[2] for wait, each in figures.items()}, "{:,.1f}")
    best = max(each[0] for each in figures.values())
    lab.check(
        f"async brings {best / alone:.0f} times as many records a second as sync",
        holds=best > 2 * alone,
        otherwise=(figures, alone),
    )
    lab.check(
        "and costs latency: a record waits as long as it may", holds=figures[500][2] > 450 > taken_ms, otherwise=figures
    )
    lab.check("who waits longer sends larger batches", holds=figures[50][1] > figures[0][1], otherwise=figures)

    lab.step("3. The buffer is full, for no broker answers (kill -STOP)")
    lab.create("full", "--replica-assignment 0:1:2")
    for broker in range(3):
        lab.cluster.pause_broker(broker)
    full_buffers(lab)


def arrival_s(lab: Lab, *, count: int, number: str, wait_ms: str) -> float:
    """How long it takes from the first send to the last acknowledgement."""
    properties = {"producer.type": "async", "batch.num.messages": number, "queue.buffering.max.ms": wait_ms}
    with producer(lab, properties) as each:
        each.send("batches", "first").result(90) if float(wait_ms) < float(NEVER_MS) else None
        began = time.monotonic()
        receipts = [each.send("batches", f"{n}") for n in range(count)]
        for receipt in receipts:
            receipt.result(90)
        return time.monotonic() - began


def measure(lab: Lab, wait_ms: int) -> tuple[float, float, float]:
    """Records a second, records a batch, and the median of milliseconds to the acknowledgement."""
    topic = f"wait-{wait_ms}"
    lab.create(topic, "--partitions 1 --replication-factor 1")
    with producer(lab, {"queue.buffering.max.ms": str(wait_ms)}) as each:
        each.send(topic, "warm").result(30)
        began = time.monotonic()
        for number in range(MANY):
            each.send(topic, f"record {number}")
        each.flush()
        a_second = MANY / (time.monotonic() - began)
        taken = []
        for _ in range(20 if wait_ms < 100 else 4):
            began = time.monotonic()
            each.send(topic, "one").result(30)
            taken.append((time.monotonic() - began) * 1000)
    leader = lab.leader(topic)
    batches = lab.ask(f"dump-log --files {lab.replica_files(topic, leader)}/{0:020}.log").count("baseOffset:")
    return a_second, (MANY + len(taken) + 1) / batches, sorted(taken)[len(taken) // 2]


def measure_sync(lab: Lab) -> tuple[float, float]:
    """Records a second and milliseconds to the acknowledgement, where each send waits for it."""
    lab.create("sync", "--partitions 1 --replication-factor 1")
    with producer(lab, {"producer.type": "sync"}) as each:
        each.send("sync", "warm")
        taken = []
        for number in range(FEW):
            began = time.monotonic()
            each.send("sync", f"record {number}")
            taken.append(time.monotonic() - began)
    return FEW / sum(taken), sorted(taken)[FEW // 2] * 1000


def plot(lab: Lab, title: str, figures: dict[int, float], form: str) -> None:
    """One bar for each setting."""
    lab.say(f"{title}:")
    most = max(figures.values())
    for wait_ms, figure in figures.items():
        lab.say(f"  {wait_ms:>4} ms  {'#' * max(1, round(figure / most * BAR)):<{BAR}}  {form.format(figure)}")


def full_buffers(lab: Lab) -> None:
    """Fill one buffer after the other; the brokers stand still."""
    small = {"queue.buffering.max.messages": str(FULL), "queue.buffering.max.ms": "0", "message.timeout.ms": "120000"}
    producers = []

    drops = producer(lab, {**small, "queue.enqueue.timeout.ms": "0"})
    producers.append(drops)
    for number in range(FULL + 50):
        drops.send("full", f"drops-{number}")
    lab.check(
        f"queue.enqueue.timeout.ms=0: {FULL:,} wait, and what comes after them is dropped at once and counted",
        holds=drops.dropped == 50,
        otherwise=drops.dropped,
    )

    waits = producer(lab, {**small, "queue.enqueue.timeout.ms": "500"})
    producers.append(waits)
    for number in range(FULL):
        waits.send("full", f"waits-{number}")
    began = time.monotonic()
    error: object = None
    try:
        waits.send("full", "one-more").result(0)
    except DroppedError as dropped:
        error = dropped
    waited_s = time.monotonic() - began
    lab.check(
        f"queue.enqueue.timeout.ms=500: one more waits for {waited_s:.1f} s, and is dropped",
        holds=waited_s >= 0.5 and error is not None,
        otherwise=(waited_s, error),
    )

    fails = producer(lab, {"buffer.memory": str(32 << 20), "max.block.ms": "500", "message.timeout.ms": "120000"})
    producers.append(fails)
    taken = 0
    began = time.monotonic()
    try:
        for _ in range(200):
            fails.send("full", "x" * 500_000)
            taken += 1
    except BufferFullError as full:
        error = full
    lab.check(
        f"buffer.memory=33554432 takes {taken} records of 500,000 bytes; then a send waits for max.block.ms=500 and fails: {error}",
        holds=60 <= taken <= 70,
        otherwise=taken,
    )

    blocks = producer(lab, {**small, "queue.enqueue.timeout.ms": "-1"})
    producers.append(blocks)
    for number in range(FULL):
        blocks.send("full", f"blocks-{number}")
    blocked = threading.Thread(target=blocks.send, args=("full", "blocks-last"), daemon=True)
    blocked.start()
    blocked.join(2)
    lab.check("queue.enqueue.timeout.ms=-1: one more waits and waits", holds=blocked.is_alive())
    lab.say("The brokers continue (kill -CONT).")
    for broker in range(3):
        lab.cluster.resume_broker(broker)
    blocked.join(60)
    if blocked.is_alive():
        raise CheckFailed("the send went on waiting after the brokers were back")
    for each in producers:
        each.close()
    values = lab.read("full")
    kept = {kind: sum(value.startswith(f"{kind}-") for value in values) for kind in ("drops", "waits", "blocks")}
    lab.check(
        "what had room arrived, and of those that block nothing was dropped",
        holds=kept == {"drops": FULL, "waits": FULL, "blocks": FULL + 1},
        otherwise=kept,
    )


def producer(lab: Lab, properties: dict[str, str]) -> Producer[str, str]:
    """A producer that says nothing while no broker answers."""
    return Producer({"bootstrap.servers": lab.cluster.bootstrap_servers, "log_level": "0", **properties})


if __name__ == "__main__":
    sys.exit(run("Batches and buffers of an async producer", body, settings=PATIENT))
