"""Rules about the ages of records, and about transactions that hang.

In Kafka: `retention.ms`, `segment.ms`, ``kafka-transactions find-hanging``.
"""

from collections.abc import Iterator

from barnabas.doctor.amounts import duration
from barnabas.doctor.evidence.cluster import MomentPart
from barnabas.doctor.evidence.configs import TopicConfigsPart, setting_number
from barnabas.doctor.evidence.records import HangingTransactionsPart, RecordTimesPart
from barnabas.doctor.finding import Danger, Finding, MendingCommand
from barnabas.doctor.rules.mending import change_topics
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.words import counted, some

__all__ = ["hanging_transactions", "records_beyond_retention", "records_in_the_future"]

_SHOWN = 3


@rule("records-in-the-future", Danger.COMING, "records are later than now, so that retention by time keeps them")
def records_in_the_future(times: RecordTimesPart, moment: MomentPart) -> Iterator[Finding]:
    """Records whose time is an hour or more after the reader's clock. A segment is deleted by its
    largest time."""
    if not times.future:
        return
    found = times.future
    topics = list(dict.fromkeys(each.topic for each in found))
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'partition has', 'partitions have')} records from the future, whose segments retention "
        f"by time keeps until then: {some(found)}.",
        tuple(
            f"{each}: offset {offset.offset} is {duration(offset.timestamp_ms - moment.now_ms)} after this clock"
            for each, offset in list(found.items())[:_SHOWN]
        ),
        (
            "Correct the clock of the producer. To refuse such records, or to take the broker's time instead:",
            *change_topics(dict.fromkeys(topics, "message.timestamp.type=LogAppendTime")),
            "Records that are there: barnabas delete-records removes them up to an offset.",
        ),
    )


@rule("records-beyond-retention", Danger.UNTIDY, "records are older than the retention of their topic, and stay")
def records_beyond_retention(times: RecordTimesPart, configs: TopicConfigsPart) -> Iterator[Finding]:
    """Records that `retention.ms` should have deleted: their segment is the active one, which is
    not deleted before `segment.ms` or `segment.bytes` ends it."""
    if not times.old:
        return
    found = times.old
    topics = {}
    lines = []
    for each, old in found.items():
        segment_ms = setting_number(configs.entries.get(each.topic, {}), "segment.ms")
        if segment_ms is not None and segment_ms > old.retention_ms:
            topics[each.topic] = f"segment.ms={max(old.retention_ms // 2, 60_000)}"
        lines.append(
            f"{each}: offsets {old.first} to {old.end - 1} are older than {duration(old.retention_ms)}"
            + ("" if segment_ms is None else f"; segment.ms is {duration(segment_ms)}")
        )
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'partition keeps', 'partitions keep')} records beyond retention.ms: {some(found)}.",
        tuple(lines[:_SHOWN]),
        change_topics(topics)
        or ("Look whether records from the future keep the segments, and whether the brokers' log dirs are online.",),
    )


@rule("hanging-transactions", Danger.UNAVAILABLE, "transactions are open that no coordinator will end")
def hanging_transactions(transactions: HangingTransactionsPart) -> Iterator[Finding]:
    """Consumers at read_committed wait before them, and compaction does too."""
    found = transactions.hanging
    if not found:
        return
    yield Finding(
        tuple(str(each.topic_partition) for each in found),
        f"{counted(len(found), 'transaction hangs', 'transactions hang')}, so that consumers at read_committed wait "
        f"before {'it' if len(found) == 1 else 'them'}: {some(each.topic_partition for each in found)}.",
        tuple(
            f"{each.topic_partition}: producer {each.producer.producer_id}, open since offset "
            f"{each.producer.transaction_start_offset}, unknown to its coordinator"
            for each in found[:_SHOWN]
        ),
        (
            *(
                MendingCommand.of(
                    *("transactions", "abort", "--topic", each.topic_partition.topic),
                    *("--partition", each.topic_partition.partition),
                    *("--start-offset", each.producer.transaction_start_offset),
                )
                for each in found[:_SHOWN]
            ),
            *((f"Likewise for {len(found) - _SHOWN} more.",) if len(found) > _SHOWN else ()),
        ),
    )
