"""One contract for every message in every version: round trips, hostile bytes, what
cannot be encoded."""

import contextlib
import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.files import FileSlice, OsFiles
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import decode, encode, reader
from barnabas.wire.kafka.errors import ErrorCode, KafkaError, MalformedMessageError
from barnabas.wire.kafka.frames import decode_response_header, encode_response
from barnabas.wire.kafka.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from barnabas.wire.kafka.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from barnabas.wire.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas.wire.kafka.messages.metadata import MetadataRequest
from barnabas.wire.kafka.messages.offset_fetch import OffsetFetchRequest
from barnabas.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataRequest
from barnabas.wire.kafka.primitives import read_uvarint, uvarint
from barnabas.wire.kafka.schema import Versions
from support.kafka_messages import all_messages, all_versions, arbitrary, name_of

EVERY = list(all_versions())
SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("case", EVERY, ids=name_of)
def test_a_message_comes_back_as_it_was(case) -> None:
    """Encoding and decoding gives an equal message and takes all bytes, wherever
    they start in the buffer."""
    kind, version = case
    for seed in range(6):
        message = arbitrary(kind, version, Random(seed))
        encoded = encode(message, version)
        for buffer in (bytes(encoded), encoded, memoryview(encoded)):
            assert reader(kind, version)(buffer, 0) == (message, len(encoded))
        assert reader(kind, version)(b"before" + encoded + b"behind", 6) == (message, len(encoded) + 6)


@pytest.mark.parametrize("case", EVERY, ids=name_of)
def test_a_message_cut_anywhere_is_malformed(case) -> None:
    """A message that ends early raises MalformedMessageError."""
    kind, version = case
    encoded = bytes(encode(arbitrary(kind, version, Random(7)), version))
    for end in sorted({*range(min(len(encoded), 40)), *range(0, len(encoded), max(1, len(encoded) // 40))}):
        with pytest.raises(MalformedMessageError):
            decode(kind, version, encoded[:end])


@settings(max_examples=400, deadline=None)
@given(case=st.sampled_from(EVERY), seed=SEEDS, data=st.data())
def test_damaged_messages_are_read_or_malformed(case, seed, data) -> None:
    """Whatever the bytes, a reader returns a message or raises MalformedMessageError."""
    kind, version = case
    encoded = encode(arbitrary(kind, version, Random(seed)), version)
    for _ in range(data.draw(st.integers(1, 4))):
        if encoded:
            at = data.draw(st.integers(0, len(encoded) - 1))
            encoded[at : at + 1] = data.draw(st.binary(min_size=0, max_size=6))
    with contextlib.suppress(MalformedMessageError):
        decode(kind, version, bytes(encoded))


@settings(max_examples=400, deadline=None)
@given(case=st.sampled_from(EVERY), noise=st.binary(max_size=300))
def test_noise_is_read_or_malformed(case, noise: bytes) -> None:
    """Bytes from nowhere raise nothing but MalformedMessageError."""
    with contextlib.suppress(MalformedMessageError):
        decode(case[0], case[1], noise)


@pytest.mark.parametrize("count", [-2, 1, 3, 20_000_000, 2**31 - 1])
def test_a_count_without_its_bytes_is_malformed(count: int) -> None:
    """No list is made for elements that the message cannot hold."""
    with pytest.raises(MalformedMessageError):
        decode(MetadataRequest, 1, count.to_bytes(4, "big", signed=True) if count > 0 else b"\x00\x00\x00")
    compact = uvarint(count + 1) if count > 0 else b"\xff\xff\xff\xff\xff\x01"
    with pytest.raises(MalformedMessageError):
        decode(MetadataRequest, 9, compact)


@pytest.mark.parametrize(
    ("kind", "version", "body"),
    [
        (MetadataRequest, 1, struct.pack(">i", 100_001) + bytes(2 * 100_001)),
        (OffsetFetchRequest, 8, uvarint(100_002) + b"\x01\x00\x00" * 100_001 + b"\0\0"),
        (OffsetFetchRequest, 8, uvarint(2) + b"\x02g\x02\x02t" + uvarint(100_000) + bytes(4 * 99_999 + 4)),
    ],
    ids=["names", "groups", "numbers, counted with what holds them"],
)
def test_a_request_of_very_many_elements_is_malformed(kind, version: int, body: bytes) -> None:
    """A few hundred kilobytes never become gigabytes of objects."""
    with pytest.raises(MalformedMessageError, match="more than 100000 elements"):
        reader(kind, version)(body, 0)


@pytest.mark.parametrize("version", [4, 3])
@pytest.mark.parametrize("name", ["group_id", "group_instance_id"])
def test_a_string_is_as_long_in_flexible_versions_as_in_others(version: int, name: str) -> None:
    """A compact length could say more than 32,767 bytes; Kafka's clients and brokers refuse
    such strings, and so do we."""
    longest = HeartbeatRequest(**{"group_id": "g", "member_id": "m", name: "x" * 32_767})
    assert decode(HeartbeatRequest, version, encode(longest, version)) == longest
    longer = HeartbeatRequest(**{"group_id": "g", "member_id": "m", name: "x" * 32_768})
    with pytest.raises(ValueError, match="cannot be encoded"):
        encode(longer, version)
    if version == 4:
        encoded = bytes(encode(longest, version)).replace(uvarint(32_768), uvarint(32_769)) + b"\0"
        with pytest.raises(MalformedMessageError, match=f"{name} is longer than 32767 bytes"):
            decode(HeartbeatRequest, version, encoded)


@pytest.mark.parametrize("version", [7, 2])
def test_an_error_that_quotes_the_longest_name_fits_into_its_answer(version: int) -> None:
    """Otherwise the answer to all topics of the request would be lost with it."""
    name = "\U0001f40d" * (32_767 // 4)
    error = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The name {name} is not allowed, {name} neither.")
    answer = CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
    found = decode(CreateTopicsResponse, version, encode(CreateTopicsResponse(topics=[answer]), version)).topics[0]
    assert found.name == name
    assert found.error_message is not None
    assert found.error_message.startswith("The name ")
    assert found.error_message.endswith(" ...")


def test_responses_and_the_controllers_requests_may_have_many_elements() -> None:
    """A large cluster's metadata is read by our own clients, and by brokers from
    their controller."""
    response = encode(DescribeGroupsResponse(groups=[DescribedGroup()] * 100_001), 5)
    assert len(decode(DescribeGroupsResponse, 5, response).groups) == 100_001
    update = encode(UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker()] * 100_001), 8)
    assert len(decode(UpdateMetadataRequest, 8, update).live_brokers) == 100_001


@pytest.mark.parametrize("version", [3, 9])
def test_null_is_refused_where_it_is_not_allowed(version: int) -> None:
    """A null list of topics is no produce request, but one of metadata."""
    null = b"\x00" if version == 9 else b"\xff\xff\xff\xff"
    transactional_id = b"\x00" if version == 9 else b"\xff\xff"
    with pytest.raises(MalformedMessageError, match="topic_data must not be null"):
        decode(ProduceRequest, version, transactional_id + b"\0\1\0\0\0\1" + null + b"\0")
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None


def test_unknown_tagged_fields_are_skipped() -> None:
    """A newer client's tagged fields do not disturb an older reader."""
    request = MetadataRequest(topics=None)
    encoded = bytes(encode(request, 9))
    assert encoded.endswith(b"\x00")
    with_tags = encoded[:-1] + b"\x02" + b"\x05\x03abc" + uvarint(1000) + b"\x00"
    assert reader(MetadataRequest, 9)(with_tags, 0) == (request, len(with_tags))


def test_a_tagged_field_longer_than_the_message_is_malformed() -> None:
    """The size of a tagged field is checked before it is skipped."""
    encoded = bytes(encode(MetadataRequest(topics=None), 9))
    with pytest.raises(MalformedMessageError):
        decode(MetadataRequest, 9, encoded[:-1] + b"\x01\x05\x7f")


def test_a_field_that_the_version_lacks_is_refused_unless_it_may_be_ignored() -> None:
    """As in Apache Kafka, saying something a version cannot say is an error of the caller."""
    with pytest.raises(KafkaError) as caught:
        encode(MetadataRequest(topics=[], allow_auto_topic_creation=False), 3)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert encode(MetadataRequest(topics=[]), 3) == b"\0\0\0\0"


@pytest.mark.parametrize("version", [-1, 2, 14, 99])
def test_versions_a_message_does_not_have_are_refused(version: int) -> None:
    """Neither reading nor writing guesses at versions."""
    for act in (lambda: decode(ProduceRequest, version, b""), lambda: encode(ProduceRequest(), version)):
        with pytest.raises(KafkaError) as caught:
            act()
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_what_cannot_be_encoded_raises_value_error() -> None:
    """A null or a number that does not fit is reported with the message's name."""
    for request in (ProduceRequest(acks=1 << 20), ProduceRequest(topic_data=[TopicProduceData(name=None)])):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="ProduceRequest v9 cannot be encoded"):
            encode(request, 9)


def test_records_are_views_of_the_frame() -> None:
    """The bytes of a batch are not copied when a produce request is read."""
    partition = PartitionProduceData(records=b"r" * 100)
    frame = memoryview(encode(ProduceRequest(topic_data=[TopicProduceData(partition_data=[partition])]), 9))
    records = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame.obj


def test_file_slices_stay_parts_of_their_own(tmp_path) -> None:
    """A fetch response carries a range of a file past Python."""
    (tmp_path / "segment").write_bytes(b"0123456789" * 100)
    file = OsFiles().open(str(tmp_path / "segment"), read_only=True)
    piece = FileSlice(file, 10, 500)
    large = b"l" * 5000
    partitions = [PartitionData(records=piece), PartitionData(records=large), PartitionData(records=b"small")]
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    for version in (4, 12, 17):
        parts = encode_response(response, version, 1)
        assert len(parts) == 5
        assert parts[1] is piece
        assert parts[3] is large
        frame = b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
        whole = frame[4 + decode_response_header(frame[4:], ApiKey.FETCH, version).body_offset :]
        assert whole == encode(response, version)
        read = decode(FetchResponse, version, whole).responses[0].partitions
        assert [bytes(partition.records) for partition in read] == [piece.read(), large, b"small"]


def test_messages_know_their_apis() -> None:
    """Each key has a request and a response with the same versions and flexible versions."""
    assert len({key.title for key in ApiKey}) == len(ApiKey)
    for key in ApiKey:
        found = api(key)
        assert found.request.API_KEY == found.response.API_KEY == key
        assert found.request.VERSIONS == found.response.VERSIONS
        first, last = found.versions
        for version in range(first, last + 1):
            assert (version in found.request.FLEXIBLE) == (version in found.response.FLEXIBLE), (key, version)


def test_an_unknown_api_is_an_unsupported_version() -> None:
    """What a broker answers to a key that is not defined."""
    with pytest.raises(KafkaError) as caught:
        api(9999)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_messages_are_built_compared_and_shown() -> None:
    """Defaults are fresh for each object; unknown names are refused; long bytes do
    not flood logs."""
    one, other = ProduceRequest(), ProduceRequest()
    assert one == other
    one.topic_data.append(TopicProduceData(partition_data=[PartitionProduceData(records=b"x" * 99)]))
    assert one != other
    assert other.topic_data == []
    assert "records=<99 bytes>" in repr(one)
    with pytest.raises(TypeError):
        ProduceRequest(topics=[])  # type: ignore[call-arg]
    for kind in all_messages():
        assert kind() == kind()
        with pytest.raises(AttributeError):
            kind().not_a_field = 1


@given(value=st.integers(0, 2**31 - 1))
def test_variable_length_integers_come_back(value: int) -> None:
    """What is written is read, and nothing longer is taken."""
    assert read_uvarint(uvarint(value) + b"x", 0) == (value, len(uvarint(value)))


@pytest.mark.parametrize("data", [b"\xff" * 5, b"\xff" * 9 + b"\1", b"\xff\xff\xff\xff\x08", b"\x80" * 5 + b"\0"])
def test_variable_length_integers_beyond_31_bits_are_malformed(data: bytes) -> None:
    """A length is at most 2^31 - 1."""
    with pytest.raises(MalformedMessageError):
        read_uvarint(data, 0)


def test_version_ranges_are_read_as_kafka_writes_them() -> None:
    """Open ends, ranges, single versions and none."""
    assert [3 in Versions.parse(text) for text in ("0+", "4+", "1-3", "1-2", "3", "none")] == [
        True, False, True, False, True, False,
    ]  # fmt: skip
