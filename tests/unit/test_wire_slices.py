"""Large messages are read and written in slices by generators: to the same bytes, the same
messages, the same refusals."""

from random import Random

import pytest

from barnabas.base.files import FileSlice
from barnabas.base.tasks import done_here
from barnabas.wire.kafka.codec import encode, reader, sliced_reader, sliced_writer
from barnabas.wire.kafka.errors import MalformedMessageError
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.kafka.schema import STRUCTURES_A_STEP
from support.kafka_messages import all_versions, arbitrary, name_of

CASES = list(all_versions())


@pytest.mark.parametrize("case", CASES, ids=map(name_of, CASES))
def test_slices_give_the_same_bytes_and_the_same_message(case) -> None:
    """Of every message in every version."""
    kind, version = case
    message = arbitrary(kind, version, Random(7))
    expected = encode(message, version)
    pieces: list = []
    done_here(sliced_writer(kind, version)(message, pieces.append))
    assert b"".join(p.read() if isinstance(p, FileSlice) else p for p in pieces) == expected
    read, at = done_here(sliced_reader(kind, version)(memoryview(expected), 0))
    again, at_again = reader(kind, version)(memoryview(expected), 0)
    assert (encode(read, version), at) == (encode(again, version), at_again)


def test_a_large_message_yields_after_some_structures() -> None:
    """So no slice is much longer than the time for it, and a small message never yields."""
    message = MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{n}") for n in range(1000)])
    assert len(list(sliced_reader(MetadataRequest, 9)(bytes(encode(message, 9)), 0))) == 1000 // STRUCTURES_A_STEP
    assert len(list(sliced_writer(MetadataRequest, 9)(message, lambda _: None))) == 1000 // STRUCTURES_A_STEP


def test_a_message_that_ends_early_is_refused_in_slices_too() -> None:
    """With the same error."""
    data = bytes(encode(MetadataRequest(topics=[MetadataRequestTopic(name="topic")] * 10), 9))
    with pytest.raises(MalformedMessageError):
        done_here(sliced_reader(MetadataRequest, 9)(data[:-3], 0))
