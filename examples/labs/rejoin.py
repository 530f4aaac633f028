"""Lab: a failed replica rejoins, step by step.

A leader that is lost may have records at its end that no other replica has. When it comes back it
must not keep them: it takes its high watermark from disk, asks the new leader where its own last
leader epoch ended, cuts its log there, fetches what it missed, and is in sync again.
"""

import re
import sys
from pathlib import Path

from lab import PATIENT, Lab, run

SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": "500", "auto.leader.rebalance.enable": "false"}
"""The high watermarks are on disk soon. The broker that comes back does not get its leadership
back, in an epoch of its own, while the lab looks."""


def body(lab: Lab) -> None:
    """Let a leader fail with records of its own, look at its files, and start it again."""
    lab.step("1. Ten records on three replicas")
    lab.create("orders", "--partitions 1 --replication-factor 3")
    old = lab.leader("orders")
    followers = sorted({0, 1, 2} - {old})
    lab.produce("orders", [f"early-{number}" for number in range(10)], "--request-required-acks -1")
    checkpoint = lab.cluster.log_dir(old) / "replication-offset-checkpoint"
    lab.until(lambda: checkpoint.exists() and "orders 0 10" in checkpoint.read_text(), "the high watermark on disk")
    show_file(lab, checkpoint, f"broker {old} writes its high watermarks down from time to time; this one: offset 10")
    state = lab.state("orders", show=True)
    first_epoch = int(str(state["leader_epoch"]))

    lab.step(f"2. Broker {old}, the leader, gets records that the followers do not, and is lost")
    for broker in followers:
        lab.cluster.pause_broker(broker)
    own = f"--topic orders --bootstrap-server {lab.address(old)}"
    lab.barnabas(f"console-producer {own} --request-required-acks 1", stdin="on-its-way\n")
    lab.barnabas(f"console-producer {own} --request-required-acks 1", stdin="lost-1\nlost-2\nlost-3\n")
    lab.cluster.kill_broker(old)
    for broker in followers:
        lab.cluster.resume_broker(broker)
    lab.until(lambda: lab.in_sync("orders", set(followers)), "a new leader")
    state = lab.state("orders", show=True)
    new, epoch = int(str(state["leader"])), int(str(state["leader_epoch"]))
    lab.check(f"broker {new} leads, in leader epoch {epoch} after {first_epoch}", holds=epoch > first_epoch)
    lab.produce("orders", [f"late-{number}" for number in range(5)], "--request-required-acks -1")

    lab.step("3. Two histories")
    lab.say(f"Broker {old}, which is down:")
    ends = {old: show_log(lab, old)}
    lab.say(f"Broker {new}, the leader:")
    ends[new] = show_log(lab, new)
    epochs = "leader-epoch-checkpoint"
    show_file(lab, lab.replica_files("orders", new) / epochs, "which leader epoch began at which offset (last lines)")
    agreed = common_prefix(lab.log_bytes("orders", old), lab.log_bytes("orders", new))
    lab.check(
        f"the logs agree in their first {agreed} bytes and differ after them",
        holds=0 < agreed < len(lab.log_bytes("orders", old)) and ends[old] != ends[new],
    )
    lab.say(
        "(on-its-way had left the leader when the followers stood still; it is in both where one of them took it in.)"
    )
    start_of_new = next(first for first, _, written in ends[new] if written == epoch)

    lab.step(f"4. Broker {old} comes back")
    before = lab.cluster.broker_log(old).stat().st_size
    lab.cluster.start_broker(old)
    lab.until(lambda: lab.in_sync("orders", {0, 1, 2}), f"broker {old} in sync")
    said = lab.cluster.broker_log(old).read_text()[before:]
    lab.say("a. Its high watermark, from disk: 10. What lies above is uncertain.")
    lab.say(f"b. It asks where epoch {first_epoch} ended at the leader; the answer is {start_of_new}. It says itself:")
    cut = re.search(r"Truncating orders-0 .*?to (?:offset |the leader's end )?(\d+)[^\n]*", said)
    lab.check(
        f"   {cut[0] if cut else ''}", holds=cut is not None and int(cut[1]) == start_of_new, otherwise=said[-2000:]
    )
    lab.say("c. It fetches from there:")
    lab.until(lambda: len({lab.log_bytes("orders", broker) for broker in range(3)}) == 1, "equal logs")
    again = show_log(lab, old)
    lab.check(f"its log is the leader's now, batches of epoch {epoch} and all", holds=again == ends[new])
    lab.say("d. Its fetches have reached the leader's end, so the leader asks the controller to take it in:")
    state = lab.state("orders", show=True)
    lab.check(
        "three are in sync, in the same leader epoch",
        holds=sorted(state["isr"]) == [0, 1, 2] and state["leader_epoch"] == epoch,  # type: ignore[call-overload]
        otherwise=state,
    )
    values = lab.read("orders")
    lab.check(
        "consumers see early and late records; none of those that broker " + str(old) + " alone had",
        holds=[v for v in values if v != "on-its-way"]
        == [f"early-{n}" for n in range(10)] + [f"late-{n}" for n in range(5)],
        otherwise=values,
    )


def show_log(lab: Lab, broker: int) -> list[tuple[int, int, int]]:
    """The batches of a replica: first offset, last offset, leader epoch."""
    (path,) = lab.replica_files("orders", broker).glob("*.log")
    dump = lab.ask(f"dump-log --files {path}")
    found = re.findall(r"baseOffset: (\d+) lastOffset: (\d+) .*? partitionLeaderEpoch: (\d+)", dump)
    batches = [(int(first), int(last), int(epoch)) for first, last, epoch in found]
    lab.show(
        f"barnabas dump-log --files $DATA/{path.relative_to(lab.cluster.data_dir)}",
        "\n".join(
            f"baseOffset: {first} lastOffset: {last} ... partitionLeaderEpoch: {epoch} ..."
            for first, last, epoch in batches
        ),
    )
    return batches


def show_file(lab: Lab, path: Path, what: str) -> None:
    """A small file, whole, and what it says."""
    lab.show(f"cat $DATA/{path.relative_to(lab.cluster.data_dir)}", path.read_text(encoding="utf-8"))
    lab.say(f"({what})")


def common_prefix(one: bytes, other: bytes) -> int:
    """How many bytes are the same from the start."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


if __name__ == "__main__":
    sys.exit(
        run(
            "A failed replica rejoins",
            body,
            settings=PATIENT | SETTINGS,
        )
    )
