"""Comparison of replicas: what counts as verified, what as a difference, and what only as lag."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.cli.replicas.replica_comparison import Comparison, Fetched
from barnabas.wire.kafka.records.records import Record, build_batch

PARTITION = TopicPartition("t", 0)


def batch(first: int, last: int, value: bytes = b"x", leader_epoch: int = 0) -> bytes:
    records = [Record(offset, 1, None, value, []) for offset in range(first, last + 1)]
    return bytes(build_batch(records, leader_epoch=leader_epoch))


def test_equal_replicas_are_verified_up_to_their_high_watermark() -> None:
    """A batch that ends at or after it waits; so does a cut one."""
    log = batch(0, 2) + batch(3, 4) + batch(5, 6)
    comparison = Comparison(PARTITION, [1, 2], 0)
    assert comparison.compare({1: Fetched(7, log), 2: Fetched(5, log[:-1])}) == []
    assert (comparison.offset, comparison.lag) == (5, 2)
    assert comparison.compare({1: Fetched(7, batch(5, 6)), 2: Fetched(7, batch(5, 6))}) == []
    assert (comparison.offset, comparison.lag) == (7, 0)


def test_a_replica_that_gives_nothing_delays_and_shows_as_lag() -> None:
    """Down, behind, or with an error: nothing is concluded."""
    log = batch(0, 2)
    for missing in ({1: Fetched(3, log)}, {1: Fetched(3, log), 2: Fetched(0, b"")}):
        comparison = Comparison(PARTITION, [1, 2], 0)
        assert comparison.compare(missing) == []
        assert (comparison.offset, comparison.lag) == (0, 3)
    assert comparison.compare({}) == []
    assert comparison.lag == 3


def test_other_bytes_at_the_same_offsets_are_a_difference_and_the_comparison_goes_on() -> None:
    """The leader epoch is no part of it: leaders write it, and so it is outside of the checksum."""
    comparison = Comparison(PARTITION, [1, 2, 3], 0)
    good, bad, tail = batch(0, 2), batch(0, 2, b"y"), batch(3, 3)
    found = comparison.compare(
        {1: Fetched(4, good + tail), 2: Fetched(4, bad + tail), 3: Fetched(4, batch(0, 2, leader_epoch=9) + tail)}
    )
    assert [(item.replica, item.other, item.is_fatal) for item in found] == [(1, 2, False)]
    assert "partition t-0 has unmatched checksum at offset 2; replica 1's checksum" in str(found[0])
    assert comparison.offset == 4


def test_batches_of_other_offsets_end_the_comparison() -> None:
    """Logs that went different ways."""
    comparison = Comparison(PARTITION, [1, 2], 0)
    found = comparison.compare({1: Fetched(9, batch(0, 2)), 2: Fetched(9, batch(0, 3))})
    assert [item.is_fatal for item in found] == [True]
    assert str(found[0]) == "partition t-0: replica 1's offset 2 doesn't match replica 2's offset 3"
    assert comparison.offset == 0


def test_a_start_within_a_batch_begins_with_that_batch() -> None:
    """Replicas answer with whole batches; those that end before the start are passed over."""
    comparison = Comparison(PARTITION, [1, 2], 4)
    log = batch(0, 2) + batch(3, 5)
    assert comparison.compare({1: Fetched(6, log), 2: Fetched(6, batch(3, 5))}) == []
    assert comparison.offset == 6


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=8), st.data())
def test_the_verified_offset_is_the_end_of_the_common_committed_batches(
    batches: list[tuple[int, bool]], data: st.DataObject
) -> None:
    """Against a model: the batches that both have, whole and below both watermarks; each
    corrupt one is reported."""
    offset = 0
    pieces = []
    for size, corrupt in batches:
        pieces.append((offset, offset + size - 1, corrupt))
        offset += size
    have = [data.draw(st.integers(0, len(pieces))) for _ in range(2)]
    watermarks = [data.draw(st.integers(0, offset)) for _ in range(2)]
    logs = [
        b"".join(batch(first, last, b"y" if corrupt and replica else b"x") for first, last, corrupt in pieces[:count])
        for replica, count in enumerate(have)
    ]
    comparison = Comparison(PARTITION, [0, 1], 0)
    found = comparison.compare({n: Fetched(watermarks[n], logs[n]) for n in (0, 1)})
    common = [piece for piece in pieces[: min(have)] if piece[1] < min(watermarks)]
    assert comparison.offset == (common[-1][1] + 1 if common else 0)
    assert [item.offset for item in found] == [last for _, last, corrupt in common if corrupt]
