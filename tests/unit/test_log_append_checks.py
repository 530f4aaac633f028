"""Limits of what a leader takes into its log."""

import pytest

from barnabas.log.append_checks import unpack_header, validate_batch
from barnabas.log.producer_state import Origin
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.records import Record, build_batch

NOW = 1_700_000_000_000


def test_a_batch_of_just_the_largest_size_is_taken_and_a_byte_more_refused() -> None:
    """max.message.bytes counts the whole batch, its header included."""
    batch = build_batch([Record(0, NOW, None, b"x" * 100)])
    fits = LogConfig({"max.message.bytes": str(len(batch))})
    validate_batch(batch, unpack_header(batch), fits, Origin.CLIENT, NOW)
    too_small = LogConfig({"max.message.bytes": str(len(batch) - 1)})
    with pytest.raises(KafkaError) as error:
        validate_batch(batch, unpack_header(batch), too_small, Origin.CLIENT, NOW)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE
