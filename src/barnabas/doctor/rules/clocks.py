"""Rules on clocks that differ.

In Kafka: retention by record timestamps, ``message.timestamp.after.max.ms``, time-outs of
transactions and delegation tokens all compare times of different machines. No API shows a
broker's clock. When a broker registers, its znode has its own time, and ZooKeeper adds the time of
the ensemble's leader; what the write took is between them.
"""

from collections.abc import Iterator

from barnabas.doctor.amounts import duration
from barnabas.doctor.evidence.clocks import ClocksPart
from barnabas.doctor.evidence.coordination import ZnodesPart
from barnabas.doctor.finding import Danger, Finding
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.words import some

__all__ = ["clocks_differ_from_here", "clocks_differed_at_registration"]

DIFFERS_MS = 5000
_MEND = "let a time service (chrony, ntpd) keep the clock of each machine; `timedatectl` shows whether one does"


@rule("broker-clocks", Danger.COMING, "brokers' clocks differed when they registered")
def clocks_differed_at_registration(znodes: ZnodesPart) -> Iterator[Finding]:
    """The clocks of brokers beside that of the coordination leader.

    A broker writes its znode up to a few seconds after it took the time, so only more than that
    counts."""
    found: dict[str, str] = {}
    for each in znodes.registrations:
        if each.timestamp_ms is None:
            continue
        ahead_ms = each.timestamp_ms - each.created_ms
        if abs(ahead_ms) > DIFFERS_MS:
            where = "ahead of" if ahead_ms > 0 else "behind"
            found[f"broker {each.broker_id}"] = (
                f"broker {each.broker_id}: {duration(abs(ahead_ms))} {where} the coordination server when it registered "
                "(timestamp and ctime of its znode; the write itself takes less than a second)"
            )
    if found:
        yield Finding(
            tuple(found),
            f"The clock of {some(found)} is not that of the coordination server: retention, time-outs of transactions "
            "and timestamps of records go wrong.",
            tuple(found.values()),
            (_MEND,),
        )


@rule("clocks-differ", Danger.COMING, "servers' clocks differ from each other, or from this machine's")
def clocks_differ_from_here(clocks: ClocksPart) -> Iterator[Finding]:
    """The clocks that can be read now."""
    found = {
        each.server: f"{each.server}: {duration(abs(each.offset_ms))} {'ahead' if each.offset_ms > 0 else 'behind'}, "
        f"within {duration(each.uncertainty_ms)} ({each.source})"
        for each in clocks.readings
        if abs(each.offset_ms) - each.uncertainty_ms > DIFFERS_MS
    }
    if found:
        yield Finding(
            tuple(found),
            f"The clock of {some(found)} differs from this machine's: retention, time-outs of transactions and "
            "timestamps of records go wrong.",
            tuple(found.values()),
            (_MEND,),
        )
