"""Names, formats and translated offsets of a mirror between two named clusters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError, CorruptDataError
from barnabas.base.ids import TopicPartition
from barnabas.mirror.link_records import GroupCheckpoint, LinkHeartbeat, OffsetSync
from barnabas.mirror.offset_translation import OffsetTranslation
from barnabas.mirror.replication_policy import ORIGIN_HEADER, ReplicationPolicy, are_heartbeats

ORDERS = TopicPartition("orders", 0)


def test_the_bytes_of_records_are_those_of_mirrormaker_2() -> None:
    """Strings with 16 bits of length, integers big-endian, version 0 before the
    values but of syncs."""
    beat = LinkHeartbeat("a", "b", 5)
    assert beat.key() == b"\0\1a\0\1b"
    assert beat.value() == b"\0\0" + (5).to_bytes(8)
    checkpoint = GroupCheckpoint("g", "a.t", 3, 10, 7, "m")
    assert checkpoint.key() == b"\0\1g\0\3a.t" + (3).to_bytes(4)
    assert checkpoint.value() == b"\0\0" + (10).to_bytes(8) + (7).to_bytes(8) + b"\0\1m"
    assert OffsetSync("t", 3, 10, 7).value() == (10).to_bytes(8) + (7).to_bytes(8)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_checkpoints_and_syncs_are_read_as_written(group: str, topic: str, partition: int, offset: int) -> None:
    """Of any group, topic and offset."""
    checkpoint = GroupCheckpoint(group, topic, partition, offset, offset // 2, group)
    assert GroupCheckpoint.decode(checkpoint.key(), checkpoint.value()) == checkpoint
    sync = OffsetSync(topic, partition, offset, offset // 2)
    assert OffsetSync.decode(sync.key(), sync.value()) == sync


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_other_bytes_are_refused_or_read(key: bytes, value: bytes) -> None:
    """Nothing but `CorruptDataError`."""
    for kind in (GroupCheckpoint, OffsetSync):
        try:
            kind.decode(key, value)
        except CorruptDataError:
            continue


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 5)), min_size=1, max_size=400),
    st.lists(st.integers(0, 2000), max_size=20),
    st.data(),
)
def test_a_translated_offset_is_never_beyond_what_the_group_has_read(
    steps: list[tuple[int, int]], marks: list[int], data: st.DataObject
) -> None:
    """Against the whole table of offsets: with gaps in the source and records of
    others in the target."""
    translation = OffsetTranslation(100)
    table: list[tuple[int, int]] = []
    upstream = downstream = -1
    for number, (up, down) in enumerate(steps):
        upstream, downstream = upstream + (up if up > 250 else 1), downstream + (down if up > 280 else 1)
        table.append((upstream, downstream))
        translation.copied(ORDERS, upstream, downstream)
        if number in marks:
            translation.mark()
    committed = data.draw(st.integers(0, upstream + 1))
    unread = [down for up, down in table if up >= committed]
    translated = translation.translate(ORDERS, committed)
    if translated is not None and unread:
        assert translated <= unread[0]
    translation.mark()
    assert translation.translate(ORDERS, upstream + 1) == downstream + 1


def test_what_is_far_in_the_past_is_known_roughly_and_what_was_never_copied_not_at_all() -> None:
    """64 pairs at most, the older ones further apart."""
    translation = OffsetTranslation(1)
    for number in range(1000, 101_000):
        translation.copied(ORDERS, number, number - 1000)
    assert translation.translate(ORDERS, 999) is None
    assert translation.translate(TopicPartition("orders", 1), 5) is None
    assert translation.translate(ORDERS, 100_999) == 99_999
    assert 0 <= translation.translate(ORDERS, 51_000) <= 50_000


def test_a_topic_that_was_made_again_in_the_target_has_new_pairs() -> None:
    """The old ones do not hold."""
    translation = OffsetTranslation()
    translation.load(OffsetSync("orders", 0, 500, 500))
    translation.copied(ORDERS, 0, 0)
    assert translation.translate(ORDERS, 600) == 1
    syncs = translation.unwritten()
    assert syncs == [OffsetSync("orders", 0, 0, 0)]
    translation.written(syncs)
    assert translation.unwritten() == []


def test_a_pair_is_unwritten_until_it_is_written_itself() -> None:
    """The source may be away when it is first tried, and a later pair may come while
    an earlier one is written."""
    translation = OffsetTranslation()
    translation.copied(ORDERS, 0, 0)
    syncs = translation.unwritten()
    assert syncs == translation.unwritten() == [OffsetSync("orders", 0, 0, 0)]
    translation.copied(ORDERS, 500, 400)
    translation.written(syncs)
    assert translation.unwritten() == [OffsetSync("orders", 0, 500, 400)]


def test_names_show_the_way_and_prevent_loops() -> None:
    """Of topics and heartbeats; the mirrors' own topics are never copied."""
    policy = ReplicationPolicy("a", "b")
    assert policy.remote("orders") == "a.orders"
    assert policy.remote("c.orders") == "a.c.orders"
    assert [policy.may_copy(topic) for topic in ("orders", "c.orders", "b.orders", "c.b.orders")] == [
        True,
        True,
        False,
        False,
    ]
    own = ("mm2-offset-syncs.c.internal", "c.checkpoints.internal", "b.heartbeats", "mm2-configs.c.internal")
    assert not any(map(policy.may_copy, own))
    assert policy.may_copy("heartbeats")


def test_with_equal_names_a_header_prevents_loops() -> None:
    """It has the clusters that the record came through."""
    there, back = ReplicationPolicy("a", "b", has_prefixes=False), ReplicationPolicy("b", "a", has_prefixes=False)
    headers = there.headers([("mine", b"1")])
    assert headers == [("mine", b"1"), (ORIGIN_HEADER, b"a")]
    assert there.remote("orders") == "orders"
    assert there.remote("heartbeats") == "a.heartbeats"
    assert there.remote("sensor-heartbeats") == "sensor-heartbeats"
    assert [
        name for name in ("heartbeats", "a.heartbeats", "sensor-heartbeats", "heartbeats.a") if are_heartbeats(name)
    ] == [
        "heartbeats",
        "a.heartbeats",
    ]
    assert not there.came_from_target([("mine", b"1")])
    assert back.came_from_target(headers)
    assert ReplicationPolicy("b", "c", has_prefixes=False).headers(headers)[-1] == (ORIGIN_HEADER, b"a,b")


@pytest.mark.parametrize(("source", "target"), [("", "b"), ("a.b", "c"), ("a", "a")])
def test_names_of_clusters_that_cannot_be_distinguished_are_refused(source: str, target: str) -> None:
    """Empty, with dots, or equal."""
    with pytest.raises(ConfigError):
        ReplicationPolicy(source, target)
