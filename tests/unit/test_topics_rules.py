"""What topics may be created and how they may grow."""

import random
from typing import Any

import pytest

from barnabas.base.tasks import done_here
from barnabas.broker.cluster.znodes import ReplicaAssignment
from barnabas.broker.topics.planning import (
    MAX_REPLICAS_A_PARTITION,
    MAX_REPLICAS_A_REQUEST,
    TakenNames,
    collides,
    plan_creation,
    plan_growth,
    validate_topic_name,
)
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig

BROKERS: dict[int, str | None] = {0: None, 1: None, 2: None}


def plan(
    name: str = "t",
    partitions: int = 1,
    factor: int = 1,
    existing: tuple[str, ...] = (),
    max_replicas: int = MAX_REPLICAS_A_REQUEST,
    **fields: Any,
) -> Any:
    return done_here(
        plan_creation(
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields),
            BROKERS,
            random.Random(1),
            existing=TakenNames(existing),
            default_partitions=4,
            default_replication_factor=1,
            config_defaults={},
            max_replicas=max_replicas,
        )
    )


def refused(**fields: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as error:
        plan(**fields)
    return error.value.code, error.value.message


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249])
def test_legal_names_pass(name: str) -> None:
    """ASCII letters and digits, dots, underscores and hyphens, up to 249."""
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\0", "../x", "a\ud800"])
def test_other_names_are_refused(name: str) -> None:
    """They would be names of folders."""
    with pytest.raises(KafkaError) as error:
        validate_topic_name(name)
    assert error.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    """They would share the names of metrics."""
    assert collides("a.b", "a_b")
    assert not collides("a.b", "a-b")
    assert refused(name="a_b", existing=("a.b", "c")) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topics: a.b",
    )


def test_a_request_may_not_ask_for_more_replicas_than_the_topics_before_have_left() -> None:
    """A hundred topics of 200,000 partitions take some hundred bytes to ask for."""
    assert len(plan(partitions=6, factor=2, max_replicas=12).assignment) == 6
    assert refused(partitions=6, factor=2, max_replicas=11)[0] is ErrorCode.INVALID_PARTITIONS


def test_a_topic_whose_znode_would_be_too_large_is_refused_before_it_is_written() -> None:
    """The coordination server would end the controller's connection, again and again."""
    assert len(plan(partitions=75_000).assignment) == 75_000
    code, message = refused(partitions=80_000)
    assert code is ErrorCode.INVALID_PARTITIONS
    assert "use several topics" in message
    assert growth_refused(80_000) is ErrorCode.INVALID_PARTITIONS
    assert refused(**manual(*((index, (index % 3,)) for index in range(80_000))))[0] is ErrorCode.INVALID_PARTITIONS


def test_new_partitions_of_one_topic_are_limited_by_the_request() -> None:
    """The message says what to do, and that each topic counts for itself."""
    with pytest.raises(KafkaError, match="'t' would get more than 100000 new replicas at once") as error:
        done_here(plan_growth("t", EXISTING, BROKERS, MAX_REPLICAS_A_REQUEST + 3, None, random.Random(1)))
    assert error.value.code is ErrorCode.INVALID_PARTITIONS


def test_a_topic_takes_the_brokers_defaults_where_it_says_minus_one() -> None:
    """KIP-464."""
    assert len(plan(partitions=-1, factor=-1).assignment) == 4


def test_what_cannot_be_created_is_refused_in_kafkas_words() -> None:
    """Codes and messages are those of Apache's broker."""
    exists = (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")
    assert refused(existing=("t",)) == exists
    assert refused(existing=("t",), factor=99) == exists
    assert refused(existing=("t",), partitions=0) == exists
    assert refused(existing=("t",), configs=[CreatableTopicConfig(name="a", value=None)]) == exists
    assert refused(partitions=0) == (ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    assert refused(factor=4)[0] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused(configs=[CreatableTopicConfig(name="a", value=None)]) == (
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: a",
    )
    assert refused(configs=[CreatableTopicConfig(name="no.such", value="1")]) == (
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: no.such",
    )


def manual(*replicas: tuple[int, tuple[int, ...]], partitions: int = -1) -> dict[str, Any]:
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids)) for index, ids in replicas]
    return {"partitions": partitions, "factor": -1, "assignments": assignments}


def test_a_manual_assignment_is_taken_or_refused_as_a_whole() -> None:
    """Numbers in a row from 0, equal counts, no broker twice, and no counts beside it."""
    assert plan(**manual((0, (2,)), (1, (0,)))).assignment == {0: (2,), 1: (0,)}
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused(**manual((0, (2,)), (2, (0,))))[0] is bad
    assert refused(**manual((0, (2,)), (0, (1,))))[0] is bad
    assert refused(**manual((0, (2,)), (1, (0, 1))))[0] is bad
    assert refused(**manual((0, (2, 2))))[0] is bad
    assert refused(**manual((0, ())))[0] is bad
    assert refused(**manual((0, (2,)), partitions=1))[0] is ErrorCode.INVALID_REQUEST


def test_a_partition_with_more_replicas_than_a_controller_can_serve_is_refused() -> None:
    """Each replica is sent the list of all, so 99,000 of them held a controller for 40 s."""
    most = tuple(range(MAX_REPLICAS_A_PARTITION))
    assert plan(**manual((0, most))).assignment == {0: most}
    code, message = refused(**manual((0, (*most, len(most)))))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message == "A partition would have 101 replicas, but at most 100 are possible."


EXISTING = {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((2,))}


def growth_refused(count: int, assignments: list[list[int]] | None = None, existing: Any = EXISTING) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        done_here(plan_growth("t", existing, BROKERS, count, assignments, random.Random(1)))
    return error.value.code


def test_new_partitions_go_on_from_the_first_ones_broker() -> None:
    """So that the round of leaders is kept."""
    assert done_here(plan_growth("t", EXISTING, BROKERS, 4, None, random.Random(1))) == {
        2: ReplicaAssignment((0,)),
        3: ReplicaAssignment((1,)),
    }


def test_growth_that_cannot_be_is_refused() -> None:
    """Fewer, as many, unknown brokers, wrong counts, a reassignment under way."""
    assert growth_refused(1) is ErrorCode.INVALID_PARTITIONS
    assert growth_refused(2) is ErrorCode.INVALID_PARTITIONS
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert growth_refused(3, [[9]]) is bad
    assert growth_refused(3, [[0], [1]]) is bad
    assert growth_refused(3, [[]]) is bad
    assert growth_refused(3, [[0, 0]]) is bad
    assert growth_refused(3, [[0, 1]]) is bad
    moving = {0: ReplicaAssignment((1,), adding=(1,))}
    assert growth_refused(3, existing=moving) is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_given_assignments_of_new_partitions_are_numbered_on() -> None:
    """In the order in which they are given."""
    assert done_here(plan_growth("t", EXISTING, BROKERS, 4, [[2], [0]], random.Random(1))) == {
        2: ReplicaAssignment((2,)),
        3: ReplicaAssignment((0,)),
    }
