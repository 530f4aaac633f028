"""The short ways to read and write committed offsets, against the codecs of all versions."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import CorruptDataError
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Beside, done_here
from barnabas.broker.groups.loading import Loader
from barnabas.broker.groups.offsets import CommittedOffset
from barnabas.broker.groups.records import (
    GroupRecord,
    GroupValue,
    MemberValue,
    OffsetRecord,
    add_offset_records,
    decode_record,
    encode_batch,
    encode_record,
)
from barnabas.wire.kafka.consumer_protocol import begins_with_topics, decode_subscription, encode_topics
from barnabas.wire.kafka.coordinator_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    unpack_offset_key,
    unpack_plain_offset,
)
from barnabas.wire.kafka.errors import MalformedMessageError
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, assign_offsets
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch, build_batch_around, read_pairs, read_records

names = st.text(max_size=20)
few_names = st.sampled_from(["g", "h", "group"])
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
committed = st.builds(CommittedOffset, int64, int32, st.just("") | names, int64, st.just(-1) | st.integers(0, 1 << 62))
contents = st.none() | st.binary(max_size=200)


@given(names, names, int32, committed)
def test_a_committed_offset_has_the_bytes_that_the_codecs_write(
    group: str, topic: str, partition: int, value: CommittedOffset
) -> None:
    """With metadata and expiry or without, and it is read back as it was."""
    record = OffsetRecord(group, TopicPartition(topic, partition), value)
    key, data = encode_record(record)
    offset, leader_epoch, metadata, commit_timestamp, expire_timestamp = value
    assert key == encode_key(OffsetCommitKey(group=group, topic=topic, partition=partition))
    assert data == encode_value(
        OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp=commit_timestamp,
            expire_timestamp=expire_timestamp,
        )
    )
    if expire_timestamp != -1:  # version 1 has no leader epoch
        record = record._replace(value=value._replace(leader_epoch=-1))
    assert decode_record(key, data) == record


@given(names, names, st.lists(st.tuples(int32, committed), min_size=1, max_size=300), st.integers(0, 200))
def test_committed_offsets_make_the_batch_that_single_records_make(
    group: str, topic: str, offsets: list[tuple[int, CommittedOffset]], first: int
) -> None:
    """In two calls, as slices of a large commit add them."""
    records = [OffsetRecord(group, TopicPartition(topic, index), value) for index, value in offsets]
    body = bytearray()
    partitions = [record.topic_partition for record in records]
    values = [value for _, value in offsets]
    add_offset_records(body, group, topic, partitions[:first], values[:first], 0)
    add_offset_records(body, group, topic, partitions[first:], values[first:], len(records[:first]))
    assert build_batch_around(body, len(records), 1_700_000_000_000) == encode_batch(
        records, 1_700_000_000_000, CompressionType.NONE
    )


@given(
    st.binary(max_size=40)
    | st.builds(lambda head, rest: bytes([0, head]) + rest, st.integers(0, 4), st.binary(max_size=40))
)
def test_any_bytes_are_read_as_the_codecs_read_them(data: bytes) -> None:
    """A short way that is not sure leaves the bytes to the codec."""
    found = unpack_offset_key(data)
    if found is not None:
        key = decode_key(data)
        assert isinstance(key, OffsetCommitKey)
        assert found == (key.group, key.topic, key.partition)
    plain = unpack_plain_offset(data)
    if plain is not None:
        value = decode_value(OffsetCommitKey(group="", topic="", partition=0), data)
        assert plain == (value.offset, value.leader_epoch, value.commit_timestamp)
        assert value.metadata == ""
    with contextlib.suppress(MalformedMessageError):
        decode_record(data, data)


@given(
    st.lists(
        st.tuples(st.integers(0, 1 << 42), contents, contents, st.lists(st.tuples(names, contents), max_size=2)),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from(CompressionType),
    st.data(),
)
def test_keys_and_values_are_those_of_the_records(rows: list, codec: CompressionType, draw: st.DataObject) -> None:
    """In sound batches; in a damaged one either way of reading finds the same, or at
    least one refuses it."""
    batch = build_batch([Record(at, *row) for at, row in enumerate(rows)], compression=codec)
    assert read_pairs(batch) == [(record.key, record.value) for record in read_records(batch)]
    if codec is CompressionType.NONE:
        batch[draw.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = draw.draw(st.integers(0, 255))
        with contextlib.suppress(CorruptDataError):
            assert read_pairs(batch) == [(record.key, record.value) for record in read_records(batch)]


plain_commits = st.builds(
    lambda group, topic, partitions, offset: [
        OffsetRecord(group, TopicPartition(topic, partition), CommittedOffset(offset + at, at, "", at))
        for at, partition in enumerate(partitions)
    ],
    few_names,
    few_names,
    st.lists(st.integers(0, 20), min_size=1, max_size=80),
    int32,
)
any_commits = st.lists(
    st.builds(OffsetRecord, few_names, st.builds(TopicPartition, few_names, st.integers(0, 20)), st.none() | committed),
    min_size=1,
    max_size=20,
)


@given(st.lists(st.tuples(plain_commits | any_commits, st.sampled_from([CompressionType.NONE, CompressionType.LZ4]))))
def test_groups_loaded_by_whole_batches_are_those_loaded_by_single_records(
    batches: list[tuple[list[OffsetRecord], CompressionType]],
) -> None:
    """Batches of plain offsets of one group and topic are read together, all others record by
    record; the last one holds."""
    together, single = Loader(0), Loader(0)
    log = bytearray()
    end = 0
    for records, codec in batches:
        batch = encode_batch(records, 5, codec)
        assign_offsets(batch, 0, end, 1)
        log += batch
        for record in records:
            single.add(*encode_record(record), end)
        end += len(records)
    assert list(together.read(bytes(log)))[-1:] == ([end] if batches else [])
    for loader in (together, single):
        done_here(loader.steps())
    assert not together.unreadable
    assert {group: found.offsets.committed for group, found in together.groups.items()} == {
        group: found.offsets.committed for group, found in single.groups.items()
    }


def test_only_groups_with_much_in_their_record_are_loaded_in_a_thread() -> None:
    """Those whose ids are as long are found in the same step, and are made without one."""
    loader = Loader(0)
    for number in range(3):
        members = [
            MemberValue(f"m{n}", None, "c", "h", 1, 1, bytes(40_000), b"") for n in range(3 if number == 1 else 1)
        ]
        value = GroupValue("consumer", number, "range", "m0", 0, members)
        loader.add(*encode_record(GroupRecord(f"g{number}", value)), number)
    steps = list(loader.steps())
    assert sorted(loader.groups) == ["g0", "g2"]
    (large,) = [step for step in steps if step is not None]
    assert isinstance(large, Beside)
    large.work()
    assert {name: (group.generation_id, len(group.members)) for name, group in loader.groups.items()} == {
        "g0": (0, 1),
        "g1": (1, 3),
        "g2": (2, 1),
    }


@given(
    topics=st.lists(st.text(max_size=5), max_size=4),
    other=st.lists(st.text(max_size=5), max_size=4),
    tail=st.binary(max_size=8),
    version=st.integers(-1, 4),
)
def test_topics_are_recognised_only_where_decoding_finds_the_same(
    topics: list[str], other: list[str], tail: bytes, version: int
) -> None:
    """A member's metadata that begins with known topics, with whatever follows."""
    for named in (topics, other):
        metadata = version.to_bytes(2, "big", signed=True) + encode_topics(named) + tail
        try:
            found = decode_subscription(metadata, as_version=0).topics
        except MalformedMessageError:
            found = None
        assert begins_with_topics(metadata, encode_topics(topics)) == (found == topics)
