"""Reads times of records, and transactions that hang.

In Kafka: `Admin.listOffsets`, `describeProducers`, `listTransactions`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.active_producers import ActiveProducer, producers_in_part
from barnabas.client.admin.hanging_transactions import HangingTransaction, partitions_to_be_marked
from barnabas.client.admin.offsets import EARLIEST, FoundOffset, offsets_of_leader
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.cluster.each_broker import ask_each
from barnabas.client.errors import ClientError
from barnabas.doctor.evidence.cluster import MomentPart, TopicsPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart, TopicConfigsPart, setting_number
from barnabas.doctor.evidence.part import Absent, Gap
from barnabas.doctor.evidence.records import FUTURE_MS, HangingTransactionsPart, OldRecords, RecordTimesPart
from barnabas.doctor.reading.registration import ClusterReading, absent_for, reads

__all__ = ["read_hanging_transactions", "read_record_times"]

_TOPIC_RIGHT = "Describe on the topic"
_READ_RIGHT = "Read on the topic"
_CHECK_INTERVAL_MS = 300_000
"""`log.retention.check.interval.ms`, where it cannot be read."""
_MOST_TRANSACTION_MS = 900_000
"""`transaction.max.timeout.ms`, where it cannot be read."""
_AT_ONCE = 500


@reads(right=_TOPIC_RIGHT)
def read_record_times(reading: ClusterReading) -> RecordTimesPart:
    """The records in the future, and those that are older than the retention of their topic,
    where its segments may last for longer than that.

    Partitions without a leader are left out: they have a rule of their own."""
    now_ms = reading.require(MomentPart).now_ms
    leaders = {each: part.leader for each, part in reading.require(TopicsPart).partitions() if part.leader is not None}
    gaps: dict[str, Absent] = {}
    late = _found(reading, leaders, dict.fromkeys(leaders, now_ms + FUTURE_MS), gaps)
    retention = _retention_ms(reading, leaders)
    margin_ms = 2 * _check_interval_ms(reading)
    young = _found(reading, leaders, {each: now_ms - ms - margin_ms for each, ms in retention.items()}, gaps)
    firsts = _found(reading, leaders, dict.fromkeys(young, EARLIEST), gaps)
    old = {
        each: OldRecords(first.offset, young[each].offset, retention[each])
        for each, first in firsts.items()
        if each in young and young[each].offset > first.offset
    }
    return RecordTimesPart(
        future={each: offset for each, offset in late.items() if offset.offset >= 0},
        old=old,
        gaps=tuple(Gap(subject, absent) for subject, absent in gaps.items()),
    )


def _found(
    reading: ClusterReading,
    leaders: Mapping[TopicPartition, int],
    wanted: Mapping[TopicPartition, int],
    gaps: dict[str, Absent],
) -> dict[TopicPartition, FoundOffset]:
    """The offsets, from the leaders that are known already; ``gaps`` gets what is not found."""
    by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for each, at_ms in wanted.items():
        by_leader[leaders[each]][each] = at_ms

    def ask(connection: AdminConnection, leader: int) -> dict[TopicPartition, FoundOffset | ClientError]:
        return offsets_of_leader(connection, leader, by_leader[leader])

    found = {}
    for leader, answers in ask_each(reading.connection, by_leader, ask).items():
        if isinstance(answers, ClientError):
            gaps.setdefault(f"broker {leader}", absent_for(answers, _TOPIC_RIGHT))
            continue
        for each, answer in answers.items():
            if isinstance(answer, ClientError):
                gaps.setdefault(f"topic {each.topic}", absent_for(answer, _TOPIC_RIGHT))
            else:
                found[each] = answer
    return found


def _retention_ms(reading: ClusterReading, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The retention of those whose topic deletes by time, with segments that may last longer.

    A topic that cannot be read is a gap of its configurations."""
    configs = reading.get(TopicConfigsPart)
    if isinstance(configs, Absent):
        return {}
    found = {}
    for each in partitions:
        entries = configs.entries.get(each.topic, {})
        policy = entries.get("cleanup.policy")
        retention_ms = setting_number(entries, "retention.ms")
        segment_ms = setting_number(entries, "segment.ms")
        if policy is None or "delete" not in (policy.value or "") or retention_ms is None or segment_ms is None:
            continue
        if 0 <= retention_ms < segment_ms:
            found[each] = retention_ms
    return found


def _check_interval_ms(reading: ClusterReading) -> int:
    return _broker_number(reading, "log.retention.check.interval.ms", _CHECK_INTERVAL_MS)


def _broker_number(reading: ClusterReading, name: str, default: int) -> int:
    """The largest value of the brokers."""
    configs = reading.get(BrokerConfigsPart)
    if isinstance(configs, Absent):
        return default
    values = [setting_number(entries, name) for entries in configs.entries.values()]
    return max((value for value in values if value is not None), default=default)


@reads(right=_READ_RIGHT)
def read_hanging_transactions(reading: ClusterReading) -> HangingTransactionsPart:
    """Open transactions whose last record is older than any transaction may last, and which their
    coordinators do not know."""
    older_than_ms = _broker_number(reading, "transaction.max.timeout.ms", _MOST_TRANSACTION_MS)
    latest_ms = reading.require(MomentPart).now_ms - older_than_ms
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for each, part in reading.require(TopicsPart).partitions():
        if part.leader is not None:
            by_leader[part.leader].append(each)

    def ask(connection: AdminConnection, leader: int) -> dict[TopicPartition, list[ActiveProducer] | ClientError]:
        answers: dict[TopicPartition, list[ActiveProducer] | ClientError] = {}
        for first in range(0, len(by_leader[leader]), _AT_ONCE):
            answers |= producers_in_part(connection, leader, by_leader[leader][first : first + _AT_ONCE])
        return answers

    gaps: dict[str, Absent] = {}
    candidates = []
    for leader, answers in ask_each(reading.connection, by_leader, ask).items():
        if isinstance(answers, ClientError):
            gaps[f"broker {leader}"] = absent_for(answers, _READ_RIGHT)
            continue
        for each, producers in answers.items():
            if isinstance(producers, ClientError):
                gaps.setdefault(f"topic {each.topic}", absent_for(producers, _READ_RIGHT))
                continue
            candidates += [
                HangingTransaction(each, producer)
                for producer in producers
                if producer.transaction_start_offset is not None and producer.last_timestamp_ms < latest_ms
            ]
    expected = partitions_to_be_marked(reading.connection, {each.producer.producer_id for each in candidates})
    return HangingTransactionsPart(
        hanging=tuple(
            each for each in candidates if each.topic_partition not in expected.get(each.producer.producer_id, ())
        ),
        gaps=tuple(Gap(subject, absent) for subject, absent in gaps.items()),
    )
