"""A follower lets its records go when the leader's start has a reason; else it keeps
them, and says so."""

import logging
from pathlib import Path

import pytest

from barnabas.broker.replication.leader_start import held_start
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from support.broker import START_MS
from support.following import T0, Pair

BOUNDARY = 4
END = 10


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Leader and follower have ten records in two segments."""
    pair = Pair(tmp_path)
    pair.lead(1)
    pair.follow(1)
    for number in range(END):
        if number == BOUNDARY:
            for log in (leader(pair), pair.follower_log()):
                log.roll(START_MS)
        pair.append(T0, b"%d" % number)
        pair.turn()
    pair.turn()
    assert pair.follower_log().segments.bases == [0, BOUNDARY]
    return pair


def leader(pair: Pair) -> PartitionLog:
    log = pair.leader.log_dirs.get(T0)
    assert log is not None
    return log


def next_epoch(pair: Pair, **config: str) -> PartitionLog:
    """The leader leads in another epoch, and the follower fetches; returns the follower's log."""
    pair.lead(2)
    pair.follow(2)
    log = pair.partitions[T0].log
    log.configure(LogConfig({name.replace("_", "."): value for name, value in config.items()}))
    pair.turn()
    pair.turn()
    return log


def alarms(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_records_are_kept_when_the_leader_begins_a_segment_later_without_a_reason(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """As a leader whose disk has lost its first segment: an error counts them, once an epoch.

    The next rise is followed."""
    leader(pair).raise_start(BOUNDARY)
    log = next_epoch(pair)
    assert log.log_start_offset == 0
    (line,) = alarms(caplog)
    assert line.levelno == logging.ERROR
    assert f"{BOUNDARY} records from offset 0 on are kept here, in {log.directory}" in line.getMessage()
    pair.append(T0, b"more")
    pair.turn()
    assert (log.log_start_offset, log.log_end_offset) == (0, END + 1)
    leader(pair).raise_start(BOUNDARY + 1)
    pair.turn()
    assert log.log_start_offset == BOUNDARY + 1
    assert len(alarms(caplog)) == 1


@pytest.mark.parametrize("offset", [BOUNDARY + 2, END])
def test_a_start_inside_a_segment_or_at_our_end_is_followed_with_a_warning(
    pair: Pair, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    """DeleteRecords was used while the replica was away, perhaps up to the end: deleted records
    do not come back with it."""
    leader(pair).raise_start(offset)
    assert next_epoch(pair).log_start_offset == offset
    (line,) = alarms(caplog)
    assert line.levelno == logging.WARNING
    assert f"{offset} records from 0 on are deleted here, too" in line.getMessage()


@pytest.mark.parametrize(("records_behind", "is_explained"), [(0, False), (1, False), (50, True)])
def test_size_explains_a_start_only_if_the_leader_may_hold_so_many_bytes(
    pair: Pair, records_behind: int, is_explained: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower that is a record behind a log far below retention.bytes keeps its
    records, with an error."""
    log = pair.follower_log()
    log.configure(LogConfig({"retention.bytes": str(log.segments.size_bytes * 10), "retention.ms": "-1"}))
    held = held_start(log, BOUNDARY, END + records_behind, START_MS)
    assert (held, len(alarms(caplog))) == ((-1, 0) if is_explained else (BOUNDARY, 1))


@pytest.mark.parametrize("offset", [BOUNDARY, BOUNDARY + 2, END])
def test_a_rise_while_the_follower_fetches_is_followed_in_silence(
    pair: Pair, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader does it now, so it has a reason: DeleteRecords waits for it."""
    leader(pair).update_high_watermark(END)
    leader(pair).delete_records_before(offset)
    pair.append(T0, b"more")
    pair.turn()
    assert pair.follower_log().log_start_offset == offset
    assert alarms(caplog) == []


@pytest.mark.parametrize("reason", [{"retention_ms": "1000"}, {"retention_bytes": "1", "retention_ms": "-1"}])
def test_a_start_that_age_or_size_explains_is_followed_in_silence(
    pair: Pair, reason: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Retention at the leader while the replica was away."""
    leader(pair).raise_start(BOUNDARY)
    assert next_epoch(pair, **reason).log_start_offset == BOUNDARY
    assert alarms(caplog) == []


@pytest.mark.parametrize(("retention", "level"), [("-1", logging.ERROR), ("1000", logging.WARNING)])
def test_a_log_that_ends_before_the_leaders_start_is_restarted_and_what_goes_is_counted(
    pair: Pair, retention: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be continued; an error counts the records unless their age is the reason."""
    for number in range(5):
        pair.append(T0, b"%d" % number)
    leader(pair).update_high_watermark(END + 5)
    leader(pair).delete_records_before(END + 3)
    log = pair.follower_log()
    log.configure(LogConfig({"retention.ms": retention}))
    pair.turn()
    pair.locate()
    assert (log.log_start_offset, log.log_end_offset) == (END + 3, END + 3)
    (line,) = alarms(caplog)
    assert line.levelno == level
    assert (f"all {END} records here, from offset 0 to {END - 1}" in line.getMessage()) == (level == logging.ERROR)
