"""Where a consumer stands: behind what was handed out, and behind what is no record."""

from types import SimpleNamespace
from typing import Any

from barnabas.client.consumer.fetched import FetchedRecords

PLACE = ("t", 0)


def message(offset: int) -> Any:
    return SimpleNamespace(
        topic=lambda: "t",
        partition=lambda: 0,
        offset=lambda: offset,
        timestamp=lambda: (1, 5),
        headers=list,
        leader_epoch=lambda: 0,
        key=lambda: None,
        value=lambda: b"",
    )


def test_a_position_passes_a_marker_before_the_end_when_all_records_are_handed_out() -> None:
    """Not before: a record that waits is the next one."""
    fetched = FetchedRecords(None, None)
    fetched.add(message(7))
    fetched.add_end(PLACE, 9)
    assert fetched.positions([PLACE]) == {PLACE: 7}
    fetched.hand_out_next()
    assert fetched.positions([PLACE]) == {PLACE: 9}


def test_a_partition_of_markers_alone_has_a_position() -> None:
    """An aborted transaction, say, of which nothing is handed out."""
    fetched = FetchedRecords(None, None)
    fetched.add_end(PLACE, 3)
    assert fetched.positions([PLACE, ("t", 1)]) == {PLACE: 3, ("t", 1): None}
    fetched.drop({PLACE})
    assert fetched.positions([PLACE]) == {PLACE: None}
