"""One process that samples a cluster: the reader, the tracker and the history together.

In Kafka: no counterpart; kminion and Burrow are such processes.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from barnabas.base.excerpts import some_of
from barnabas.base.ids import TopicPartition
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError
from barnabas.lag.history import HistoryError, LagHistory
from barnabas.lag.reader import find_record_times, find_times, read_sample, refused_topics
from barnabas.lag.standing import GroupStanding, with_standings
from barnabas.lag.tracker import LagTracker
from barnabas.lag.values import LagReport

__all__ = ["MOST_RECORDS", "LagMonitor"]

MOST_RECORDS = 64
"""Records that are fetched for their timestamps with each sample; other times are interpolated."""
_SAVE_EACH_MS = 60_000


class LagMonitor:
    """Samples one cluster; for one thread.

    ``named`` are groups that the report has even if no list has them.
    """

    def __init__(
        self,
        connection: AdminConnection,
        interval_ms: int,
        is_wanted: Callable[[str], bool],
        named: Collection[str] = (),
        history: LagHistory | None = None,
        most_records: int = MOST_RECORDS,
    ) -> None:
        self._connection = connection
        self._tracker = LagTracker(interval_ms)
        self._is_wanted = is_wanted
        self._named = named
        self._history = history
        self._most_records = most_records
        self._window_ms = 20 * interval_ms + 60_000
        self._standings: dict[str, GroupStanding] = {}
        self._restored: str | None = None
        self._saved_ms = 0

    def sample(self, now_ms: int) -> LagReport:
        """Look at the cluster; raises `ClientError` where there is no answer at all.

        Where the history fails, the report has a line about it among the missing ones.
        """
        sample = read_sample(self._connection, now_ms, self._is_wanted, self._named)
        problems = self._restore(sample.cluster_id or "", now_ms)
        self._tracker.add(sample)
        failed = find_times(self._connection, self._tracker)
        unread = find_record_times(self._connection, self._tracker, self._most_records)
        report = self._tracker.report()
        report = replace(report, notes=(*report.notes, *_notes(failed, unread)))
        try:
            report = self._remember(report)
        except HistoryError as error:
            problems.append(str(error))
        if not 0 <= now_ms - self._saved_ms < _SAVE_EACH_MS:  # or the clock was set back
            problems += self._save(now_ms)
        if not problems:
            return report
        return replace(report, missing=(*report.missing, *dict.fromkeys(problems)))

    def _remember(self, report: LagReport) -> LagReport:
        if self._history is not None:
            return self._history.add(report)
        report, changed = with_standings(report, self._standings)
        self._standings |= changed
        return report

    def _restore(self, cluster: str, now_ms: int) -> list[str]:
        if self._history is None or self._restored == cluster:
            return []
        self._restored = cluster
        try:
            self._tracker.restore_points(self._history.points(cluster))
            self._tracker.restore_windows(self._history.windows(cluster, now_ms - self._window_ms))
        except HistoryError as error:
            return [str(error)]
        return []

    def _save(self, now_ms: int) -> list[str]:
        if self._history is None or self._restored is None:
            return []
        self._saved_ms = now_ms
        try:
            self._history.save(self._restored, now_ms, self._tracker.points(), self._tracker.windows())
        except HistoryError as error:
            return [str(error)]
        return []

    def close(self, now_ms: int) -> None:
        """Keep what the next process can use."""
        self._save(now_ms)


def _notes(
    failed: Mapping[TopicPartition, ClientError], unread: Mapping[TopicPartition, ClientError]
) -> tuple[str, ...]:
    """What would make times more exact."""
    notes = []
    if topics := refused_topics(unread):
        notes.append(f"no right to read {some_of(topics)}: times are interpolated there, and markers count as records")
    reasons = {str(error) for error in failed.values()}
    notes += [f"times are less exact: {reason}" for reason in sorted(reasons)]
    return tuple(notes)
