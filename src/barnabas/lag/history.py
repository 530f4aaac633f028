"""The history of lag in a file of SQLite, bounded by size.

Four tables: what is remembered of each group (`GroupStanding`), the lag of each group by the
minute, points of partitions from which times are interpolated (`OffsetTimes`), and the window of
samples of each group, so that the next process can judge at once.

The bound: SQLite itself refuses to let the file grow beyond ``max_page_count``; before, at nine
tenths, every second minute of the older half is deleted, so that what is old becomes coarser and
is never cut off while there is anything to thin. Points and windows of what has not
been seen for longest go next. Beside the file stands its write-ahead log, a few MB.

Each change is one transaction, so a kill at any moment leaves the last one that was committed.
Several processes may use one file: each reads what is remembered and writes it in one transaction.

In Kafka: no counterpart; the write-ahead log of SQLite is what `__consumer_offsets` is for offsets.
"""

import contextlib
import json
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.lag.offset_times import TimePoint
from barnabas.lag.samples import WindowRecord
from barnabas.lag.standing import GroupStanding, with_standings
from barnabas.lag.values import LagReport, LagState

__all__ = ["HistoryError", "HistoryMinute", "LagHistory"]

_APPLICATION_ID = 0x4C414731  # "LAG1"
_HEADER_BYTES = 100
_BUSY_S = 10.0
_MINUTE_MS = 60_000
_PAGE_BYTES = 4096
_THIN_FROM = 0.9
_THIN_UNTIL = 0.8
_MIN_BYTES = 1 << 20
_POINT = struct.Struct(">qqq")
_LEAST_CACHE_KIB = -2048

_TABLES = """
CREATE TABLE IF NOT EXISTS standing (
    cluster TEXT, group_id TEXT, state TEXT, since_ms INTEGER, last_zero_ms INTEGER, seen_ms INTEGER,
    PRIMARY KEY (cluster, group_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS minutes (
    cluster TEXT, group_id TEXT, at_ms INTEGER, lag INTEGER, lag_ms INTEGER, state TEXT,
    PRIMARY KEY (cluster, group_id, at_ms)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS minutes_by_time ON minutes (at_ms);
CREATE TABLE IF NOT EXISTS points (
    cluster TEXT, topic TEXT, partition INTEGER, saved_ms INTEGER, data BLOB,
    PRIMARY KEY (cluster, topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS windows (
    cluster TEXT, group_id TEXT, saved_ms INTEGER, data BLOB,
    PRIMARY KEY (cluster, group_id)
) WITHOUT ROWID;
"""


class HistoryError(BarnabasError):
    """A history that cannot be read or written at present."""


class HistoryMinute(NamedTuple):
    """The lag of a group in a minute, or a longer time where it was thinned out."""

    cluster_id: str
    group: str
    at_ms: int
    lag: int | None
    lag_ms: int | None
    state: LagState


class LagHistory:
    """A history of several clusters; for the thread that opened it."""

    def __init__(self, path: str, max_bytes: int) -> None:
        """Open it, or make it.

        A damaged history is set aside as ``PATH.damaged``; ``set_aside`` says so. Raises
        `ConfigError` for a file that is something else, and `HistoryError`.
        """
        self._path = Path(path)
        self._max_pages = max(max_bytes, _MIN_BYTES) // _PAGE_BYTES
        self.set_aside: str | None = None
        """Why the former file was set aside, and where it is."""
        _refuse_other_file(self._path)
        try:
            try:
                self._connection = self._open()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._set_aside(error)
                self._connection = self._open()
        except (sqlite3.Error, OSError) as error:
            raise HistoryError(self._words(error)) from error

    def _open(self) -> sqlite3.Connection:
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)  # names of groups and topics are in it
        os.close(descriptor)
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")  # before there is a log
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA max_page_count = {self._max_pages}")
            connection.execute(f"PRAGMA journal_size_limit = {_MIN_BYTES}")
            connection.execute(f"PRAGMA cache_size = {_LEAST_CACHE_KIB}")
            damage = [row[0] for row in connection.execute("PRAGMA quick_check(1)") if row[0] != "ok"]
            if damage:
                raise sqlite3.DatabaseError(damage[0])
            connection.executescript(_TABLES)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        aside = self._path.with_name(self._path.name + ".damaged")
        os.replace(self._path, aside)
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self._path}{suffix}", f"{aside}{suffix}")
        self.set_aside = f"the history {self._path} is damaged ({error}): it was set aside as {aside}, and begins again"

    def _words(self, error: Exception) -> str:
        return f"the history {self._path}: {error}; may this user write there, and has its disk room?"

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing; raises `HistoryError`."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise HistoryError(self._words(error)) from error

    # What is remembered

    def add(self, report: LagReport) -> LagReport:
        """Remember a report, and return it with since when its groups are in their states.

        Raises `HistoryError`; nothing of the report is remembered then.
        """
        self._make_room()
        cluster, at_ms = report.cluster_id or "", report.at_ms
        minute = at_ms - at_ms % _MINUTE_MS
        minutes = []
        for group in report.groups:
            if not group.problem:
                lag = group.lag if group.is_complete else None
                lag_ms = None if (furthest := group.furthest) is None else furthest.lag_ms
                minutes.append((cluster, group.group, minute, lag, lag_ms, str(group.state)))
        with self._transaction() as connection:
            report, changed = with_standings(report, self._standings(cluster))
            rows = [(cluster, name, str(standing.state), *standing[1:]) for name, standing in changed.items()]
            connection.executemany("INSERT OR REPLACE INTO standing VALUES (?, ?, ?, ?, ?, ?)", rows)
            connection.executemany("INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?, ?, ?)", minutes)
        return report

    def _standings(self, cluster: str) -> dict[str, GroupStanding]:
        rows = self._connection.execute(
            "SELECT group_id, state, since_ms, last_zero_ms, seen_ms FROM standing WHERE cluster = ?", (cluster,)
        )
        return {row[0]: GroupStanding(_state(row[1]), *row[2:]) for row in rows}

    def minutes(self, from_ms: int) -> list[HistoryMinute]:
        """The lag of all groups since a time, by cluster and group, oldest first."""
        rows = self._rows(
            "SELECT cluster, group_id, at_ms, lag, lag_ms, state FROM minutes WHERE at_ms >= ? ORDER BY 1, 2, 3",
            from_ms,
        )
        return [HistoryMinute._make((*figures, _state(state))) for *figures, state in rows]

    # What the next process needs

    def save(
        self,
        cluster: str,
        now_ms: int,
        points: Mapping[TopicPartition, Iterable[TimePoint]],
        windows: Mapping[str, WindowRecord],
    ) -> None:
        """Keep points and windows; raises `HistoryError`."""
        self._make_room()
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?)",
                [
                    (cluster, topic, partition, now_ms, b"".join(_POINT.pack(*point) for point in found))
                    for (topic, partition), found in points.items()
                ],
            )
            connection.executemany(
                "INSERT OR REPLACE INTO windows VALUES (?, ?, ?, ?)",
                [(cluster, group_id, now_ms, _packed(window)) for group_id, window in windows.items()],
            )

    def points(self, cluster: str) -> dict[TopicPartition, list[TimePoint]]:
        """The points that were kept, by topic and partition."""
        rows = self._rows("SELECT topic, partition, data FROM points WHERE cluster = ?", cluster)
        return {
            TopicPartition(topic, partition): [TimePoint(*numbers) for numbers in _POINT.iter_unpack(data)]
            for topic, partition, data in rows
            if len(data) % _POINT.size == 0
        }

    def windows(self, cluster: str, from_ms: int) -> dict[str, WindowRecord]:
        """The windows that were kept and reach to this time. Of one that is damaged the samples
        begin again."""
        rows = self._rows("SELECT group_id, data FROM windows WHERE cluster = ? AND saved_ms >= ?", cluster, from_ms)
        unpacked = {group_id: _unpacked(data) for group_id, data in rows}
        return {group_id: window for group_id, window in unpacked.items() if window is not None}

    def _rows(self, statement: str, *values: str | int) -> list[Any]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise HistoryError(self._words(error)) from error

    # The bound

    @property
    def size_bytes(self) -> int:
        """How much of the file is used."""
        pages, free = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count")
        )
        return int(pages - free) * _PAGE_BYTES

    def _make_room(self) -> None:
        """Thin out while the file is nearly full."""
        try:
            if self.size_bytes < _THIN_FROM * self._max_pages * _PAGE_BYTES:
                return
            while self.size_bytes > _THIN_UNTIL * self._max_pages * _PAGE_BYTES:
                if not self._thin():
                    return
        except sqlite3.Error as error:
            raise HistoryError(self._words(error)) from error

    def _thin(self) -> bool:
        """Delete each second minute of the older half, or the oldest of what can be found again."""
        with self._transaction() as connection:
            (count,) = connection.execute("SELECT count(*) FROM minutes").fetchone()
            if count:
                (middle,) = connection.execute(
                    "SELECT at_ms FROM minutes ORDER BY at_ms LIMIT 1 OFFSET ?", (count // 2,)
                ).fetchone()
                deleted = connection.execute(
                    "DELETE FROM minutes WHERE (cluster, group_id, at_ms) IN (SELECT cluster, group_id, at_ms FROM ("
                    " SELECT cluster, group_id, at_ms, row_number() OVER"
                    " (PARTITION BY cluster, group_id ORDER BY at_ms) AS place FROM minutes WHERE at_ms <= ?)"
                    " WHERE place % 2 = 0)",
                    (middle,),
                ).rowcount
                if deleted:
                    return True
            for table in ("windows", "points"):
                deleted = connection.execute(
                    f"DELETE FROM {table} WHERE saved_ms <= (SELECT saved_ms FROM {table} ORDER BY saved_ms"  # noqa: S608
                    f" LIMIT 1 OFFSET (SELECT count(*) / 2 FROM {table}))"
                ).rowcount
                if deleted:
                    return True
            for table, column in (("minutes", "at_ms"), ("standing", "seen_ms")):
                deleted = connection.execute(
                    f"DELETE FROM {table} WHERE {column} <= (SELECT {column} FROM {table} ORDER BY {column}"  # noqa: S608
                    f" LIMIT 1 OFFSET (SELECT count(*) / 4 FROM {table}))"
                ).rowcount
                if deleted:
                    return True
        return False

    def close(self) -> None:
        self._connection.close()


def _refuse_other_file(path: Path) -> None:
    """Raises `ConfigError` for a file that is no database, so that none is overwritten or set
    aside that is not ours."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"the history {path} is no file: name another one")
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        if not path.absolute().parent.is_dir():
            raise ConfigError(f"there is no folder {path.absolute().parent} for the history {path.name}") from None
        return
    except OSError as error:
        raise ConfigError(f"the history {path} cannot be read: {error.strerror}") from error
    if head and not head.startswith(b"SQLite format 3\0"):
        raise ConfigError(f"{path} is no history of lag: name another file")
    # A history has the mark from its first page on. SQLite is not asked: it may remove a log.
    if head and int.from_bytes(head[68:72], "big") != _APPLICATION_ID:
        raise ConfigError(f"{path} is a database of something else: name another file for the history")


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether it is about what the file holds, rather than about a lock or a full disk.

    What `quick_check` found has no code."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _state(text: str) -> LagState:
    """Unknown for what this version does not know."""
    return LagState(text) if text in set(LagState) else LagState.UNKNOWN


def _packed(window: WindowRecord) -> bytes:
    return zlib.compress(json.dumps(window, separators=(",", ":")).encode(), 1)


def _unpacked(data: bytes) -> WindowRecord | None:
    try:
        times, partitions, committed, ends = json.loads(zlib.decompress(data))  # which has a checksum
    except zlib.error:
        return None
    return WindowRecord(times, [(topic, number) for topic, number in partitions], committed, ends)
