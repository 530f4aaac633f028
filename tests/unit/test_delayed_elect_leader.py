"""ElectLeaders responds when this broker knows the new leaders, or at its timeout."""

from collections.abc import Callable, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.broker.controller.delayed_elect_leader import wait_for_leaders
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Timer:
    """A call at a later time, made by the test."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        if self.callback is not None:
            self.callback()


class Wait:
    """One wait for leaders, with the metadata of its broker."""

    def __init__(self, elected: Mapping[TopicPartition, int], timeout_ms: int = 1000, **known: int) -> None:
        self.timers: list[Timer] = []
        self.metadata = MetadataCache()
        self.purgatory = Purgatory(self._call_later)
        self.responses: list[dict[TopicPartition, ErrorCode | None]] = []
        self.learn(**known)
        self.delayed = wait_for_leaders(self.metadata, self.purgatory, elected, self._respond, timeout_ms)

    def _call_later(self, _delay_ms: int, callback: Callable[[], object]) -> Timer:
        self.timers.append(Timer(callback))
        return self.timers[-1]

    def _respond(self, results: Mapping[TopicPartition, KafkaError | None]) -> None:
        self.responses.append({name: None if error is None else error.code for name, error in results.items()})

    def learn(self, **leaders: int) -> None:
        """UpdateMetadata names the leaders of partitions ``p0``, ``p1`` of the topic."""
        states = [
            UpdateMetadataPartitionState(
                partition_index=int(name[1:]), leader=leader, leader_epoch=1, isr=[leader], replicas=[leader]
            )
            for name, leader in leaders.items()
        ]
        self.metadata.update(
            UpdateMetadataRequest(
                controller_id=1,
                live_brokers=[UpdateMetadataBroker(id=number, endpoints=[]) for number in (1, 2)],
                topic_states=[UpdateMetadataTopicState(topic_name="t", partition_states=states)],
            )
        )
        self.purgatory.check_and_complete(("topic", "t"))
        self.purgatory.try_complete_actions()


def test_leaders_that_are_known_already_need_no_wait() -> None:
    """The response is immediate, and nothing is left in the purgatory."""
    wait = Wait({T0: 2}, p0=2)
    assert wait.delayed is None
    assert wait.responses == [{T0: None}]
    assert len(wait.purgatory) == 0


def test_the_response_waits_for_the_last_of_the_new_leaders() -> None:
    """Metadata that names only some of them, or the old leader, is not enough."""
    wait = Wait({T0: 2, T1: 1}, p0=1, p1=2)
    wait.learn(p0=2)
    assert wait.responses == []
    wait.learn(p1=1)
    assert wait.responses == [{T0: None, T1: None}]
    for timer in wait.timers:
        timer.fire()
    assert len(wait.responses) == 1


def test_leaders_that_are_not_known_at_the_timeout_have_an_error() -> None:
    """REQUEST_TIMED_OUT is for these partitions alone."""
    wait = Wait({T0: 2, T1: 1}, p0=1, p1=2)
    wait.learn(p0=2)
    for timer in wait.timers:
        timer.fire()
    assert wait.responses == [{T0: None, T1: ErrorCode.REQUEST_TIMED_OUT}]


def test_a_request_without_time_is_answered_at_once() -> None:
    """The election is held all the same; only its response does not wait."""
    wait = Wait({T0: 2}, timeout_ms=0, p0=1)
    assert wait.responses == [{T0: ErrorCode.REQUEST_TIMED_OUT}]


def test_an_election_without_results_is_answered_at_once() -> None:
    """There is no leader to wait for."""
    assert Wait({}).responses == [{}]
