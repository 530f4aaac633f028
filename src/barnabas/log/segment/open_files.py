"""Few descriptors for many partitions: open files and loaded indexes are kept while they are used,
oldest out first. Kafka: no counterpart; its broker keeps every segment open.

When the process is out of descriptors, a quarter of the files is let go.

A file that falls out is not closed here: a slice of it may still be on its way to a socket. The
descriptor closes with the last reference (see `barnabas.base.files`).
"""

from collections import OrderedDict
from typing import Protocol

from barnabas.base.files import File, Files, is_descriptor_shortage

__all__ = ["HasIndexes", "OpenFiles"]


class HasIndexes(Protocol):
    """A segment that no append reaches any more: its indexes can be read again."""

    def drop_indexes(self) -> None: ...


class OpenFiles:
    """Open log files by path, and which segments hold their indexes in memory."""

    __slots__ = ("_indexed", "_open", "files", "max_files", "max_indexes")

    def __init__(self, files: Files, *, max_files: int = 512, max_indexes: int = 64) -> None:
        self.files = files
        self._open: OrderedDict[str, File] = OrderedDict()
        self._indexed: OrderedDict[HasIndexes, None] = OrderedDict()
        self.max_files = max_files
        self.max_indexes = max_indexes

    def get(self, path: str, *, create: bool = False) -> File:
        """The open file of a path, opened if it is not.

        Raises FileNotFoundError for one that is missing: a reader must not put an empty file in the
        place of a lost one. With ``create`` it is made.
        """
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        file = self._open_kept(path, create=create)
        self._open[path] = file
        if len(self._open) > self.max_files:
            self._open.popitem(last=False)
        return file

    def _open_kept(self, path: str, *, create: bool) -> File:
        while True:
            try:
                return self.files.open(path, create=create, keep=True)
            except OSError as error:
                if not is_descriptor_shortage(error) or not self._open:
                    raise
            for _ in range(max(1, len(self._open) // 4)):
                self._open.popitem(last=False)

    def forget(self, path: str) -> None:
        """The path is renamed or removed."""
        self._open.pop(path, None)

    def indexes_loaded(self, segment: HasIndexes) -> None:
        """A closed segment has read its indexes.

        The one that did so longest ago may have to drop its own."""
        self._indexed[segment] = None
        if len(self._indexed) > self.max_indexes:
            self._indexed.popitem(last=False)[0].drop_indexes()

    def forget_segment(self, segment: HasIndexes) -> None:
        """The segment is gone."""
        self._indexed.pop(segment, None)

    def __len__(self) -> int:
        return len(self._open)
