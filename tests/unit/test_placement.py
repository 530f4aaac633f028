"""Placement of replicas: the textbook's table of two racks, and what holds for every cluster."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.tasks import done_here
from barnabas.broker.topics.placement import assign_replicas, rack_alternated
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

TWO_RACKS = {0: "R1", 1: "R1", 2: "R1", 3: "R2", 4: "R2", 5: "R2"}


def test_racks_alternate_in_the_list_of_brokers() -> None:
    """Racks R1 = 0,1,2 and R2 = 3,4,5 give the order 0,3,1,4,2,5."""
    assert rack_alternated(TWO_RACKS) == [0, 3, 1, 4, 2, 5]


def test_racks_of_different_sizes_alternate_while_they_last() -> None:
    """The larger rack's brokers come last."""
    assert rack_alternated({0: "b", 1: "a", 2: "b", 3: "b"}) == [1, 0, 2, 3]


def test_the_table_of_two_racks_comes_out_exactly() -> None:
    """Six brokers on two racks, ten partitions of three replicas, start index and shift 0."""
    assert done_here(assign_replicas(TWO_RACKS, 10, 3, random.Random(1), fixed_start=0)) == {
        0: (0, 3, 1),
        1: (3, 1, 4),
        2: (1, 4, 2),
        3: (4, 2, 5),
        4: (2, 5, 0),
        5: (5, 0, 3),
        6: (0, 4, 2),
        7: (3, 2, 5),
        8: (1, 5, 0),
        9: (4, 0, 3),
    }


def test_brokers_without_racks_follow_the_example_of_kafkas_documentation() -> None:
    """Five brokers, ten partitions of three replicas, start index and shift 0."""
    assert done_here(assign_replicas(dict.fromkeys(range(5)), 10, 3, random.Random(1), fixed_start=0)) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_added_partitions_go_on_where_the_topic_ended() -> None:
    """Numbers begin at the first new partition, and the fixed start keeps the round going."""
    whole = done_here(assign_replicas(dict.fromkeys(range(5)), 10, 3, random.Random(1), fixed_start=0))
    added = done_here(
        assign_replicas(dict.fromkeys(range(5)), 2, 3, random.Random(1), fixed_start=0, first_partition=4)
    )
    assert added[4] == whole[4]
    assert set(added) == {4, 5}


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_numbers_that_cannot_be_are_refused(partitions: int, factor: int, code: ErrorCode) -> None:
    """No partitions, no replicas, or more replicas than brokers."""
    with pytest.raises(KafkaError) as refused:
        done_here(assign_replicas({0: None, 1: None}, partitions, factor, random.Random(1)))
    assert refused.value.code is code


def test_racks_of_some_brokers_only_are_refused() -> None:
    """Where a rack is missing nothing can be said about the spread over racks."""
    with pytest.raises(KafkaError, match="rack"):
        done_here(assign_replicas({0: "a", 1: None}, 1, 1, random.Random(1)))


@given(
    racks=st.dictionaries(st.integers(0, 50), st.sampled_from("abcd"), min_size=1, max_size=12),
    partitions=st.integers(1, 60),
    with_racks=st.booleans(),
    seed=st.integers(0, 9),
    data=st.data(),
)
def test_replicas_are_distinct_spread_and_on_as_many_racks_as_there_are(
    racks: dict[int, str], partitions: int, with_racks: bool, seed: int, data: st.DataObject
) -> None:
    """Brokers of a partition differ, first replicas are even to one, and racks are used
    before any is used twice."""
    factor = data.draw(st.integers(1, len(racks)))
    known: dict[int, str | None] = dict(racks) if with_racks else dict.fromkeys(racks)
    placed = done_here(assign_replicas(known, partitions, factor, random.Random(seed)))
    assert sorted(placed) == list(range(partitions))
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in racks) <= 1
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        if with_racks:
            assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))


def test_a_seed_repeats_its_choices() -> None:
    """Start index and shift are drawn from the given generator only."""
    brokers = dict.fromkeys(range(7))
    assert done_here(assign_replicas(brokers, 9, 3, random.Random(5))) == done_here(
        assign_replicas(brokers, 9, 3, random.Random(5))
    )
