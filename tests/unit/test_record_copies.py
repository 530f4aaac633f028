"""Records that are in a topic twice: which copies fail a trial, and which are the client's."""

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.wire.kafka.records.records import Record, build_batch
from support.load import assert_exactly_once_in_order
from support.record_copies import OTHER, RAISED_EPOCH, SAME_EPOCH, SAME_SEQUENCE, by_kind, copies_of

NOW = 1_700_000_000_000
ID = 7


def write(folder: Path, *batches: tuple[list[int], int, int, int]) -> list[tuple[int, int, int]]:
    """Write a partition's log: numbers, producer id, epoch and first sequence of each batch.

    Returns what a consumer reads."""
    folder.mkdir(parents=True)
    data, read = b"", []
    for numbers, producer_id, epoch, sequence in batches:
        offset = len(read)
        data += build_batch(
            [Record(offset + at, NOW, None, b"%d" % number) for at, number in enumerate(numbers)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        partition = int(folder.name.rpartition("-")[2])
        read += [(partition, offset + at, number) for at, number in enumerate(numbers)]
    (folder / "00000000000000000000.log").write_bytes(data)
    return read


def load_of(*numbers: int) -> Any:
    """A load of which these were acknowledged."""
    line = "All partitions drained, bumped epoch to PID{Id:7,Epoch:1}"
    return SimpleNamespace(topic="t", acknowledged=set(numbers), client_log=deque([line]))


@pytest.mark.parametrize(
    ("batches", "kind"),
    [
        ([([0, 1], ID, 0, 0), ([0, 1], ID, 0, 0)], SAME_SEQUENCE),
        ([([0, 1], ID, 0, 0), ([1, 2], ID, 0, 2)], SAME_EPOCH),
        ([([0, 1], ID, 0, 0), ([1, 2], ID, 1, 0), ([1, 2], ID, 1, 0)], SAME_SEQUENCE),
        ([([0, 1], ID, 1, 0), ([1, 2], ID, 0, 0)], OTHER),
        ([([0, 1], ID, 0, 0), ([1, 2], ID + 1, 0, 0)], OTHER),
        ([([0, 1], -1, -1, -1), ([1, 2], -1, -1, -1)], OTHER),
    ],
)
def test_copies_that_no_epoch_of_the_client_explains_fail_with_their_batches_and_logs(
    tmp_path: Path, batches: list[tuple[list[int], int, int, int]], kind: str
) -> None:
    """The message has each copy, and says where the logs are kept."""
    read = write(tmp_path / "data" / "logs-0" / "t-2", *batches)
    write(tmp_path / "data" / "logs-1" / "t-2", *batches)
    with pytest.raises(AssertionError) as error:
        assert_exactly_once_in_order(load_of(0, 1), read, tmp_path / "data", tmp_path / "kept")
    message = str(error.value)
    assert kind in message
    assert "1: Copy(partition=2, offset=1, producer_id=" in message
    assert "offsets 0-1 leader epoch" in message
    assert "bumped epoch" in message
    assert (tmp_path / "kept" / "logs-of-t" / "logs-1" / "t-2" / "00000000000000000000.log").exists()
    assert str(tmp_path / "kept" / "logs-of-t") in message


def test_copies_in_an_epoch_that_the_client_has_raised_are_reported_and_count_once(tmp_path: Path) -> None:
    """Also where more than one batch is sent again, which goes back in the order of sending."""
    read = write(
        tmp_path / "t-0",
        ([0, 1], ID, 0, 0),
        ([2, 3], ID, 0, 2),
        ([1, 2], ID, 1, 0),
        ([3, 4], ID, 1, 2),
        ([4], ID, 2, 0),
    )
    with pytest.warns(UserWarning, match="4 records: sent again by the client"):
        assert_exactly_once_in_order(load_of(0, 1, 2, 3, 4), read, tmp_path)
    assert by_kind(copies_of([1, 2, 3, 4], tmp_path, "t")).keys() == {RAISED_EPOCH}


def test_copies_in_two_partitions_fail(tmp_path: Path) -> None:
    """A client sends a record to one partition."""
    read = write(tmp_path / "t-0", ([0, 1], ID, 0, 0)) + write(tmp_path / "t-1", ([1], ID, 1, 0))
    with pytest.raises(AssertionError, match=OTHER):
        assert_exactly_once_in_order(load_of(0, 1), read, tmp_path)


def test_what_a_consumer_reads_twice_and_the_logs_have_once_fails(tmp_path: Path) -> None:
    """A broker may serve what it does not have."""
    read = write(tmp_path / "t-0", ([0, 1], ID, 0, 0))
    with pytest.raises(AssertionError, match=OTHER):
        assert_exactly_once_in_order(load_of(0, 1), [*read, read[1]], tmp_path)


def test_records_that_are_missing_or_out_of_order_fail(tmp_path: Path) -> None:
    """Copies that the client has made do not hide either."""
    read = write(tmp_path / "t-0", ([0, 101], ID, 0, 0), ([101, 0], ID, 1, 0))
    with pytest.raises(AssertionError, match="missing"):
        assert_exactly_once_in_order(load_of(0, 1), read, tmp_path)
    unordered = write(tmp_path / "t-1", ([202, 101], ID, 0, 0))
    with pytest.raises(AssertionError, match="changed their order"):
        assert_exactly_once_in_order(load_of(101), unordered, tmp_path)
