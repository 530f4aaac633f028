r"""The transaction log, in Apache ZooKeeper's format.

A file ``log.<zxid in hex>`` begins with the transaction of that zxid:

    16 bytes   FileHeader: magic "ZKLG", version 2, dbid 0
    entries    Long   Adler-32 of the payload
               Int    the payload's size
               ...    TxnHeader, the transaction's record, TxnDigest
               0x42   the end of the entry
    zeros      room that is reserved ahead (preAllocSize)

A batch of entries is written and synced before any of them is acknowledged, so a crash can leave
only the last batch torn. At the next start a torn end is cut off; damage is refused
(`barnabas.coordination.storage.log_tail`).

In ZooKeeper: FileTxnLog.
"""

import logging
import posixpath
from collections.abc import Iterator, Sequence

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import File, Files
from barnabas.coordination.storage.log_tail import ENTRY_HEAD, check_tail, encode_entries, payload_at
from barnabas.wire.jute.codec import MalformedRecordError, decode, encode_into
from barnabas.wire.jute.transactions import FileHeader, TxnHeader

__all__ = [
    "LogReader",
    "TransactionLog",
    "cut_transaction_log",
    "log_name",
    "logs_from",
    "read_transaction_log",
    "zxid_of_name",
]

LOG_MAGIC = int.from_bytes(b"ZKLG", "big")
_VERSION = 2
_HEADER_BYTES = 16

logger = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20
_RESERVE_BEFORE_END_BYTES = 4096


def log_name(zxid: int) -> str:
    """The name of the file that begins with the transaction."""
    return f"log.{zxid:x}"


def zxid_of_name(name: str, prefix: str) -> int | None:
    """The zxid in a file's name; None for other files."""
    start, _, digits = name.partition(".")
    if start != prefix or not digits:
        return None
    if prefix == "snapshot":
        digits = digits.removesuffix(".gz").removesuffix(".snappy")
    try:
        return int(digits, 16)
    except ValueError:
        return None


def logs_from(names: Sequence[str], zxid: int) -> list[tuple[int, str]]:
    """The files that hold the transactions after ``zxid``, in order, with their first zxids."""
    found = sorted((first, name) for name in names if (first := zxid_of_name(name, "log")) is not None)
    start = max((first for first, _ in found if first <= zxid + 1), default=-1)
    return [(first, name) for first, name in found if first >= start]


class LogReader:
    """Reads one file from its beginning to its end, and looks at the end."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._end = _HEADER_BYTES
        self._excess_bytes = 0
        self.is_torn = False
        """At the end: whether an entry is torn there."""

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """The payloads in order, each with the byte at which its entry begins.

        Raises `CorruptDataError` for a file that is not a log, and for damage.
        """
        file = self._files.open(self.path, read_only=True)
        try:
            _check_header(file, self.path)
            position = _HEADER_BYTES
            chunk, chunk_start = b"", position
            while True:
                offset = position - chunk_start
                payload = payload_at(chunk, offset)
                if payload is None and chunk_start + len(chunk) < file.size():
                    # Not enough bytes in hand, or damage: look again with all that
                    # the entry says it needs.
                    size = _entry_bytes(file, position)
                    chunk, chunk_start = file.read_at(position, max(size, _CHUNK_BYTES)), position
                    payload = payload_at(chunk, 0)
                if payload is None:
                    break
                yield position, payload
                position += ENTRY_HEAD.size + len(payload) + 1
            self.is_torn = check_tail(file, self.path, position)
            self._end, self._excess_bytes = position, file.size() - position
        finally:
            file.close()

    def repair(self) -> None:
        """Cut off a torn entry, and the reserved room, after `entries` has come to the end."""
        if not self._excess_bytes:
            return
        if self.is_torn:
            logger.warning(
                "Cutting %s at byte %d: the entry there is torn, its transaction was not acknowledged (%d bytes)",
                self.path,
                self._end,
                self._excess_bytes,
            )
        file = self._files.open(self.path)
        try:
            file.truncate(self._end)
            file.sync()
        finally:
            file.close()


def read_transaction_log(files: Files, path: str, *, repair: bool) -> Iterator[bytes]:
    """The payloads in a file, in order.

    ``repair`` cuts off a torn entry and the reserved room at the end. Raises `CorruptDataError` for
    a file that is not a log, and for damage.
    """
    reader = LogReader(files, path)
    for _, payload in reader.entries():
        yield payload
    if repair:
        reader.repair()


def cut_transaction_log(files: Files, path: str, zxid: int) -> None:
    """Cut off all transactions of a file after ``zxid``. Durable at return."""
    end = _HEADER_BYTES
    for payload in read_transaction_log(files, path, repair=True):
        if decode(TxnHeader, payload).zxid > zxid:
            break
        end += ENTRY_HEAD.size + len(payload) + 1
    file = files.open(path)
    try:
        if file.size() > end:
            logger.warning("Cutting %s at byte %d: the leader's history ends at 0x%x", path, end, zxid)
            file.truncate(end)
            file.sync()
    finally:
        file.close()


def _check_header(file: File, path: str) -> None:
    try:
        header = decode(FileHeader, file.read_at(0, _HEADER_BYTES))
    except MalformedRecordError:
        raise CorruptDataError(f"{path} is too short for a transaction log") from None
    if header.magic != LOG_MAGIC or header.version != _VERSION:
        raise CorruptDataError(f"{path} is not a transaction log of version {_VERSION}")


def _entry_bytes(file: File, position: int) -> int:
    """How many bytes the entry at ``position`` claims, within the file."""
    head = file.read_at(position, ENTRY_HEAD.size)
    if len(head) < ENTRY_HEAD.size:
        return 0
    size: int = ENTRY_HEAD.unpack(head)[1]
    return min(max(size, 0) + ENTRY_HEAD.size + 1, file.size() - position)


class TransactionLog:
    """Appends to the current file and starts new ones."""

    def __init__(
        self, files: Files, directory: str, *, preallocate_bytes: int, sync: bool = True, max_file_bytes: int = 0
    ) -> None:
        """A file that grows above ``max_file_bytes`` is the last one's predecessor from then on.

        0 for no limit."""
        self._files = files
        self._max_file_bytes = max_file_bytes
        self._directory = directory
        self._preallocate_bytes = preallocate_bytes
        self._sync = sync
        self._file: File | None = None
        self._position = 0

    def append(self, first_zxid: int, payloads: Sequence[bytes | bytearray]) -> None:
        """Write transactions and return when they are on stable storage.

        ``first_zxid`` is the first one's. After an OSError the log's state is unknown, and the
        server must stop: a second sync could lie.
        """
        file = self._file
        if file is None:
            file = self._open(first_zxid)
        batch = encode_entries(payloads)
        end = self._position + len(batch)
        wanted = end + _RESERVE_BEFORE_END_BYTES
        if self._preallocate_bytes and wanted > file.size():
            file.truncate(wanted - wanted % self._preallocate_bytes + self._preallocate_bytes)
        file.write_at(self._position, batch)
        self._position = end
        if self._sync:
            file.sync()
        if self._max_file_bytes and end > self._max_file_bytes:
            self.roll()

    def _open(self, first_zxid: int) -> File:
        path = posixpath.join(self._directory, log_name(first_zxid))
        if self._files.exists(path):
            # A file without a valid transaction, from a crash in its first moment; its tail
            # was checked at the start.
            self._files.remove(path)
        logger.info("Creating new log file: %s", path)
        file = self._file = self._files.open(path, create=True)
        header = bytearray()
        encode_into(header, FileHeader(LOG_MAGIC, _VERSION, 0))
        file.write_at(0, header)
        self._position = _HEADER_BYTES
        self._files.sync_dir(self._directory)
        return file

    @property
    def used_bytes(self) -> int | None:
        """How much of the current file is no reserved room; None without one."""
        return self._position if self._file is not None else None

    def roll(self) -> None:
        """Begin a new file with the next transaction."""
        if self._file is not None:
            self._file.truncate(self._position)  # give the reserved room back
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Close the current file; what was appended is synced already."""
        self.roll()
