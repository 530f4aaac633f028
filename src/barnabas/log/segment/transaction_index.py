"""A segment's ``.txnindex``: the transactions that were aborted by a marker in this segment.

Kafka: TransactionIndex.

34 bytes an entry, big-endian: version 0 (2), producer id, first offset, last offset (the marker's),
last stable offset at that time (8 each). The file exists once there is an entry. A consumer at
read_committed gets the entries that touch what it fetched, and leaves those records out.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import is_descriptor_shortage
from barnabas.log.names import TXN_INDEX, file_name
from barnabas.log.segment.folder import Folder

__all__ = ["AbortedTransaction", "TransactionIndex", "decode_transactions", "encode_transactions"]

_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """An entry of a ``.txnindex``: records of this producer from first to last offset
    are not for read_committed."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def decode_transactions(data: bytes) -> list[AbortedTransaction]:
    """The entries of a file; bytes of a last, unfinished entry are left out.

    Raises `CorruptDataError`."""
    entries = []
    for version, *fields in _ENTRY.iter_unpack(memoryview(data)[: len(data) // _ENTRY.size * _ENTRY.size]):
        if version:
            raise CorruptDataError(f"aborted transaction of version {version}, only 0 is known")
        entries.append(AbortedTransaction(*fields))
    return entries


def encode_transactions(entries: Iterable[AbortedTransaction]) -> bytes:
    """A file's bytes."""
    return b"".join([_ENTRY.pack(0, *entry) for entry in entries])


class TransactionIndex:
    """The aborted transactions of one segment, in the order of their markers."""

    __slots__ = ("_base_offset", "_entries", "_folder", "_persisted")

    def __init__(self, folder: Folder, base_offset: int) -> None:
        self._folder = folder
        self._base_offset = base_offset
        self._entries: list[AbortedTransaction] | None = None
        self._persisted = 0
        """How many entries the file holds."""

    @property
    def path(self) -> str:
        return self._folder.path(file_name(self._base_offset, TXN_INDEX))

    @property
    def entries(self) -> list[AbortedTransaction]:
        """All entries; read at first use.

        Raises `CorruptDataError` when they cannot belong to the segment."""
        if self._entries is None:
            try:
                data = self._folder.files.read(self.path)
            except FileNotFoundError:
                data = b""
            entries = decode_transactions(data)
            last = self._base_offset - 1
            for entry in entries:
                if entry.last_offset <= last or not 0 <= entry.first_offset <= entry.last_offset:
                    raise CorruptDataError(f"{self.path} has an entry out of place: {entry}")
                last = entry.last_offset
            self._entries = entries
            self._persisted = len(entries)
        return self._entries

    def load(self) -> None:
        """Read the file if it has not been. Raises `OSError`, `CorruptDataError`."""
        self.entries  # noqa: B018  # reading is the effect

    @property
    def is_in_use(self) -> bool:
        """Whether the file was read or written by this process and has entries."""
        return bool(self._entries)

    def append(self, entry: AbortedTransaction) -> None:
        """Add a transaction whose marker was appended.

        Without a free file descriptor, `write` does the rest later."""
        entries = self.entries
        if entries and entry.last_offset <= entries[-1].last_offset:
            return
        entries.append(entry)
        try:
            self.write()
        except OSError as error:
            if not is_descriptor_shortage(error):
                raise

    def write(self) -> None:
        """Bring the file up to the entries in memory. Raises `OSError`."""
        entries = self._entries
        if entries is None or self._persisted == len(entries):
            return
        file = self._folder.files.open(self.path, create=True)
        try:
            file.truncate(self._persisted * _ENTRY.size)
            file.append([_ENTRY.pack(0, *entry) for entry in entries[self._persisted :]])
        finally:
            file.close()
        self._persisted = len(entries)

    def truncate(self, offset: int) -> None:
        """Drop the entries whose marker lies at or after an offset.

        A file that is corrupt loses all of them."""
        if not self._entries and not self._folder.files.exists(self.path):
            return
        try:
            entries = self.entries
        except CorruptDataError:
            entries = []
        file = self._folder.files.open(self.path, create=True)
        try:
            kept = [entry for entry in entries if entry.last_offset < offset]
            self._persisted = min(self._persisted, len(kept))
            file.truncate(self._persisted * _ENTRY.size)
        finally:
            file.close()
        self._entries = kept

    def collect(self, from_offset: int, upto_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that touch a range (``upto_offset`` exclusive), and whether
        later segments have none."""
        found = []
        for entry in self.entries:
            if entry.last_offset >= from_offset and entry.first_offset < upto_offset:
                found.append(entry)
            if entry.last_stable_offset >= upto_offset:
                return found, True
        return found, False
