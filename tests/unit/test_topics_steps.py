"""Topics are created, grown and ordered away in steps: on a dictionary of znodes, also where a
crash ends them in between."""

import logging
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster.steps import Ask, Read, Steps, Watch
from barnabas.broker.cluster.znodes import (
    BrokerInfo,
    ReplicaAssignment,
    TopicAssignment,
    config_path,
    decode_config,
    decode_topic,
    delete_topic_path,
    encode_config,
    encode_topic,
    topic_path,
)
from barnabas.broker.configuration import definitions
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.topics.planning import CreationPlan
from barnabas.broker.topics.topics import Topics
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataRequest
from support.broker import ManualClock, ManualTimers
from support.znode_steps import Znodes

CONFIGS = {"cleanup.policy": "compact"}
ASSIGNMENT = {0: (0, 1), 1: (1, 2)}


class Commands:
    """What the controller is asked to look at.

    It takes a step to do so, in which a crash may come."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.on_failover: Callable[[], object] = lambda: None
        self.is_active = True

    def _ask(self, what: Any) -> Steps[None]:
        yield Watch([])
        self.asked.append(what)

    def require_active(self) -> None:
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

    def await_failover(self) -> Steps[None]:
        self.on_failover()
        yield from ()

    def create_topics(self, topics: dict[str, TopicAssignment]) -> Steps[None]:
        return self._ask(("create", sorted(topics)))

    def add_partitions(self, topic: str) -> Steps[None]:
        return self._ask(("grow", topic))

    def delete_topics(self) -> Steps[None]:
        return self._ask("delete")


class Broker:
    """`Topics` beside a controller that knows some topics."""

    def __init__(self, znodes: Znodes, *known: str) -> None:
        self.znodes = znodes
        self.commands = Commands()
        config = BrokerConfig(definitions.DEFINITIONS.parse({"zookeeper.connect": "h:1"}))
        metadata = MetadataCache()
        self.configs = DynamicConfig(config, tuple)
        brokers = {number: BrokerInfo(number, ()) for number in range(3)}
        self.context = SimpleNamespace(
            brokers=brokers, topics=set(known), to_delete=set(), ineligible_for_deletion=set()
        )
        controller: Any = SimpleNamespace(context=self.context, commands=self.commands, is_active=True)
        timers = ManualTimers(ManualClock())
        self.topics = Topics(
            config, metadata, self.configs, controller, Purgatory(timers), random.Random(1), lambda steps: steps.close()
        )

    def create(self, *names: str, stop_after: int | None = None) -> dict[str, KafkaError] | None:
        plans = [CreationPlan(name, dict(ASSIGNMENT), dict(CONFIGS)) for name in names]
        found: dict[str, KafkaError] | None = self.znodes.perform(self.topics.create(plans), stop_after=stop_after)
        return found

    def grow(self, count: int, *, stop_after: int | None = None, **options: Any) -> int | None:
        steps = self.topics.grow("t", count, None, **{"validate_only": False, **options})
        found: int | None = self.znodes.perform(steps, stop_after=stop_after)
        return found


def stops(run: Callable[[int], object], most: int = 10) -> list[int]:
    """The numbers of steps after which a run can be stopped: all before that which completes it."""
    found = []
    for number in range(most):
        if run(number) is not None:
            return found
        found.append(number)
    raise AssertionError("the run does not end")


@pytest.fixture
def znodes() -> Znodes:
    return Znodes()


def exists(znodes: Znodes, topic: str = "t") -> bool:
    """A topic is there with its configuration, or not at all: a configuration alone is none."""
    if topic_path(topic) not in znodes.nodes:
        return False
    assert decode_config("", znodes.data(config_path("topics", topic))) == CONFIGS
    found = decode_topic(topic, znodes.data(topic_path(topic)))
    assert found.topic_id is not None
    assert {number: each.replicas for number, each in found.partitions.items()} == ASSIGNMENT
    return True


def test_a_topic_is_created_with_its_configuration_and_the_controller_looks_at_it(znodes: Znodes) -> None:
    """The configuration holds here at once."""
    broker = Broker(znodes)
    assert broker.create("t", "u") == {}
    assert exists(znodes, "t")
    assert exists(znodes, "u")
    assert broker.commands.asked == [("create", ["t", "u"])]
    assert broker.configs.topic_texts("t") == CONFIGS


@pytest.mark.parametrize("has_config", [False, True], ids=["new", "over a configuration"])
def test_a_creation_that_a_crash_ended_can_be_repeated(has_config: bool) -> None:
    """Whatever the step: the topic is not there, and is created then, or it is there as a whole."""

    def crash(number: int) -> object:
        znodes = Znodes()
        if has_config:
            znodes.put(config_path("topics", "t"), encode_config({"retention.ms": "1"}))
        ended = Broker(znodes).create("t", stop_after=number)
        was_there = exists(znodes)
        again = Broker(znodes).create("t")
        assert again is not None
        assert exists(znodes)
        assert [error.code for error in again.values()] == [ErrorCode.TOPIC_ALREADY_EXISTS] * was_there
        return ended

    assert stops(crash) == list(range(4 if has_config else 3))


def test_of_several_topics_one_that_exists_does_not_keep_the_others(znodes: Znodes) -> None:
    """It is answered as existing and stays as it is."""
    assert Broker(znodes).create("t") == {}
    before = znodes.nodes[topic_path("t")]
    broker = Broker(znodes)
    failed = broker.create("t", "u")
    assert failed is not None
    assert {name: error.code for name, error in failed.items()} == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}
    assert znodes.nodes[topic_path("t")] == before
    assert broker.commands.asked == [("create", ["u"])]


def test_a_topic_that_another_request_has_created_meanwhile_is_no_warning(
    znodes: Znodes, caplog: pytest.LogCaptureFixture
) -> None:
    """Two clients may ask for it at once; the one that comes second finds it there."""
    assert Broker(znodes).create("t") == {}
    caplog.set_level(logging.INFO)
    znodes.perform(Broker(znodes).topics._auto_create(["t"]))
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "Topic t could not be created automatically: Topic 't' already exists.")
    ]


def automatic(broker: Broker, names: list[str]) -> None:
    """What a request of a client begins, to its end."""
    broker.topics._start = broker.znodes.perform
    broker.topics.auto_create(names)


def beside_controller(steps: Steps[None], answer: Callable[[Any], Any]) -> Steps[None]:
    """The steps, where another broker is the controller and answers."""
    outcome = None
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration:
            return
        outcome = answer(step.request) if isinstance(step, Ask) else (yield step)


def test_a_topic_that_the_controller_does_not_let_a_broker_create_is_written_by_the_broker(znodes: Znodes) -> None:
    """With the settings of such a topic. One that failed otherwise is not."""
    asked: list[str] = []
    codes = {"__consumer_offsets": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "other": ErrorCode.INVALID_PARTITIONS}

    def refuse(request: CreateTopicsRequest) -> CreateTopicsResponse:
        asked.extend(topic.name for topic in request.topics)
        results = [CreatableTopicResult(name=name, error_code=codes[name]) for name in asked]
        return CreateTopicsResponse(topics=results)

    broker = Broker(znodes)
    broker.context.brokers.clear()
    controller: Any = broker.topics._controller
    controller.is_active, controller.controller_id = False, 7
    brokers = [UpdateMetadataBroker(id=number) for number in range(3)]
    broker.topics._metadata.update(UpdateMetadataRequest(live_brokers=brokers))
    znodes.perform(beside_controller(broker.topics._auto_create(list(codes)), refuse))
    assert asked == list(codes)
    found = decode_topic("__consumer_offsets", znodes.data(topic_path("__consumer_offsets")))
    assert len(found.partitions) == 50
    assert decode_config("", znodes.data(config_path("topics", "__consumer_offsets")))["cleanup.policy"] == "compact"
    assert topic_path("other") not in znodes.nodes


def test_topics_that_cannot_be_created_automatically_are_summed_up(
    znodes: Znodes, caplog: pytest.LogCaptureFixture
) -> None:
    """A line for each reason, with a few names: one request may name thousands."""
    names = [f"t{number}" for number in range(500)]
    assert Broker(znodes).create(*names) == {}
    caplog.set_level(logging.INFO)
    automatic(Broker(znodes), [*names, "x x", "y y"])
    assert [(record.levelname, record.message) for record in caplog.records] == [
        (
            "WARNING",
            "Topic x x, y y could not be created automatically: Topic name is invalid: 'x x' contains one or more "
            "characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (
            "INFO",
            "Topic t0, t1, t2, t3, t4 and 495 more could not be created automatically: Topic 't0' already exists.",
        ),
    ]


def test_a_failure_of_the_creation_names_a_few_topics(znodes: Znodes, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever failed, in one line."""
    broker = Broker(znodes)

    def fail() -> None:
        raise RuntimeError("no disk")

    broker.commands.on_failover = fail
    automatic(broker, [f"t{number}" for number in range(5000)])
    assert "t4 and 4995 more could not be created automatically: no disk" in caplog.text
    assert len(caplog.text) < 500


def test_as_many_topics_are_created_automatically_as_one_request_may_name(
    znodes: Znodes, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that asks for more asks again, and gets the rest when these are done."""
    broker = Broker(znodes)
    started: list[Any] = []
    broker.topics._start = started.append
    broker.topics.auto_create([f"t{number}" for number in range(95_000)])
    assert len(broker.topics._creating) == 10_000
    assert "t10004 and 84995 more" in caplog.text
    broker.topics.auto_create(["more"])
    assert (len(started), len(broker.topics._creating)) == (1, 10_000)
    next(started[0])
    started[0].close()
    broker.topics.auto_create(["more"])
    assert broker.topics._creating == {"more"}


# Growth


def partitions(znodes: Znodes) -> set[int]:
    return set(decode_topic("t", znodes.data(topic_path("t"))).partitions)


def test_a_growth_that_a_crash_ended_is_done_or_not_and_can_be_repeated() -> None:
    """The partitions of before keep their replicas, and the topic its id."""

    def crash(number: int) -> object:
        znodes = Znodes()
        assert Broker(znodes).create("t") == {}
        before = decode_topic("t", znodes.data(topic_path("t")))
        ended = Broker(znodes).grow(4, stop_after=number)
        assert partitions(znodes) in ({0, 1}, {0, 1, 2, 3})
        if len(partitions(znodes)) == 4:
            with pytest.raises(KafkaError, match="already has 4 partitions"):
                Broker(znodes).grow(4)
        else:
            assert Broker(znodes).grow(4) == 4
        after = decode_topic("t", znodes.data(topic_path("t")))
        assert after.topic_id == before.topic_id
        assert {number: after.partitions[number] for number in before.partitions} == before.partitions
        return ended

    assert stops(crash) == [0, 1, 2, 3]


def after_first(steps: Steps[int], outcome: Any) -> Steps[int]:
    """The rest of steps whose first one has this outcome."""
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration as end:
            return int(end.value)
        outcome = yield step


def test_a_growth_reads_again_when_the_topic_changes_between_read_and_write(znodes: Znodes) -> None:
    """A reassignment wrote the znode: both changes are there afterwards."""
    assert Broker(znodes).create("t") == {}
    broker = Broker(znodes)
    steps = broker.topics.grow("t", 3, None, validate_only=False)
    step = next(steps)
    assert isinstance(step, Read)
    outcome = znodes.outcome(step)
    found = decode_topic("t", znodes.data(topic_path("t")))
    moved = TopicAssignment(found.topic_id, {**found.partitions, 0: ReplicaAssignment((2, 0))})
    znodes.put(topic_path("t"), encode_topic(*moved))
    assert znodes.perform(after_first(steps, outcome)) == 3
    after = decode_topic("t", znodes.data(topic_path("t"))).partitions
    assert set(after) == {0, 1, 2}
    assert after[0].replicas == (2, 0)
    assert broker.commands.asked == [("grow", "t")]


def test_a_growth_that_is_only_validated_writes_nothing(znodes: Znodes) -> None:
    """Nor does the controller look."""
    assert Broker(znodes).create("t") == {}
    before = dict(znodes.nodes)
    broker = Broker(znodes)
    assert broker.grow(5, validate_only=True) == 5
    assert (znodes.nodes, broker.commands.asked) == (before, [])


def test_a_topic_that_is_not_there_or_is_being_deleted_does_not_grow(znodes: Znodes) -> None:
    """Each with Kafka's code."""
    broker = Broker(znodes)
    with pytest.raises(KafkaError) as error:
        broker.grow(2)
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.context.to_delete.add("t")
    with pytest.raises(KafkaError) as error:
        broker.grow(2)
    assert error.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_whose_znode_is_malformed_is_left_as_it_is(znodes: Znodes) -> None:
    """The error names it."""
    znodes.put(topic_path("t"), b"{")
    with pytest.raises(KafkaError, match="topic t") as error:
        Broker(znodes).grow(2)
    assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert znodes.data(topic_path("t")) == b"{"


# Deletion


def test_a_deletion_that_a_crash_ended_can_be_ordered_again() -> None:
    """An order that is there already is fine; a topic that is not known is answered as such."""

    def crash(number: int) -> object:
        znodes = Znodes()
        ended = znodes.perform(Broker(znodes, "t", "u").topics.delete(["t", "u"]), stop_after=number)
        broker = Broker(znodes, "t", "u")
        failed = znodes.perform(broker.topics.delete(["t", "u", "no-such"]))
        assert {name: error.code for name, error in failed.items()} == {"no-such": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert delete_topic_path("t") in znodes.nodes
        assert delete_topic_path("u") in znodes.nodes
        assert delete_topic_path("no-such") not in znodes.nodes
        assert broker.commands.asked == ["delete"]
        return ended

    assert stops(crash) == [0, 1, 2]


def test_a_deletion_waits_until_a_new_controller_knows_the_topics(znodes: Znodes) -> None:
    """A client may know the controller from before its restart, and ask before it
    has read the znodes."""
    broker = Broker(znodes)
    broker.commands.on_failover = lambda: broker.context.topics.add("t")
    assert znodes.perform(broker.topics.delete(["t"])) == {}
    assert delete_topic_path("t") in znodes.nodes


def test_a_growth_waits_until_a_new_controller_knows_the_brokers(znodes: Znodes) -> None:
    """Without them no replica could be placed."""
    broker = Broker(znodes)
    broker.create("t")
    brokers, broker.context.brokers = broker.context.brokers, {}

    def end_failover() -> None:
        broker.context.brokers = brokers

    broker.commands.on_failover = end_failover
    assert broker.grow(3) == 3


def test_a_controller_that_resigned_meanwhile_places_no_replicas(znodes: Znodes) -> None:
    """It knows no brokers any more: that there are too few would be a last word, and wrong."""
    broker = Broker(znodes)
    broker.create("t")
    broker.commands.is_active, broker.context.brokers = False, {}
    with pytest.raises(KafkaError) as refused:
        broker.grow(3)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
