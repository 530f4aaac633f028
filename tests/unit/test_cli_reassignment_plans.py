"""Plans of moving replicas: how they are read and refused, what is proposed, and
which throttles go with them."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.cli.options.json_files import duplicates, read_document
from barnabas.cli.replicas.reassignment_plans import (
    Move,
    as_document,
    check_for_execution,
    moves_of,
    parse_reassignment_plan,
    parse_topics,
    propose,
    racks_of,
    topic_throttles,
)
from barnabas.cli.topics.delete_records import read_offset_file
from barnabas.client.admin.log_dirs import Replica
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.cluster.admin_connection import Broker

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


def plan(*partitions: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "partitions": list(partitions)}


def entry(partition: TopicPartition, replicas: list[int], **more: object) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition, "replicas": replicas, **more}


def test_a_plan_gives_replicas_and_the_log_dirs_that_are_not_any() -> None:
    """ "any" and a missing list leave the dir to the broker."""
    read = parse_reassignment_plan(plan(entry(T0, [1, 2], log_dirs=["any", "/data"]), entry(U0, [3])))
    assert read.assignment == {T0: [1, 2], U0: [3]}
    assert read.log_dirs == {Replica(2, "t", 0): "/data"}
    assert read.topics == ["t", "u"]
    check_for_execution(read)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (plan(), "cannot be empty"),
        (plan(entry(T0, [])), "Partition replica list cannot be empty"),
        (plan(entry(T0, [1]), entry(T0, [2])), "duplicate topic partitions: t-0"),
        (plan(entry(T0, [1, 2, 1])), "t-0 contains multiple entries for 1"),
        (plan(entry(T0, [1, 2], log_dirs=["any"])), "is different from size of log dirs list"),
        (plan({"topic": "t", "partition": 0}), 'list of integers "replicas" is expected'),
        (plan({"topic": "t", "replicas": [1]}), 'an integer "partition" is expected'),
        (plan({"partition": 0, "replicas": [1]}), 'a string "topic" is expected'),
        (plan(entry(T0, ["1"])), "must be a list of integers"),
        (plan(entry(T0, [True])), "must be a list of integers"),
        ({"partitions": {"topic": "t"}}, "must be a list of objects"),
        ({"partitions": [1]}, "must be a list of objects"),
    ],
)
def test_a_plan_that_cannot_be_executed_is_refused_with_its_place(document: dict[str, Any], message: str) -> None:
    """Empty, ambiguous and malformed plans."""
    with pytest.raises(ConfigError, match=message):
        check_for_execution(parse_reassignment_plan(document))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "a JSON object is expected"),
        ('{"version": 2}', "Not supported version field value 2"),
        ('{"version": 1}', "Missing partitions field"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', 'an integer "offset"'),
        (json.dumps(plan(*[{"topic": "t", "partition": 0, "offset": 1}] * 2)), "duplicate topic partitions: t-0"),
    ],
)
def test_a_file_of_offsets_that_cannot_be_used_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """What is not JSON, not an object, of another version, incomplete or ambiguous."""
    path = tmp_path / "offsets.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_offset_file(str(path))


def test_a_file_that_is_not_there_is_an_error_of_one_line(tmp_path: Path) -> None:
    """Its path and the system's reason."""
    with pytest.raises(BarnabasError, match="cannot read .*missing.json: No such file"):
        read_document(str(tmp_path / "missing.json"))


def test_topics_to_move_are_listed_once() -> None:
    """In the file's order."""
    assert parse_topics({"topics": [{"topic": "b"}, {"topic": "a"}]}) == ["b", "a"]
    with pytest.raises(ConfigError, match="duplicate entries: a"):
        parse_topics({"topics": [{"topic": "a"}, {"topic": "a"}]})


def test_a_written_plan_reads_back() -> None:
    """In order of topics and partitions, with any log dir."""
    document = as_document({U0: [3], T1: [2, 1], T0: [1, 2]})
    assert [item["partition"] for item in document["partitions"]] == [0, 1, 0]
    assert document["partitions"][0] == entry(T0, [1, 2], log_dirs=["any", "any"])
    assert parse_reassignment_plan(document).assignment == {T0: [1, 2], T1: [2, 1], U0: [3]}


@given(
    st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(1, 8), st.integers(1, 3)), min_size=1),
    st.integers(3, 7),
    st.booleans(),
)
def test_a_proposal_keeps_partitions_and_replication_and_spreads_leaders(
    topics: dict[str, tuple[int, int]], brokers: int, with_racks: bool
) -> None:
    """Distinct brokers of those named, and no broker leads two more partitions of a
    topic than another."""
    current = {
        TopicPartition(topic, number): list(range(100, 100 + factor))
        for topic, (count, factor) in topics.items()
        for number in range(count)
    }
    members = [Broker(n, "h", 1, f"r{n % 2}" if with_racks else None) for n in range(brokers)]
    proposed = propose(current, racks_of(members, rack_aware=True), random.Random(1))
    assert proposed.keys() == current.keys()
    for partition, replicas in proposed.items():
        assert len(set(replicas)) == len(current[partition]) == len(replicas)
        assert set(replicas) <= set(range(brokers))
        if with_racks and len(replicas) > 1:
            assert {broker % 2 for broker in replicas} == {0, 1}
    for topic, (count, _) in topics.items():
        led = [proposed[TopicPartition(topic, number)][0] for number in range(count)]
        assert max(map(led.count, range(brokers))) - min(map(led.count, range(brokers))) <= 1


def test_racks_of_some_brokers_only_are_refused_unless_left_out() -> None:
    """--disable-rack-aware places without them."""
    members = [Broker(0, "h", 1, "r"), Broker(1, "h", 1)]
    with pytest.raises(BarnabasError, match="--disable-rack-aware"):
        racks_of(members, rack_aware=True)
    assert racks_of(members, rack_aware=False) == {0: None, 1: None}


def test_throttles_name_sources_and_destinations_of_all_moves() -> None:
    """A move under way keeps its first sources; entries are sorted as texts, as
    Kafka's tool sorts them."""
    t10 = TopicPartition("t", 10)
    moves = moves_of(
        {T0: Reassignment([3, 1, 2], [3], [1]), U0: Reassignment([5, 4], [5], [4])},
        {T0: [4, 2], T1: [2, 3], t10: [1, 2]},
        {T0: [3, 1, 2], T1: [1, 2], t10: [1, 2]},
    )
    assert moves == {
        T0: Move(frozenset({1, 2}), frozenset({4})),
        T1: Move(frozenset({1, 2}), frozenset({3})),
        t10: Move(frozenset({1, 2}), frozenset()),
        U0: Move(frozenset({4}), frozenset({5})),
    }
    assert topic_throttles(moves) == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:2,10:1,10:2,1:1,1:2",
            "follower.replication.throttled.replicas": "0:4,1:3",
        },
        "u": {"leader.replication.throttled.replicas": "0:4", "follower.replication.throttled.replicas": "0:5"},
    }


@given(st.lists(st.integers(0, 5)))
def test_duplicates_are_each_value_that_occurs_twice(values: list[int]) -> None:
    """Once each."""
    found = duplicates(values)
    assert sorted(found) == sorted({value for value in values if values.count(value) > 1})
