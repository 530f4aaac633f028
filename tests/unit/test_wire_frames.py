"""Headers and whole frames, and the stored records that start with a version."""

import struct
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import encode, reader
from barnabas.wire.kafka.consumer_protocol import (
    AssignedPartitions,
    Assignment,
    OwnedPartitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.wire.kafka.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
    decode_key,
    decode_transaction_key,
    decode_value,
    encode_key,
    encode_value,
)
from barnabas.wire.kafka.errors import ErrorCode, KafkaError, MalformedMessageError
from barnabas.wire.kafka.frames import (
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
    free_in_slices,
)
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.primitives import uvarint
from support.kafka_messages import arbitrary

EVERY = [(key, version) for key in ApiKey for version in range(api(key).versions.first, api(key).versions.last + 1)]


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ü"])
@pytest.mark.parametrize("case", EVERY, ids=lambda case: f"{case[0].title}-{case[1]}")
def test_a_request_frame_comes_back(case, client_id: str | None) -> None:
    """The length counts what follows it, and the header says where the message starts."""
    key, version = case
    message = arbitrary(api(key).request, version, Random(1))
    frame = b"".join(encode_request(message, version, 77, client_id))
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    header = decode_request_header(memoryview(frame)[4:])
    has_client_id = (key, version) != (ApiKey.CONTROLLED_SHUTDOWN, 0)
    assert header[:4] == (key, version, 77, client_id if has_client_id else None)
    assert frame[4 + header.body_offset :] == encode(message, version)


@pytest.mark.parametrize("case", EVERY, ids=lambda case: f"{case[0].title}-{case[1]}")
def test_a_response_frame_comes_back(case) -> None:
    """ApiVersions answers with the oldest header in all versions (KIP-511), flexible
    versions else with the newer."""
    key, version = case
    message = arbitrary(api(key).response, version, Random(2))
    frame = b"".join(encode_response(message, version, -5))
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    header = decode_response_header(frame[4:], key, version)
    flexible = version in api(key).flexible and key is not ApiKey.API_VERSIONS
    assert header == (-5, 5 if flexible else 4)
    assert frame[4 + header.body_offset :] == encode(message, version)


def test_a_header_of_an_unknown_api_or_version_is_still_read() -> None:
    """The broker needs the correlation id to answer UNSUPPORTED_VERSION."""
    for key, version in ((9999, 0), (18, 99), (3, -1), (-1, 0)):
        header = decode_request_header(struct.pack(">hhih", key, version, 5, 2) + b"me\0")
        assert header[:4] == (key, version, 5, "me")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\3\0\1\0\0\0",
        b"\0\3\0\1\0\0\0\1",
        b"\0\3\0\1\0\0\0\1\0\5ab",
        b"\0\3\0\1\0\0\0\1\0\1\xff",
        b"\0\3\0\x09\0\0\0\1\xff\xff",
    ],
)
def test_a_broken_header_is_malformed(data: bytes) -> None:
    """Cut anywhere, a client id beyond the end, or no text."""
    with pytest.raises(MalformedMessageError):
        decode_request_header(data)


@settings(max_examples=500)
@given(st.binary(max_size=60))
def test_any_header_is_read_or_malformed(data: bytes) -> None:
    """A header never reaches beyond its frame."""
    for read in (decode_request_header, lambda data: decode_response_header(data, 3, 12)):
        try:
            assert read(data).body_offset <= len(data)
        except MalformedMessageError:
            continue


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.FETCH])
def test_only_so_many_tagged_fields_in_one_place_are_read(api_key: ApiKey) -> None:
    """In headers and bodies, whose type may have tagged fields of its own; a request has room
    for a million empty ones."""
    version = 12 if api_key == ApiKey.FETCH else 9
    message = api(api_key).request()
    content = b"".join(bytes(part) for part in encode_request(message, version, 1, "a"))[4:]
    assert content[11] == content[-1] == 0
    few, many = (uvarint(count) + b"\x7f\0" * count for count in (1_000, 1_001))
    offset = decode_request_header(content[:11] + few + content[12:])[4]
    assert offset == 11 + len(few)
    with pytest.raises(MalformedMessageError):
        decode_request_header(content[:11] + many + content[12:])
    decode = reader(api(api_key).request, version)
    decode(content[:-1] + few, 12)
    with pytest.raises(MalformedMessageError):
        decode(content[:-1] + many, 12)


def test_stored_records_have_the_bytes_of_apache_kafka() -> None:
    """Golden bytes: the layout of __consumer_offsets and __transaction_state in 3.9."""
    assert encode_key(OffsetCommitKey(group="g", topic="t", partition=3)) == b"\0\1\0\1g\0\1t\0\0\0\3"
    assert encode_key(GroupMetadataKey(group="g")) == b"\0\2\0\1g"
    assert encode_key(TransactionLogKey(transactional_id="x")) == b"\0\0\0\1x"
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=7)
    assert encode_value(value) == b"\0\3" + struct.pack(">qi", 5, 2) + b"\0\1m" + struct.pack(">q", 7)
    value.expire_timestamp = 9
    assert encode_value(value) == b"\0\1" + struct.pack(">q", 5) + b"\0\1m" + struct.pack(">qq", 7, 9)


def test_stored_records_come_back() -> None:
    """Keys determine their values' type."""
    for key, kind in (
        (OffsetCommitKey(group="g", topic="t", partition=1), OffsetCommitValue),
        (GroupMetadataKey(group="g"), GroupMetadataValue),
    ):
        assert decode_key(encode_key(key)) == key
        value = arbitrary(kind, 3, Random(1))
        assert decode_value(key, encode_value(value)) == value
    key = TransactionLogKey(transactional_id="t")
    assert decode_transaction_key(encode_key(key)) == key
    value = arbitrary(TransactionLogValue, 0, Random(1))
    assert decode_value(key, encode_value(value)) == value


def test_kinds_of_keys_that_newer_coordinators_write_are_passed_over() -> None:
    """A log that Kafka 4 has written to can be loaded."""
    assert decode_key(b"\0\3\0\1g") is None
    assert decode_transaction_key(b"\0\1\0") is None


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1", b"\0\1\0\5g", b"\0\2\xff\xff", b"\xff\xff\0\0"])
def test_broken_keys_and_values_are_malformed(data: bytes) -> None:
    """A corrupt record raises one kind of error."""
    if data[:2] != b"\xff\xff":
        with pytest.raises(MalformedMessageError):
            decode_key(data)
    with pytest.raises(MalformedMessageError):
        decode_value(GroupMetadataKey(group="g"), data)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_consumer_protocol_comes_back(version: int) -> None:
    """What the version lacks is left out silently: assignors of different ages work together."""
    subscription = Subscription(
        topics=["a", "b"],
        user_data=b"u",
        owned_partitions=[OwnedPartitions(topic="a", partitions=[0, 2])],
        generation_id=4,
        rack_id="r",
    )
    read = decode_subscription(encode_subscription(subscription, version))
    assert read.topics == ["a", "b"]
    assert read.owned_partitions == (subscription.owned_partitions if version else [])
    assert read.generation_id == (4 if version >= 2 else -1)
    assert read.rack_id == ("r" if version == 3 else None)
    assignment = Assignment(assigned_partitions=[AssignedPartitions(topic="a", partitions=[1])])
    assert decode_assignment(encode_assignment(assignment, version)) == assignment


def test_a_subscription_of_a_newer_version_is_read() -> None:
    """Newer versions append fields: what follows is passed over."""
    data = encode_subscription(Subscription(topics=["a"]))
    assert decode_subscription(b"\0\x09" + data[2:] + b"more").topics == ["a"]
    assert decode_subscription(b"\0\3" + encode(Subscription(topics=["a"]), 0), 0).topics == ["a"]


def test_errors_carry_code_and_message() -> None:
    """An unknown code is an unknown server error."""
    assert str(KafkaError(ErrorCode.NOT_CONTROLLER)) == "this broker is not the controller"
    assert str(KafkaError(3, "no such topic")) == "no such topic"
    assert KafkaError(12345).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.INVALID_TOPIC_EXCEPTION.retriable
    assert all(code.message for code in ErrorCode)


def test_a_large_message_is_freed_piece_by_piece_and_not_changed() -> None:
    """Each step frees one structure, however deep it is; who still reads a part of
    the message has all of it."""
    freed: list[int] = []

    class Index(int):
        def __del__(self) -> None:
            freed.append(int(self))

    topics = [
        ListOffsetsTopic(partitions=[ListOffsetsPartition(partition_index=Index(n)) for n in range(50)])
        for _ in range(20)
    ]
    kept = topics[7]
    held = [ListOffsetsRequest(topics=topics), None]
    del topics
    counts = [0, *(len(freed) for _ in free_in_slices(held))]
    assert max(after - before for before, after in pairwise(counts)) == 1
    assert len(freed) == 19 * 50
    assert len(kept.partitions) == 50
