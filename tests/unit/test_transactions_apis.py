"""The APIs of transactional producers, through dispatch and codec."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.broker.replication.transaction_verification import AddPartitionsToTxnManager
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.kafka.messages.list_transactions import ListTransactionsRequest
from support.broker import START_MS, Wire
from support.slicing import thread_at_once
from support.transaction_broker import TransactionBroker

E = ErrorCode
APIS = (
    *("add_offsets_to_txn", "add_partitions_to_txn", "describe_transactions", "end_txn"),
    *("find_coordinator", "init_producer_id", "list_transactions"),
)


class Served(TransactionBroker):
    """A broker with the APIs, and a client of it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        groups = GroupService(
            self.config,
            self.replicas,
            self.purgatory,
            self.metadata,
            clock=self.clock,
            call_later=self.timers,
            rng=self.rng,
            spawn=self.spawned.append,
            runner=Runner(self.clock, self.timers, thread_at_once),
            verifier=AddPartitionsToTxnManager(self.metadata, self._run, lambda: 0, is_enabled=True),
        )
        self.created: list[str] = []
        self.serve(APIS, transactions=self.transactions, groups=groups, producer_ids=self.ids, topics=self)
        self.client = self.connect()

    def auto_create(self, names: list[str]) -> None:
        self.created += names

    def init_request(self, version: int = 4, **options: Any) -> Any:
        request = InitProducerIdRequest(**{"transactional_id": "t", "transaction_timeout_ms": 60_000, **options})
        return self.client.ask(request, version)

    def add_request(self, sender: Any, version: int = 3, **topics: list[int]) -> dict[str, dict[int, ErrorCode]]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=sender.transactional_id,
            v3_and_below_producer_id=sender.producer_id,
            v3_and_below_producer_epoch=sender.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
            ],
        )
        return codes(self.client.ask(request, version).results_by_topic_v3_and_below)


def codes(topics: Any) -> dict[str, dict[int, ErrorCode]]:
    return {
        topic.name: {each.partition_index: E(each.partition_error_code) for each in topic.results_by_partition}
        for topic in topics
    }


@pytest.fixture
def broker(tmp_path: Path) -> Served:
    made = Served(tmp_path)
    made.load()
    return made


@pytest.mark.parametrize("version", range(6))
def test_producer_with_a_transactional_id_gets_epochs(broker: Served, version: int) -> None:
    """One after the other, of one producer id."""
    first, second = broker.init_request(version), broker.init_request(version)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (E.NONE, 0, 1)
    assert first.producer_id == second.producer_id


@pytest.mark.parametrize(("version", "code"), [(3, E.INVALID_PRODUCER_EPOCH), (4, E.PRODUCER_FENCED)])
def test_fenced_producer_learns_it_in_the_words_of_its_version(broker: Served, version: int, code: E) -> None:
    """Old clients do not know PRODUCER_FENCED."""
    had = broker.init_request()
    broker.init_request()
    answer = broker.init_request(version, producer_id=had.producer_id, producer_epoch=had.producer_epoch)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"transactional_id": ""}, E.INVALID_REQUEST),
        ({"transaction_timeout_ms": 900_001}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, E.INVALID_REQUEST),
        ({"producer_epoch": 5}, E.INVALID_REQUEST),
    ],
)
def test_wrong_init_request_is_refused(broker: Served, options: dict[str, Any], code: E) -> None:
    """Whatever else it says."""
    assert broker.init_request(**options).error_code == code


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(broker: Served, version: int) -> None:
    """Each gets an answer, in every version of clients."""
    sender = broker.producer()
    assert broker.add_request(sender, version, a=[2, 0, 2]) == {"a": {0: E.NONE, 2: E.NONE}}
    assert broker.state() == "Ongoing"


def test_one_partition_that_does_not_exist_fails_all(broker: Served) -> None:
    """The others are not attempted, and no transaction begins."""
    answer = broker.add_request(broker.producer(), a=[0, 9], b=[0])
    assert answer == {
        "a": {0: E.OPERATION_NOT_ATTEMPTED, 9: E.UNKNOWN_TOPIC_OR_PARTITION},
        "b": {0: E.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert broker.state() == "Empty"


def test_topic_that_is_named_again_and_again_is_added_and_answered_once(broker: Served) -> None:
    """With all partitions of all its entries."""
    sender = broker.producer()
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=sender.transactional_id,
        v3_and_below_producer_id=sender.producer_id,
        v3_and_below_producer_epoch=sender.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="a", partitions=[each]) for each in (1, 0, 1)],
    )
    topics = broker.client.ask(request, 3).results_by_topic_v3_and_below
    assert len(topics) == 1
    assert codes(topics) == {"a": {0: E.NONE, 1: E.NONE}}


def test_clients_cannot_add_internal_topics(broker: Served) -> None:
    """The coordinator would write markers into them. The offsets topic has a request of its own."""
    answer = broker.add_request(broker.producer(), __consumer_offsets=[0], __transaction_state=[0, 9], a=[0], b=[0])
    assert answer == {
        "__consumer_offsets": {0: E.TOPIC_AUTHORIZATION_FAILED},
        "__transaction_state": {0: E.TOPIC_AUTHORIZATION_FAILED, 9: E.TOPIC_AUTHORIZATION_FAILED},
        "a": {0: E.OPERATION_NOT_ATTEMPTED},
        "b": {0: E.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert broker.state() == "Empty"


@pytest.mark.parametrize(("version", "code"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)])
def test_fenced_producer_cannot_add_offsets_or_end(broker: Served, version: int, code: E) -> None:
    """In the words of its version."""
    sender = broker.producer()
    broker.producer()
    has = {
        "transactional_id": "t",
        "producer_id": sender.producer_id,
        "producer_epoch": sender.producer_epoch,
    }
    assert broker.add_request(sender, version, a=[0]) == {"a": {0: code}}
    assert broker.client.ask(AddOffsetsToTxnRequest(group_id="g", **has), version).error_code == code
    assert broker.client.ask(EndTxnRequest(committed=True, **has), version).error_code == code


def batched(*transactions: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=list(transactions))


def transaction(sender: Any, verify_only: bool, **topics: list[int]) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=sender.transactional_id,
        producer_id=sender.producer_id,
        producer_epoch=sender.producer_epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
    )


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_several_transactions_at_once(broker: Served, version: int) -> None:
    """Nothing is added."""
    first, second = broker.producer("t"), broker.producer("u")
    broker.add(first, {"a": frozenset({0})})
    request = batched(transaction(first, True, a=[0, 1]), transaction(second, True, a=[0]))
    answer = broker.client.ask(request, version)
    assert answer.error_code == E.NONE
    assert {each.transactional_id: codes(each.topic_results) for each in answer.results_by_transaction} == {
        "t": {"a": {0: E.NONE, 1: E.TRANSACTION_ABORTABLE}},
        "u": {"a": {0: E.TRANSACTION_ABORTABLE}},
    }
    assert broker.state("u") == "Empty"


def test_batch_may_add_and_may_be_empty(broker: Served) -> None:
    """Brokers add on behalf of producers of later versions."""
    sender = broker.producer()
    answer = broker.client.ask(batched(transaction(sender, False, a=[1])), 5)
    assert codes(answer.results_by_transaction[0].topic_results) == {"a": {1: E.NONE}}
    assert broker.client.ask(batched(), 5).results_by_transaction == []


def test_broker_that_adds_is_refused_at_once_while_the_last_transaction_ends(broker: Served) -> None:
    """A producer's own request waits for it."""
    sender = broker.producer()
    broker.add(sender, {"a": frozenset({0})})
    broker.end(sender)
    answer = broker.client.ask(batched(transaction(sender, False, a=[1])), 5)
    assert codes(answer.results_by_transaction[0].topic_results) == {"a": {1: E.CONCURRENT_TRANSACTIONS}}
    broker.work()


def test_offsets_of_a_group_join_the_transaction(broker: Served) -> None:
    """As the partition that they are in."""
    sender = broker.producer()
    request = AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=sender.producer_id, producer_epoch=0, group_id="g"
    )
    assert broker.client.ask(request, 4).error_code == E.NONE
    found = broker.transactions.coordinator.find("t")
    assert found is not None
    assert list(found.partitions) == [OFFSETS_TOPIC]


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("committed", [True, False])
def test_transaction_ends(broker: Served, version: int, committed: bool) -> None:
    """In every version."""
    sender = broker.producer()
    broker.add(sender, {"a": frozenset({0})})
    request = EndTxnRequest(transactional_id="t", producer_id=sender.producer_id, producer_epoch=0, committed=committed)
    assert broker.client.ask(request, version).error_code == E.NONE
    broker.work()
    assert broker.state() == ("CompleteCommit" if committed else "CompleteAbort")


def test_end_that_waits_for_followers_is_answered_later(broker: Served) -> None:
    """Its connection has no answer before."""
    sender = broker.producer()
    broker.add(sender, {"a": frozenset({0})})
    broker.load(epoch=1, replicas=(0, 1))
    request = EndTxnRequest(transactional_id="t", producer_id=sender.producer_id, producer_epoch=0, committed=True)
    broker.client.post(request, 4)
    assert broker.client.answer() is None
    broker.follower_reads()
    assert broker.client.answer().error_code == E.NONE
    broker.work()


def test_transactions_are_described(broker: Served) -> None:
    """Those that are known; each once."""
    sender = broker.producer()
    broker.add(sender, {"a": frozenset({1, 0})})
    request = DescribeTransactionsRequest(transactional_ids=["t", "none", "", "t"])
    found, none, empty = broker.client.ask(request, 0).transaction_states
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (E.NONE, "Ongoing", 60_000)
    assert (found.producer_id, found.producer_epoch) == (sender.producer_id, 0)
    assert found.transaction_start_time_ms == START_MS + broker.clock.now_ms
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("a", [0, 1])]
    assert (none.error_code, empty.error_code) == (E.TRANSACTIONAL_ID_NOT_FOUND, E.INVALID_REQUEST)


Ask = Callable[..., list[str]]


@pytest.fixture
def listed(broker: Served) -> Ask:
    """Three transactional ids, of which one is open since a second."""
    broker.producer("empty")
    ended = broker.producer("ended")
    broker.add(ended, {"a": frozenset({0})})
    broker.end(ended)
    broker.work()
    broker.add(broker.producer("open"), {"a": frozenset({0})})
    broker.timers.advance(1_000)

    def ask(version: int = 1, **filters: Any) -> list[str]:
        answer = broker.client.ask(ListTransactionsRequest(**filters), version)
        assert answer.error_code == E.NONE
        return sorted(each.transactional_id for each in answer.transaction_states) + answer.unknown_state_filters

    return ask


def test_transactions_are_listed_by_state(listed: Ask) -> None:
    """Names that are no states come back."""
    assert listed(0) == ["empty", "ended", "open"]
    assert listed(state_filters=["Ongoing", "CompleteCommit"]) == ["ended", "open"]
    assert listed(state_filters=["Nonsense"]) == ["Nonsense"]
    assert listed(state_filters=["Ongoing", "Nonsense"]) == ["open", "Nonsense"]


def test_transactions_are_listed_by_producer_id(broker: Served, listed: Ask) -> None:
    """Of the ids that are named."""
    found = broker.transactions.coordinator.find("ended")
    assert found is not None
    assert listed(producer_id_filters=[found.producer_id, 99_999]) == ["ended"]


def test_transactions_are_listed_by_duration(listed: Ask) -> None:
    """Those that began longer ago."""
    assert listed(duration_filter=999, state_filters=["Ongoing"]) == ["open"]
    assert listed(duration_filter=1_000, state_filters=["Ongoing"]) == []


def test_transactions_are_listed_by_a_pattern_of_the_whole_id(listed: Ask) -> None:
    """Beside the other filters; no pattern, or an empty one, lets all through."""
    assert listed(2, transactional_id_pattern="e.*") == ["empty", "ended"]
    assert listed(2, transactional_id_pattern="e") == []
    assert listed(2, transactional_id_pattern=".*(en|x).*", state_filters=["Ongoing"]) == ["open"]
    assert listed(2) == listed(2, transactional_id_pattern="") == ["empty", "ended", "open"]


@pytest.mark.parametrize("pattern", ["(a", r"(a)\1", "a{1001}", "a" * 1_001, "((a{100}){100}){100}"])
def test_a_wrong_or_hostile_pattern_is_refused(broker: Served, listed: Ask, pattern: str) -> None:
    """Nothing is listed."""
    assert listed()
    answer = broker.client.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
    assert answer.transaction_states == []


def test_transactions_are_not_listed_while_some_are_loaded(broker: Served) -> None:
    """An incomplete list would mislead."""
    broker.load(leader=1, epoch=1, replicas=(0, 1))
    broker.lead(TRANSACTIONS_TOPIC, 0, epoch=2)
    assert broker.client.ask(ListTransactionsRequest(), 1).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    broker.work()


def find(wire: Wire, version: int) -> Any:
    if version < 4:
        return wire.ask(FindCoordinatorRequest(key="t", key_type=1), version)
    return wire.ask(FindCoordinatorRequest(coordinator_keys=["t"], key_type=1), version).coordinators[0]


@pytest.mark.parametrize("version", range(1, 7))
def test_first_search_for_a_coordinator_creates_the_topic(tmp_path: Path, version: int) -> None:
    """The client asks again."""
    broker = Served(tmp_path)
    assert find(broker.client, version).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert broker.created == [TRANSACTIONS_TOPIC]


@pytest.mark.parametrize("version", [1, 6])
def test_coordinator_of_a_transactional_id_is_the_leader_of_its_partition(broker: Served, version: int) -> None:
    """By the hash of the id."""
    number = broker.transactions.partition_for("t")
    broker.know(TRANSACTIONS_TOPIC, *[2 if each == number else 0 for each in range(3)])
    state = broker.metadata.partition(TopicPartition(TRANSACTIONS_TOPIC, number))
    assert state is not None
    found = find(broker.client, version)
    assert (found.error_code, found.node_id) == (E.NONE, 2)


def test_many_partitions_are_decided_in_turns(broker: Served) -> None:
    """All get an answer."""
    broker.know("many", *[0] * 20_000)
    answer = broker.add_request(broker.producer(), many=list(range(20_000)))
    assert set(answer["many"].values()) == {E.NONE}
    assert len(answer["many"]) == 20_000
