"""Records of ``__transaction_state``, and loading them."""

import struct

import pytest

from barnabas.base.tasks import done_here
from barnabas.broker.transactions.loading import TransactionLoader
from barnabas.broker.transactions.records import (
    TransactionRecord,
    decode_transaction_state,
    encode_transaction_state,
    encode_transactional_id,
)
from barnabas.broker.transactions.states import TransactionState
from barnabas.broker.transactions.transaction import TransactionMetadata, Transition
from barnabas.wire.kafka.errors import MalformedMessageError
from barnabas.wire.kafka.records.records import Record, build_batch

VALUE = Transition(
    state=TransactionState.PREPARE_COMMIT,
    producer_id=1001,
    producer_epoch=3,
    previous_producer_id=-1,
    last_producer_epoch=-1,
    next_producer_id=-1,
    timeout_ms=60_000,
    partitions={"t": frozenset({2, 0})},
    start_ms=1_700_000_000_000,
    update_ms=1_700_000_000_500,
    client_version=0,
)


def test_record_has_apaches_bytes() -> None:
    """Key and value of version 0, field by field."""
    assert encode_transactional_id("id") == b"\0\0\0\2id"
    expected = (
        struct.pack(">hqhib", 0, 1001, 3, 60_000, 2)
        + struct.pack(">i", 1)
        + b"\0\1t"
        + struct.pack(">iii", 2, 0, 2)
        + struct.pack(">qq", 1_700_000_000_500, 1_700_000_000_000)
    )
    assert encode_transaction_state(VALUE, is_flexible=False) == expected


def test_empty_transaction_has_no_list_of_partitions() -> None:
    """Apache's coordinator writes null for it."""
    value = VALUE._replace(state=TransactionState.EMPTY, partitions={})
    assert encode_transaction_state(value, is_flexible=False)[17:21] == b"\xff\xff\xff\xff"


@pytest.mark.parametrize("is_flexible", [False, True])
@pytest.mark.parametrize("partitions", [{}, {"t": frozenset({1})}, {"t": frozenset({0, 9}), "u": frozenset({4})}])
def test_record_comes_back(is_flexible: bool, partitions: dict[str, frozenset[int]]) -> None:
    """In both versions."""
    value = VALUE._replace(partitions=partitions)
    key = encode_transactional_id("ümlaut")
    assert decode_transaction_state(key, encode_transaction_state(value, is_flexible=is_flexible)) == TransactionRecord(
        "ümlaut", value
    )


def test_flexible_record_keeps_what_version_2_needs() -> None:
    """The ids before and after, and the client's version, are tagged fields."""
    value = VALUE._replace(previous_producer_id=5, next_producer_id=6, client_version=2)
    record = decode_transaction_state(encode_transactional_id("i"), encode_transaction_state(value, is_flexible=True))
    assert record == TransactionRecord("i", value)


def test_tombstone_and_foreign_keys() -> None:
    """A record without a value removes the id; keys of other versions are passed over."""
    assert decode_transaction_state(encode_transactional_id("i"), None) == TransactionRecord("i", None)
    assert decode_transaction_state(b"\0\1\0\1i", b"") is None


@pytest.mark.parametrize("number", [6, 7, 8, -1])
def test_state_that_is_never_stored_is_refused(number: int) -> None:
    """Dead, PrepareEpochFence, and what is no state."""
    data = bytearray(encode_transaction_state(VALUE, is_flexible=False))
    data[16:17] = struct.pack(">b", number)
    with pytest.raises(MalformedMessageError):
        decode_transaction_state(encode_transactional_id("i"), bytes(data))


@pytest.mark.parametrize("cut", range(0, 40, 7))
def test_value_that_is_cut_is_refused(cut: int) -> None:
    """With an error that the loader knows."""
    data = encode_transaction_state(VALUE, is_flexible=False)
    with pytest.raises(MalformedMessageError):
        decode_transaction_state(encode_transactional_id("i"), data[: len(data) - 1 - cut])


def log(*records: tuple[bytes | None, bytes | None]) -> bytes:
    """A batch for each record."""
    return b"".join(bytes(build_batch([Record(offset, 0, key, value)])) for offset, (key, value) in enumerate(records))


def load(data: bytes) -> TransactionLoader:
    loader = TransactionLoader()
    list(loader.read(data))
    done_here(loader.steps())
    return loader


def test_last_record_of_an_id_holds() -> None:
    """Whatever was written before it, a tombstone included."""
    first, second = (
        encode_transaction_state(VALUE._replace(producer_epoch=epoch), is_flexible=False) for epoch in (1, 2)
    )
    a, b, c = map(encode_transactional_id, "abc")
    loader = load(log((a, first), (b, first), (c, first), (a, second), (b, None), (c, None), (c, second)))
    assert {name: found.producer_epoch for name, found in loader.transactions.items()} == {"a": 2, "c": 2}
    assert not loader.unreadable


def test_loaded_transaction_is_the_one_that_was_written() -> None:
    """Nothing is pending."""
    loader = load(log((encode_transactional_id("a"), encode_transaction_state(VALUE, is_flexible=True))))
    transaction: TransactionMetadata = loader.transactions["a"]
    assert transaction.current == VALUE
    assert transaction.pending is None


def test_unreadable_records_are_reported_and_cost_the_others_nothing() -> None:
    """The rest of the partition is served."""
    good = encode_transaction_state(VALUE, is_flexible=False)
    loader = load(log((None, good), (encode_transactional_id("a"), b"\0\7"), (encode_transactional_id("b"), good)))
    assert list(loader.transactions) == ["b"]
    assert len(loader.unreadable) == 2


def test_reading_says_where_it_continues() -> None:
    """Behind the last whole batch."""
    data = log(
        *[(encode_transactional_id(str(n)), encode_transaction_state(VALUE, is_flexible=False)) for n in range(2_000)]
    )
    offsets = list(TransactionLoader().read(data))
    assert len(offsets) > 1
    assert offsets[-1] == 2_000
