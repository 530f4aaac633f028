"""DescribeProducers through dispatch and codec, on real logs."""

from pathlib import Path

import pytest

from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.broker import START_MS, DataPath, Wire, batch


@pytest.fixture
def broker(tmp_path: Path) -> DataPath:
    return DataPath(tmp_path)


def produce(wire: Wire, records: bytearray) -> None:
    partition = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=1, timeout_ms=500, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )
    assert wire.ask(request, 9).responses[0].partition_responses[0].error_code == ErrorCode.NONE


def describe(wire: Wire, topic: str, *partitions: int) -> list[PartitionResponse]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(partitions))])
    return wire.ask(request, 0).topics[0].partitions


def test_each_producer_is_described_with_its_last_batch(broker: DataPath) -> None:
    """Epoch, last sequence, time; -1 for the coordinator and the transaction that
    there are none of."""
    broker.lead("t")
    wire = broker.connect()
    assert describe(wire, "t", 0)[0].active_producers == []
    produce(wire, batch(b"no producer id"))
    produce(wire, batch(b"a", b"b", producer_id=7, producer_epoch=2, base_sequence=0))
    produce(wire, batch(b"c", producer_id=7, producer_epoch=2, base_sequence=2))
    produce(wire, batch(b"d", producer_id=9, producer_epoch=0, base_sequence=0, timestamp_ms=START_MS + 5))
    found = describe(wire, "t", 0)[0]
    assert (found.partition_index, found.error_code) == (0, ErrorCode.NONE)
    assert sorted(found.active_producers, key=lambda producer: producer.producer_id) == [
        ProducerState(
            producer_id=7,
            producer_epoch=2,
            last_sequence=2,
            last_timestamp=START_MS,
            coordinator_epoch=-1,
            current_txn_start_offset=-1,
        ),
        ProducerState(
            producer_id=9,
            producer_epoch=0,
            last_sequence=0,
            last_timestamp=START_MS + 5,
            coordinator_epoch=-1,
            current_txn_start_offset=-1,
        ),
    ]


def test_a_follower_describes_the_producers_of_its_own_log(broker: DataPath) -> None:
    """As Apache's brokers do, so that replicas can be compared."""
    broker.lead("t", replicas=(0, 1), isr=(0, 1))
    wire = broker.connect()
    produce(wire, batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    broker.lead("t", epoch=1, leader=1, replicas=(0, 1), isr=(0, 1))
    assert [producer.producer_id for producer in describe(wire, "t", 0)[0].active_producers] == [7]


@pytest.mark.parametrize(
    ("topic", "code"),
    [("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("not/a/name", ErrorCode.INVALID_TOPIC_EXCEPTION)],
)
def test_what_is_not_there_is_an_error_of_each_partition(broker: DataPath, topic: str, code: ErrorCode) -> None:
    """Topics and names."""
    assert [found.error_code for found in describe(broker.connect(), topic, 0, 1)] == [code, code]


def test_a_wrong_name_is_said_once_however_many_partitions_are_asked_for(broker: DataPath) -> None:
    """The message has the name: a long one for each of 100,000 partitions would be 400 MB."""
    found = describe(broker.connect(), "n" * 30_000, 0, 1, 2)
    assert [each.error_code for each in found] == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 3
    assert "n" * 3_000 in (found[0].error_message or "")
    assert [each.error_message for each in found[1:]] == [None, None]
