"""Transactions with one broker from the bytes of their requests: what clients send
late, twice or for others."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from barnabas.broker.metadata.features import TRANSACTION_VERSION
from barnabas.testing import Cluster
from barnabas.wire.kafka.errors import ErrorCode as E
from barnabas.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.wire.kafka.records.batch_header import read_headers
from support.broker import batch
from support.raw import ask
from support.waiting import eventually

GROUP_TRANSACTIONS = 1
LEAVES_ADDING, WITH_ABORTABLE, WITHOUT_ABORTABLE = 12, 11, 9


class Broker:
    """One broker, asked by hand."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.port = int(cluster.bootstrap_servers.rpartition(":")[2])
        self._topics = count()

    def topic(self) -> str:
        """A new topic with two partitions."""
        name = f"t{next(self._topics)}"
        self._cluster.create_topic(name, 2)
        return name

    def producer(self, transactional_id: str, topic: str) -> "Producer":
        made = Producer(self, transactional_id, topic)
        made.initialise()
        return made

    def ended(self, topic: str) -> tuple[int, int]:
        """What a reader of committed records learns of partition 0: how many transactions are
        aborted, and the last stable offset."""
        aborted: set[tuple[int, int]] = set()
        offset, stable = 0, 1
        while offset < stable:
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                isolation_level=1,
                topics=[FetchTopic(topic=topic, partitions=[wanted])],
            )
            (data,) = ask(self.port, request, 11).responses[0].partitions
            aborted.update((each.producer_id, each.first_offset) for each in data.aborted_transactions or [])
            stable = data.last_stable_offset
            headers = [header for _, header in read_headers(bytes(data.records or b""))]
            offset = headers[-1].last_offset + 1 if headers else stable
        return len(aborted), stable

    def group_offset(self, group: str, topic: str) -> tuple[E, int]:
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
            require_stable=True,
        )
        (found,) = ask(self.port, request, 7).topics[0].partitions
        return E(found.error_code), found.committed_offset


class Producer:
    """A transactional producer that sends what the test asks for, right or wrong."""

    def __init__(self, broker: Broker, transactional_id: str, topic: str) -> None:
        self._port = broker.port
        self.transactional_id = transactional_id
        self.topic = topic
        self.producer_id = self.epoch = -1

    def initialise(self) -> None:
        def is_initialised() -> bool:
            found = ask(self._port, FindCoordinatorRequest(key=self.transactional_id, key_type=GROUP_TRANSACTIONS), 3)
            if found.error_code:
                return False
            request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
            answer = ask(self._port, request, 4)
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return not answer.error_code

        eventually(is_initialised, what="the producer has an id")

    def add(self, *partitions: int) -> E:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=list(partitions))],
        )

        def send() -> E:
            answer = ask(self._port, request, 3)
            codes = {
                E(each.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            (code,) = codes
            return code

        return _repeated(send)

    def produce(
        self,
        sequence: int,
        partition: int = 0,
        *,
        version: int = WITH_ABORTABLE,
        transactional_id: str | None = None,
        epoch: int | None = None,
        producer_id: int | None = None,
    ) -> E:
        records = batch(
            b"v",
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = ProduceRequest(
            transactional_id=transactional_id or self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=self.topic, partition_data=[PartitionProduceData(index=partition, records=records)]
                )
            ],
        )
        return E(ask(self._port, request, version).responses[0].partition_responses[0].error_code)

    def end_with_an_epoch(self, *, is_commit: bool = True) -> E:
        """As a client of version 2, which gets the epoch of its next transaction."""
        answer = ask(self._port, self._ending(is_commit), 5)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return E(answer.error_code)

    def end(self, *, is_commit: bool = True) -> E:
        request = self._ending(is_commit)
        return _repeated(lambda: E(ask(self._port, request, 3).error_code))

    def _ending(self, is_commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )

    def add_offsets(self, group: str) -> E:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return _repeated(lambda: E(ask(self._port, request, 3).error_code))

    def commit_offset(self, group: str, offset: int, version: int = 4) -> E:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=self.topic,
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
                )
            ],
        )
        return _repeated(lambda: E(ask(self._port, request, version).topics[0].partitions[0].error_code))


def _repeated(send: Callable[[], E]) -> E:
    """The error after those that pass: a transaction ends after its producer was answered."""
    found = E.CONCURRENT_TRANSACTIONS

    def is_decided() -> bool:
        nonlocal found
        found = send()
        return found not in (
            E.CONCURRENT_TRANSACTIONS,
            E.NOT_COORDINATOR,
            E.COORDINATOR_NOT_AVAILABLE,
            E.COORDINATOR_LOAD_IN_PROGRESS,
        )

    eventually(is_decided, what="the coordinator has decided")
    return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Cluster(brokers=1) as cluster:
        yield Broker(cluster)


@pytest.fixture(scope="module")
def broker_of_version_2() -> Iterator[Broker]:
    """One of a cluster that has finalized transaction.version 2."""
    with Cluster(brokers=1, features={TRANSACTION_VERSION: 2}) as cluster:
        yield Broker(cluster)


def ends_at(broker: Broker, topic: str, offset: int) -> None:
    eventually(lambda: broker.ended(topic)[1] == offset, what="all transactions are ended")


def test_a_committed_transaction_is_read_with_its_offsets(broker: Broker) -> None:
    """All of it, after its end."""
    producer = broker.producer("whole", broker.topic())
    assert producer.add(0) == E.NONE
    assert producer.produce(0) == E.NONE
    assert producer.add_offsets("g-whole") == E.NONE
    assert producer.commit_offset("g-whole", 17) == E.NONE
    assert broker.ended(producer.topic) == (0, 0)
    assert broker.group_offset("g-whole", producer.topic) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert producer.end() == E.NONE
    ends_at(broker, producer.topic, 2)
    eventually(lambda: broker.group_offset("g-whole", producer.topic) == (E.NONE, 17), what="the offset counts")


@pytest.mark.parametrize(
    ("version", "expected"),
    [(WITH_ABORTABLE, E.TRANSACTION_ABORTABLE), (WITHOUT_ABORTABLE, E.INVALID_TXN_STATE)],
)
def test_a_batch_that_comes_after_the_end_of_its_transaction_begins_none(
    broker: Broker, version: int, expected: E
) -> None:
    """Neither when there is no other transaction, nor when the next one has another partition."""
    producer = broker.producer(f"late-{version}", broker.topic())
    assert producer.add(0) == E.NONE
    assert producer.produce(0) == E.NONE
    assert producer.end() == E.NONE
    ends_at(broker, producer.topic, 2)
    assert producer.produce(1, version=version) == expected
    assert producer.add(1) == E.NONE
    assert producer.produce(1, version=version) == expected
    assert producer.produce(0, partition=1, version=version) == E.NONE
    assert broker.ended(producer.topic) == (0, 2)
    assert producer.end(is_commit=False) == E.NONE


def test_offsets_that_come_after_the_end_of_their_transaction_begin_none(broker: Broker) -> None:
    """Nor do those of a group that was not added to the transaction."""
    producer = broker.producer("late-offsets", broker.topic())
    assert producer.add_offsets("g-late") == E.NONE
    assert producer.commit_offset("g-late", 1) == E.NONE
    assert producer.end() == E.NONE
    eventually(lambda: broker.group_offset("g-late", producer.topic) == (E.NONE, 1), what="the offset counts")
    assert producer.commit_offset("g-late", 2) == E.TRANSACTION_ABORTABLE
    assert producer.commit_offset("g-late", 2, version=3) == E.INVALID_TXN_STATE
    assert broker.group_offset("g-late", producer.topic) == (E.NONE, 1)


def test_offsets_of_a_group_without_a_name_are_refused(broker: Broker) -> None:
    """Only plain commits may have it, for clients of old."""
    producer = broker.producer("nameless-group", broker.topic())
    assert producer.add_offsets("") == E.NONE
    assert producer.commit_offset("", 1) == E.INVALID_GROUP_ID


def test_a_producer_is_fenced_by_its_successor(broker: Broker) -> None:
    """Whose initialisation aborts what the predecessor had begun."""
    old = broker.producer("fenced", broker.topic())
    assert old.add(0) == E.NONE
    assert old.produce(0) == E.NONE
    new = broker.producer("fenced", old.topic)
    assert (new.producer_id, new.epoch > old.epoch) == (old.producer_id, True)
    assert old.produce(1) == E.INVALID_PRODUCER_EPOCH
    assert new.add(0) == E.NONE
    assert new.produce(0) == E.NONE
    assert old.produce(1) == E.INVALID_PRODUCER_EPOCH
    assert new.end() == E.NONE
    ends_at(broker, old.topic, 4)
    assert broker.ended(old.topic) == (1, 4)


def test_ids_and_epochs_of_others_do_not_lead_into_a_transaction(broker: Broker) -> None:
    """The owner goes on undisturbed."""
    owner = broker.producer("owner", broker.topic())
    stranger = broker.producer("stranger", owner.topic)
    assert owner.add(0) == E.NONE
    assert stranger.produce(0) == E.TRANSACTION_ABORTABLE
    assert stranger.produce(0, producer_id=owner.producer_id) == E.INVALID_PRODUCER_ID_MAPPING
    assert stranger.produce(0, transactional_id="owner") == E.INVALID_PRODUCER_ID_MAPPING
    assert stranger.produce(0, transactional_id="unknown") == E.INVALID_PRODUCER_ID_MAPPING
    claimed = {"transactional_id": "owner", "producer_id": owner.producer_id}
    assert stranger.produce(0, **claimed, epoch=owner.epoch + 1) == E.INVALID_PRODUCER_EPOCH
    assert owner.produce(0) == E.NONE
    assert owner.produce(1) == E.NONE
    assert owner.end() == E.NONE
    ends_at(broker, owner.topic, 3)


def test_the_marker_of_an_old_coordinator_ends_no_transaction(broker: Broker) -> None:
    """A coordinator that lost its partition may still send some."""
    producer = broker.producer("two-coordinators", broker.topic())
    for is_commit in (True, False):
        assert producer.add(0) == E.NONE
        assert producer.produce(0 if is_commit else 1) == E.NONE
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    transaction_result=True,
                    topics=[WritableTxnMarkerTopic(name=producer.topic, partition_indexes=[0])],
                    coordinator_epoch=-1,
                )
            ]
        )
        answer = ask(broker.port, request, 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == E.INVALID_REQUEST
        assert producer.end(is_commit=is_commit) == E.NONE
    ends_at(broker, producer.topic, 4)
    assert broker.ended(producer.topic) == (1, 4)


def test_with_version_1_a_late_batch_joins_the_next_transaction_of_its_partition(broker: Broker) -> None:
    """The protocol cannot tell it from one of that transaction (KIP-890)."""
    producer = broker.producer("late-1", broker.topic())
    assert producer.add(0) == E.NONE
    assert producer.produce(0) == E.NONE
    assert producer.end(is_commit=False) == E.NONE
    assert producer.add(0) == E.NONE
    assert producer.produce(1) == E.NONE  # sent in the transaction before, and delayed
    assert producer.end() == E.NONE
    ends_at(broker, producer.topic, 4)


def test_with_version_2_a_late_batch_joins_no_transaction(broker_of_version_2: Broker) -> None:
    """Each transaction has an epoch of its own. Brokers add the partitions."""
    broker = broker_of_version_2
    producer = broker.producer("late-2", broker.topic())
    assert _repeated(lambda: producer.produce(0, version=LEAVES_ADDING)) == E.NONE
    before = producer.epoch
    assert producer.end_with_an_epoch(is_commit=False) == E.NONE
    assert producer.epoch > before
    late = {"version": LEAVES_ADDING, "epoch": before}
    assert _repeated(lambda: producer.produce(1, **late)) == E.INVALID_PRODUCER_EPOCH
    assert _repeated(lambda: producer.produce(0, version=LEAVES_ADDING)) == E.NONE
    assert producer.produce(1, **late) == E.INVALID_PRODUCER_EPOCH
    assert producer.end_with_an_epoch() == E.NONE
    ends_at(broker, producer.topic, 4)
    assert broker.ended(producer.topic) == (1, 4)


def test_with_version_2_brokers_add_the_partition_of_a_group(broker_of_version_2: Broker) -> None:
    """The offsets count when the transaction is committed; late ones join no other."""
    broker = broker_of_version_2
    producer = broker.producer("offsets-2", broker.topic())
    late = broker.producer("offsets-2", producer.topic)
    producer.producer_id, producer.epoch = late.producer_id, late.epoch
    assert producer.commit_offset("g-2", 5, version=5) == E.NONE
    assert producer.end_with_an_epoch() == E.NONE
    eventually(lambda: broker.group_offset("g-2", producer.topic) == (E.NONE, 5), what="the offset counts")
    assert late.commit_offset("g-2", 6, version=5) == E.INVALID_PRODUCER_EPOCH
    assert producer.commit_offset("g-2", 7, version=5) == E.NONE
    assert producer.end_with_an_epoch(is_commit=False) == E.NONE
    eventually(lambda: broker.group_offset("g-2", producer.topic) == (E.NONE, 5), what="the offset counts")


@pytest.fixture(params=[1, 0])
def downgraded(request: pytest.FixtureRequest) -> Iterator[tuple[Broker, Callable[[], int]]]:
    """A broker of version 2, and what takes the cluster to a lower level and returns it."""
    with Cluster(brokers=1, features={TRANSACTION_VERSION: 2}) as cluster:
        broker = Broker(cluster)

        def downgrade() -> int:
            update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=request.param, upgrade_type=2)
            answer = ask(broker.port, UpdateFeaturesRequest(feature_updates=[update]), 1)
            assert (answer.error_code, answer.results[0].error_code) == (E.NONE, E.NONE)
            return int(request.param)

        yield broker, downgrade


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_that_a_downgrade_meets_ends_whole(
    downgraded: tuple[Broker, Callable[[], int]], is_commit: bool
) -> None:
    """Its client still speaks version 2, and gets its next epoch. It goes on at level 1. At level 0
    what it sends without adding partitions is refused: nothing of it is written."""
    broker, downgrade = downgraded
    producer = broker.producer("down", broker.topic())
    assert _repeated(lambda: producer.produce(0, version=LEAVES_ADDING)) == E.NONE
    assert producer.commit_offset("g-down", 5, version=5) == E.NONE
    level = downgrade()
    epoch = producer.epoch
    assert producer.end_with_an_epoch(is_commit=is_commit) == E.NONE
    ends_at(broker, producer.topic, 2)
    assert broker.ended(producer.topic) == (0 if is_commit else 1, 2)
    assert producer.epoch == epoch + 1  # sequences begin at 0 again
    committed = (E.NONE, 5 if is_commit else -1)
    eventually(lambda: broker.group_offset("g-down", producer.topic) == committed, what="the group has its offset")
    if level:
        assert _repeated(lambda: producer.produce(0, version=LEAVES_ADDING)) == E.NONE
        assert producer.end_with_an_epoch() == E.NONE
        ends_at(broker, producer.topic, 4)
        assert producer.epoch == epoch + 2
        return
    assert _repeated(lambda: producer.produce(0, version=LEAVES_ADDING)) == E.TRANSACTION_ABORTABLE
    assert producer.commit_offset("g-down", 6, version=5) == E.TRANSACTION_ABORTABLE
    assert broker.ended(producer.topic) == (0 if is_commit else 1, 2)
    assert broker.group_offset("g-down", producer.topic) == committed


def test_a_producer_goes_on_in_version_1_behind_a_downgrade(
    downgraded: tuple[Broker, Callable[[], int]],
) -> None:
    """When it has connected again: with a new epoch, and partitions that it adds. Its older one
    is fenced."""
    broker, downgrade = downgraded
    producer = broker.producer("again", broker.topic())
    assert _repeated(lambda: producer.produce(0, version=LEAVES_ADDING)) == E.NONE
    downgrade()
    again = broker.producer("again", producer.topic)  # aborts what is open
    assert again.epoch > producer.epoch
    assert producer.end_with_an_epoch() == E.PRODUCER_FENCED
    assert again.add(0) == E.NONE
    assert again.produce(0) == E.NONE
    assert again.end() == E.NONE
    ends_at(broker, producer.topic, 4)
    assert broker.ended(producer.topic) == (1, 4)
