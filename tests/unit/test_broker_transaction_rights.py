"""Which rights transactions need: what is refused without them, in every version, and that no
transaction, offset or marker comes of it."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.security.acls import AclOperation as Op
from barnabas.security.acls import AclPermissionType, PatternType, ResourceType
from barnabas.wire.kafka.errors import ErrorCode as E
from barnabas.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support.acl_entries import Right, auth_helper, on_cluster, on_group, on_topic, on_transactional_id
from support.slicing import thread_at_once
from support.transaction_broker import TransactionBroker
from support.transaction_coordinators import name_coordinators

APIS = (
    *("add_offsets_to_txn", "add_partitions_to_txn", "describe_transactions", "end_txn", "init_producer_id"),
    *("list_transactions", "txn_offset_commit", "write_txn_markers"),
)
OFFSETS_PARTITION = 3  # of group "g"
MAY_USE_T = on_transactional_id("t", Op.WRITE)
NOT_MINE = [*on_transactional_id("other", Op.WRITE), *on_transactional_id("t", Op.DESCRIBE)]
"""Rights that are not for writing with the transactional id t."""
REFUSED_ID = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class SecuredBroker(TransactionBroker):
    """A broker with both coordinators, whose client has some rights."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.groups = GroupService(
            self.config,
            self.replicas,
            self.purgatory,
            self.metadata,
            clock=self.clock,
            call_later=self.timers,
            rng=self.rng,
            spawn=self.spawned.append,
            runner=Runner(self.clock, self.timers, thread_at_once),
            verifier=self.coordinators.verifier,
        )
        self.groups.start()
        self.replicas.on_leadership(self.groups.leadership_changed)
        self.metadata.on_update(self.groups.metadata_changed)
        self.know("b", 0)
        name_coordinators(self.metadata, 0, 0, 0)
        self.load()
        self.lead(OFFSETS_TOPIC, OFFSETS_PARTITION)
        self.lead("a")
        self.work()

    def let(self, *rights: Iterable[Right]) -> None:
        """The client may do this and nothing else."""
        self.serve(
            APIS,
            transactions=self.transactions,
            groups=self.groups,
            producer_ids=self.ids,
            auth_helper=auth_helper(right for some in rights for right in some),
        )
        self.client = self.connect()

    def offsets_end(self) -> int:
        """The end of the partition with the group's offsets."""
        return self.replicas.partition(TopicPartition(OFFSETS_TOPIC, OFFSETS_PARTITION)).log.log_end_offset


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    made = SecuredBroker(tmp_path)
    yield made
    made.work()


def producer(broker: SecuredBroker, transactional_id: str = "t") -> dict[str, Any]:
    """The fields of a producer that has its id already."""
    sender = broker.producer(transactional_id)
    return {
        "transactional_id": transactional_id,
        "producer_id": sender.producer_id,
        "producer_epoch": sender.producer_epoch,
    }


class TestInitProducerId:
    """WRITE on the transactional id, or IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""

    def ask(self, broker: SecuredBroker, version: int, transactional_id: str | None = None) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer = broker.client.ask(request, version)
        return answer.error_code, answer.producer_id

    @pytest.mark.parametrize("version", range(6))
    def test_a_transactional_id_needs_the_right_to_write(self, broker: SecuredBroker, version: int) -> None:
        """Without it there is no id, and none is stored."""
        broker.let(NOT_MINE, on_cluster(Op.IDEMPOTENT_WRITE), on_topic("a", Op.WRITE))
        assert self.ask(broker, version, "t") == (REFUSED_ID, -1)
        assert broker.transactions.coordinator.find("t") is None
        broker.let(MAY_USE_T)
        assert self.ask(broker, version, "t")[0] == E.NONE

    @pytest.mark.parametrize("version", range(6))
    def test_an_idempotent_producer_needs_a_right_to_write_somewhere(self, broker: SecuredBroker, version: int) -> None:
        """On the cluster, or on one topic (KIP-679)."""
        broker.let(MAY_USE_T, on_topic("a", Op.READ), on_cluster(Op.CLUSTER_ACTION))
        taken = broker.ids.next_id
        assert self.ask(broker, version) == (E.CLUSTER_AUTHORIZATION_FAILED, -1)
        assert broker.ids.next_id == taken
        for rights in (on_cluster(Op.IDEMPOTENT_WRITE), on_topic("a", Op.WRITE)):
            broker.let(rights)
            assert self.ask(broker, version)[0] == E.NONE

    def test_topics_under_a_denied_prefix_give_no_right(self, broker: SecuredBroker) -> None:
        """The right on one of them is denied by the prefix."""
        denied = Right(Op.WRITE, ResourceType.TOPIC, "a", AclPermissionType.DENY, PatternType.PREFIXED)
        broker.let(on_topic("ab", Op.WRITE), [denied])
        assert self.ask(broker, 4)[0] == E.CLUSTER_AUTHORIZATION_FAILED


class TestAddPartitionsToTxn:
    """WRITE on the transactional id and each topic, or CLUSTER_ACTION for brokers."""

    def ask(self, broker: SecuredBroker, version: int, **topics: list[int]) -> dict[tuple[str, int], int]:
        sender = producer(broker)
        request = AddPartitionsToTxnRequest(
            **{f"v3_and_below_{name}": value for name, value in sender.items()},
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=at) for name, at in topics.items()],
        )
        answer = broker.client.ask(request, version).results_by_topic_v3_and_below
        return {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in answer
            for each in topic.results_by_partition
        }

    @pytest.mark.parametrize("version", range(4))
    def test_the_transactional_id_needs_the_right_to_write(self, broker: SecuredBroker, version: int) -> None:
        """Each partition is refused, those that do not exist alike."""
        broker.let(NOT_MINE, on_topic("a", Op.WRITE))
        assert self.ask(broker, version, a=[0, 9]) == {("a", 0): REFUSED_ID, ("a", 9): REFUSED_ID}
        assert broker.state() == "Empty"

    @pytest.mark.parametrize("version", range(4))
    def test_one_topic_without_the_right_to_write_fails_all(self, broker: SecuredBroker, version: int) -> None:
        """What exists and what does not are refused alike, and no transaction begins."""
        broker.let(MAY_USE_T, on_topic("a", Op.WRITE), on_topic("b", Op.READ))
        assert self.ask(broker, version, a=[0, 9], b=[0], c=[0]) == {
            ("a", 0): E.OPERATION_NOT_ATTEMPTED,
            ("a", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
            ("b", 0): E.TOPIC_AUTHORIZATION_FAILED,
            ("c", 0): E.TOPIC_AUTHORIZATION_FAILED,
        }
        assert broker.state() == "Empty"
        assert self.ask(broker, version, a=[0, 1]) == {("a", 0): E.NONE, ("a", 1): E.NONE}

    def test_internal_topics_are_refused_whatever_the_rights(self, broker: SecuredBroker) -> None:
        """A transaction would write markers into them."""
        broker.let(MAY_USE_T, [Right(Op.ALL, ResourceType.TOPIC, "*")])
        assert self.ask(broker, 3, __consumer_offsets=[0]) == {(OFFSETS_TOPIC, 0): E.TOPIC_AUTHORIZATION_FAILED}

    @pytest.mark.parametrize("version", [4, 5])
    @pytest.mark.parametrize("verify_only", [False, True])
    def test_the_versions_of_brokers_need_cluster_action(
        self, broker: SecuredBroker, version: int, verify_only: bool
    ) -> None:
        """Whatever rights the client has on what is named; the transaction is as before."""
        transaction = AddPartitionsToTxnTransaction(
            **producer(broker),
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name="a", partitions=[0])],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        broker.let(MAY_USE_T, on_topic("a", Op.ALL), on_cluster(Op.ALTER))
        answer = broker.client.ask(request, version)
        assert (answer.error_code, answer.results_by_transaction) == (E.CLUSTER_AUTHORIZATION_FAILED, [])
        assert broker.state() == "Empty"
        broker.let(on_cluster(Op.CLUSTER_ACTION))
        answer = broker.client.ask(request, version)
        assert (answer.error_code, len(answer.results_by_transaction)) == (E.NONE, 1)


class TestAddOffsetsToTxn:
    """WRITE on the transactional id and READ on the group."""

    @pytest.mark.parametrize("version", range(5))
    def test_each_right_is_asked_for_in_order(self, broker: SecuredBroker, version: int) -> None:
        """Another group than one's own is refused, and no transaction begins."""
        request = AddOffsetsToTxnRequest(group_id="g", **producer(broker))
        for rights, code in (
            ((NOT_MINE, on_group("g", Op.READ)), REFUSED_ID),
            ((NOT_MINE, on_group("other", Op.READ)), REFUSED_ID),
            ((MAY_USE_T, on_group("g", Op.DESCRIBE), on_group("other", Op.READ)), E.GROUP_AUTHORIZATION_FAILED),
        ):
            broker.let(*rights)
            assert broker.client.ask(request, version).error_code == code
            assert broker.state() == "Empty"
        broker.let(MAY_USE_T, on_group("g", Op.READ))
        assert broker.client.ask(request, version).error_code == E.NONE
        assert broker.state() == "Ongoing"


class TestTxnOffsetCommit:
    """WRITE on the transactional id, READ on the group and on each topic."""

    def ask(
        self, broker: SecuredBroker, version: int, *names: str, sender: dict[str, Any] | None = None
    ) -> dict[str, int]:
        sender = sender or producer(broker)
        topics = [
            TxnOffsetCommitRequestTopic(
                name=name, partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
            )
            for name in names
        ]
        broker.client.post(TxnOffsetCommitRequest(group_id="g", topics=topics, **sender), version)
        while broker.coordinators.asked:
            broker.coordinators.confirm()
        answer = broker.client.answer()
        return {topic.name: topic.partitions[0].error_code for topic in answer.topics}

    @pytest.mark.parametrize("version", range(5))
    def test_each_right_is_asked_for_in_order(self, broker: SecuredBroker, version: int) -> None:
        """Nothing is stored, and no coordinator is asked."""
        end = broker.offsets_end()
        for rights, code in (
            ((NOT_MINE, on_group("other", Op.READ)), REFUSED_ID),
            ((MAY_USE_T, on_group("g", Op.DESCRIBE), on_group("other", Op.READ)), E.GROUP_AUTHORIZATION_FAILED),
            ((MAY_USE_T, on_group("g", Op.READ), on_topic("a", Op.DESCRIBE)), E.TOPIC_AUTHORIZATION_FAILED),
        ):
            broker.let(*rights, on_topic("b", Op.READ) if code is not E.TOPIC_AUTHORIZATION_FAILED else [])
            assert self.ask(broker, version, "a", "missing") == {"a": code, "missing": code}
            assert broker.offsets_end() == end

    @pytest.mark.parametrize("version", range(5))
    def test_topics_are_allowed_one_by_one(self, broker: SecuredBroker, version: int) -> None:
        """The others' offsets are stored."""
        broker.let(MAY_USE_T, on_group("g", Op.READ), on_topic("b", Op.READ))
        end = broker.offsets_end()
        assert self.ask(broker, version, "a", "b", "missing") == {
            "a": E.TOPIC_AUTHORIZATION_FAILED,
            "b": E.NONE,
            "missing": E.TOPIC_AUTHORIZATION_FAILED,
        }
        assert broker.offsets_end() == end + 1

    def test_a_transaction_that_has_the_offsets_gives_no_right_on_another_group(self, broker: SecuredBroker) -> None:
        """The partition of the offsets topic may hold both groups."""
        broker.let(MAY_USE_T, on_group("h", Op.READ), on_topic("a", Op.READ))
        sender = producer(broker)
        assert broker.client.ask(AddOffsetsToTxnRequest(group_id="h", **sender), 4).error_code == E.NONE
        end = broker.offsets_end()
        assert self.ask(broker, 4, "a", sender=sender) == {"a": E.GROUP_AUTHORIZATION_FAILED}
        assert broker.offsets_end() == end


class TestEndTxn:
    """WRITE on the transactional id."""

    @pytest.mark.parametrize("version", range(6))
    def test_a_transaction_is_ended_by_those_who_may_write(self, broker: SecuredBroker, version: int) -> None:
        """Another client leaves it open."""
        sender = broker.producer()
        broker.add(sender, {"a": frozenset({0})})
        request = EndTxnRequest(
            transactional_id="t", producer_id=sender.producer_id, producer_epoch=sender.producer_epoch, committed=True
        )
        broker.let(NOT_MINE, on_topic("a", Op.ALL))
        answer = broker.client.ask(request, version)
        assert (answer.error_code, answer.producer_id) == (REFUSED_ID, -1)
        assert broker.state() == "Ongoing"
        broker.let(MAY_USE_T)
        assert broker.client.ask(request, version).error_code == E.NONE


class TestWriteTxnMarkers:
    """CLUSTER_ACTION, or ALTER on the cluster."""

    REQUEST = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=7,
                producer_epoch=0,
                transaction_result=True,
                coordinator_epoch=0,
                topics=[WritableTxnMarkerTopic(name="a", partition_indexes=[0])],
            )
        ]
    )

    def code(self, broker: SecuredBroker, version: int) -> int:
        (marker,) = broker.client.ask(self.REQUEST, version).markers
        return int(marker.topics[0].partitions[0].error_code)

    @pytest.mark.parametrize("version", range(3))
    def test_markers_are_written_for_brokers_and_operators(self, broker: SecuredBroker, version: int) -> None:
        """Not for those who may write to the topic."""
        log = broker.replicas.partition(TopicPartition("a", 0)).log
        broker.let(on_topic("a", Op.ALL), on_cluster(Op.DESCRIBE, Op.ALTER_CONFIGS, Op.CREATE), MAY_USE_T)
        assert self.code(broker, version) == E.CLUSTER_AUTHORIZATION_FAILED
        assert log.log_end_offset == 0
        for number, operation in enumerate((Op.CLUSTER_ACTION, Op.ALTER), 1):
            broker.let(on_cluster(operation))
            assert self.code(broker, version) == E.NONE
            assert log.log_end_offset == number


class TestQueries:
    """DESCRIBE on transactional ids, and on topics for the partitions of a transaction."""

    def test_a_transaction_is_described_as_far_as_there_are_rights(self, broker: SecuredBroker) -> None:
        """An id without the right is refused, whether it exists or not; topics are left out."""
        broker.add(broker.producer(), {"a": frozenset({0}), "b": frozenset({0})})
        broker.let(on_transactional_id("t", Op.DESCRIBE), on_topic("b", Op.WRITE))
        broker.producer("hidden")
        request = DescribeTransactionsRequest(transactional_ids=["t", "hidden", "missing"])
        states = {each.transactional_id: each for each in broker.client.ask(request, 0).transaction_states}
        assert [(topic.topic, topic.partitions) for topic in states["t"].topics] == [("b", [0])]
        hidden, missing = states["hidden"], states["missing"]
        assert hidden.error_code == missing.error_code == REFUSED_ID
        hidden.transactional_id = missing.transactional_id
        assert hidden == missing

    @pytest.mark.parametrize("version", range(3))
    def test_ids_without_the_right_are_not_listed(self, broker: SecuredBroker, version: int) -> None:
        """As if they did not exist."""
        for name in ("t", "hidden", "u"):
            broker.producer(name)
        broker.let(on_transactional_id("t", Op.WRITE), on_transactional_id("u", Op.DESCRIBE))
        answer = broker.client.ask(ListTransactionsRequest(), version)
        assert answer.error_code == E.NONE
        assert sorted(each.transactional_id for each in answer.transaction_states) == ["t", "u"]
