"""Whether a follower lets its records go because the leader's log begins later.

Kafka: no counterpart.

A log start rises for a reason: records get old (retention.ms), the log gets large
(retention.bytes), or DeleteRecords. While a follower fetches, a rise is a thing that its leader
does, and is followed at once. But a leader may also begin late when it comes to lead: because of
what happened while the follower was away, or because its disk has lost the beginning of the log.
Then the follower's records may be the last that there are. So the first response in each leader
epoch is compared with the follower's own log:

    age or size explains the start           followed, as Kafka does
    it lies inside a segment                 followed, with a warning: DeleteRecords leaves such a
                                             start, a lost segment does not
    it lies where one of our segments ends   an error counts the records, and they are kept here
    it lies where our log ends               followed, with a warning

The end of our last segment, which is our log's end, is left out on purpose, also once a fetch has
moved it on: DeleteRecords up to the high watermark, which is its most common form, leaves that
start while a topic is idle, and deleted records must not come back with a replica that was away. A
leader that has lost the segments before that offset has another start: it finds the loss by its
leader epochs when it starts, and its log start stays where it was (`barnabas.log.missing_records`).

A follower that keeps more than its leader is in sync all the same. It deletes the records when
its own retention does, or as soon as the leader's start rises further. Without the leader's
reason a log that ends before the leader's start cannot be continued: it is restarted there, and
the error counts what goes.
"""

import logging

from barnabas.log.partition_log import PartitionLog

__all__ = ["held_start", "report_restart"]

logger = logging.getLogger(__name__)
_NOTHING = -1
_CLOCKS_MS = 60_000
"""By how much the clocks of brokers may differ."""
_LARGER = 4
"""How many times larger than ours the records that we do not have may be, for each offset."""


def held_start(log: PartitionLog, leader_start: int, leader_end: int, wall_ms: int) -> int:
    """The leader's start up to which the follower keeps its records, -1 for none.

    Reports what is kept or unclear. ``leader_end`` is an offset that the leader's log has reached.
    Raises `KafkaError` KAFKA_STORAGE_ERROR.
    """
    start, end = log.log_start_offset, log.log_end_offset
    if leader_start <= start or start == end or _is_explained(log, leader_start, leader_end, wall_ms):
        return _NOTHING
    count = min(leader_start, end) - start
    if leader_start not in log.segments.bases:
        logger.warning(
            "%s: the leader's log begins at offset %d, and %d records from %d on are deleted here, too. Neither their age nor "
            "the log's size is the reason: it should be DeleteRecords, used while this replica was away",
            log.topic_partition,
            leader_start,
            count,
            start,
        )
        return _NOTHING
    logger.error(
        "%s: the leader's log begins at offset %d, and neither age nor size nor DeleteRecords explains it. Its disk may have "
        "lost the beginning of the log: look at its broker's log. %d records from offset %d on are kept here, in %s, until "
        "retention deletes them. If they are not wanted, use DeleteRecords",
        log.topic_partition,
        leader_start,
        count,
        start,
        log.directory,
    )
    return leader_start


def report_restart(log: PartitionLog, leader_start: int, leader_end: int, wall_ms: int) -> None:
    """The log ends before the leader's begins, and is restarted there: report what goes.

    Raises `KafkaError` KAFKA_STORAGE_ERROR.
    """
    start, end = log.log_start_offset, log.log_end_offset
    if start == end or _is_explained(log, leader_start, leader_end, wall_ms):
        logger.warning("Restarting %s at the leader's start %d", log.topic_partition, leader_start)
    else:
        logger.error(
            "Restarting %s at the leader's start %d: all %d records here, from offset %d to %d, are removed. Neither their age "
            "nor the log's size is the reason: it should be DeleteRecords, used while this replica was away",
            log.topic_partition,
            leader_start,
            end - start,
            start,
            end - 1,
        )


def _is_explained(log: PartitionLog, leader_start: int, leader_end: int, wall_ms: int) -> bool:
    """Whether retention would have deleted what is below the leader's start."""
    config = log.config
    if not config.cleanup_delete:
        return False
    with log.availability.guard("reading from"):
        below = [
            segment
            for at, segment in enumerate(log.segments)
            if log.segments.end_of(at, log.log_end_offset) <= leader_start and segment.size
        ]
        if config.retention_bytes >= 0:
            # Retention by size leaves at least this many bytes. The leader also has what
            # we have not fetched yet.
            kept_bytes = log.segments.size_bytes - sum(segment.size for segment in below)
            if kept_bytes + _missing_bytes(log, leader_end) >= config.retention_bytes:
                return True
        if config.retention_ms < 0 or not below:
            return False
        return wall_ms - max(segment.last_write_ms() for segment in below) > config.retention_ms - _CLOCKS_MS


def _missing_bytes(log: PartitionLog, leader_end: int) -> int:
    """At most how many bytes of the leader's log are not here, by the average size
    of our records."""
    size_bytes, offsets = log.segments.size_bytes, log.log_end_offset - log.segments.start_offset
    return _LARGER * size_bytes * max(0, leader_end - log.log_end_offset) // max(1, offsets)
