"""The seam to the disk.

`Files` is what storage code may do with a file system, `File` what it may do with one open file.
`OsFiles` is the real thing. A simulated disk implements both and decides what a crash leaves of the
bytes that were never synced.

Running out of file descriptors (EMFILE, ENFILE) is no failure of a disk: see
`is_descriptor_shortage`. `OsFiles` holds a few descriptors back for files that are opened for a
moment (indexes, checkpoints, syncs), so that work that has begun can be completed.

Paths are plain strings in the operating system's form. Failures are `OSError` with their ``errno``,
for storage code distinguishes a full disk from a broken one. After a failed `File.sync` the file's
state is unknown: callers must not retry but give the log dir up (a second fsync can report success
for pages that were lost).
"""

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from barnabas.base.private_files import is_trusted, make_private_dirs, require_own_folder

__all__ = ["Buffer", "File", "FileSlice", "Files", "OsFiles", "is_descriptor_shortage", "make_dirs_durably"]

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file, read at positions and appended to."""

    def size(self) -> int:
        """Bytes in the file, those not yet synced included."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def append(self, parts: Sequence[Buffer]) -> None:
        """Write all of ``parts``, in order, at the end; on failure the file's end is where it was
        before, if the disk lets it be cut back."""
        ...

    def write_at(self, offset: int, data: Buffer) -> None:
        """Overwrite bytes in place (or extend the file when ``offset`` is its end)."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros to ``size`` bytes."""
        ...

    def sync(self) -> None:
        """Return when the file's bytes are on stable storage (fdatasync)."""
        ...

    def fileno(self) -> int | None:
        """The descriptor for sendfile, or None where there is none (a simulated disk)."""
        ...

    def close(self) -> None:
        """Release the descriptor; a second call does nothing."""
        ...


class Files(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False, keep: bool = False) -> File:
        """Open a file for reading, appending and writing in place; ``create`` makes a missing one.

        With ``keep`` the file stays open, and takes no descriptor that is held back for
        files opened for a moment.
        """
        ...

    def read(self, path: str) -> bytes:
        """A whole small file."""
        ...

    def write_atomically(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """Replace a small file: a reader, or a restart after a crash, sees the old
        bytes or the new ones.

        With ``sync`` the new bytes and the directory's entry are on stable storage at return.
        """
        ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in milliseconds since the Unix epoch."""
        ...

    def make_dirs(self, path: str) -> None:
        """Make a directory and its missing parents; an existing one is fine."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Move a file or directory, replacing a file that is there."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one raises FileNotFoundError."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""
        ...

    def sync_dir(self, path: str) -> None:
        """Put a directory's entries (created, renamed, removed) on stable storage."""
        ...

    def disk_space(self, path: str) -> tuple[int, int]:
        """Bytes of the disk that holds ``path``: all of them, and those that are free for us."""
        ...

    def lock(self, path: str) -> "contextlib.AbstractContextManager[None]":
        """Hold ``path`` as an exclusive lock file.

        Raises BlockingIOError when another process holds it."""
        ...


def make_dirs_durably(files: Files, path: str) -> None:
    """Make a directory and its missing parents, on stable storage: a later sync of
    its files does not do that."""
    made_in: list[str] = []
    below = path
    while not files.exists(below):
        parent = os.path.dirname(below)
        made_in.append(parent or ".")
        if parent in ("", below):
            break
        below = parent
    files.make_dirs(path)
    for parent in reversed(made_in):
        files.sync_dir(parent)


def is_descriptor_shortage(error: OSError) -> bool:
    """Whether a call failed because the process, or the machine, is out of file
    descriptors: no fault of the disk."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


class FileSlice:
    """A range of a file that is sent to a socket without passing through Python (sendfile)."""

    __slots__ = ("file", "offset", "size")

    def __init__(self, file: File, offset: int, size: int) -> None:
        self.file = file
        self.offset = offset
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The range as bytes, for callers that must look inside."""
        return self.file.read_at(self.offset, self.size)

    def __repr__(self) -> str:
        return f"FileSlice(offset={self.offset}, size={self.size})"


_IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "sysconf") else 16


class _OsFile:
    """A descriptor with the position of its end.

    One writer at a time, as everywhere in storage code."""

    __slots__ = ("_descriptor", "_path", "_size")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, offset)
            if len(data) == size or not data:
                return data
            chunks = [data]
            got = len(data)
            while got < size and (data := os.pread(self._descriptor, size - got, offset + got)):
                chunks.append(data)
                got += len(data)
        except OSError as error:
            raise _named(error, self._path) from None
        return b"".join(chunks)

    def append(self, parts: Sequence[Buffer]) -> None:
        start = end = self._size
        try:
            if len(parts) == 1:  # as produced batches come: half the time of what follows
                end += os.pwrite(self._descriptor, parts[0], end)
                if end - start == len(parts[0]):
                    self._size = end
                    return
                parts = (memoryview(parts[0]).cast("B")[end - start :],)
            elif len(parts) <= _IOV_MAX:
                end += os.pwritev(self._descriptor, parts, end)
                if end - start == sum(map(len, parts)):
                    self._size = end
                    return
                parts = (memoryview(b"".join(parts))[end - start :],)
            for first in range(0, len(parts), _IOV_MAX):
                pending = [memoryview(part).cast("B") for part in parts[first : first + _IOV_MAX]]
                while pending:
                    written = os.pwritev(self._descriptor, pending, end)
                    end += written
                    while pending and written >= len(pending[0]):
                        written -= len(pending.pop(0))
                    if written:
                        pending[0] = pending[0][written:]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, start)
            raise _named(error, self._path) from None
        self._size = end

    def write_at(self, offset: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        done = 0
        try:
            while done < len(view):
                done += os.pwrite(self._descriptor, view[done:], offset + done)
        except OSError as error:
            raise _named(error, self._path) from None
        self._size = max(self._size, offset + done)

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise _named(error, self._path) from None
        self._size = size

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise _named(error, self._path) from None

    def fileno(self) -> int | None:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        # A slice of a deleted segment may still be on its way to a socket: the last
        # holder closes the descriptor.
        self.close()

    def __repr__(self) -> str:
        return f"_OsFile({self._path!r}, size={self._size})"


def _named(error: OSError, path: str) -> OSError:
    """The error with the file's path: calls on a descriptor do not know it, and a message
    without it helps no operator."""
    if error.filename is None:
        error.filename = path
    return error


_T = TypeVar("_T")


class _Reserve:
    """Descriptors that are held back: one is given up whenever a call finds none left.

    One for the process."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: list[int] = []
        self._is_short = False

    def call(self, work: Callable[[], _T]) -> _T:
        """What ``work`` returns, which uses descriptors for a moment only. Raises `OSError`."""
        if self._is_short or len(self._held) < self._size:
            self._fill()
        while True:
            try:
                return work()
            except OSError as error:
                if not is_descriptor_shortage(error):
                    raise
                self.note_shortage(error)
                try:
                    os.close(self._held.pop())
                except IndexError:
                    raise error from None

    def _fill(self) -> None:
        # A shortage is over when as many again are free: what one call has just
        # given back is not enough.
        wanted = 2 * self._size if self._is_short else self._size
        try:
            while len(self._held) < wanted:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass  # more at the next call
        else:
            if self._is_short:
                self._is_short = False
                logger.warning("File descriptors are free again")
        while len(self._held) > self._size:
            os.close(self._held.pop())

    def note_shortage(self, error: OSError) -> None:
        """Log a shortage, once until it is over."""
        if not self._is_short:
            self._is_short = True
            logger.error("No file descriptor is free (%s): raise the limit of open files (ulimit -n)", error.strerror)


_reserve = _Reserve(8)


def _open_to_write(path: str, flags: int) -> int:
    """A descriptor.

    A link of another user is not followed: it may lead to any of this user's files."""
    if not hasattr(os, "O_NOFOLLOW"):
        return os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        found = os.lstat(path)
        if not is_trusted(found):
            why = f"a link of another user (uid {found.st_uid}), which is not followed: remove it"
            raise PermissionError(errno.EPERM, why, path) from None
        return os.open(path, flags | os.O_CLOEXEC, 0o644)


def _create_anew(path: str) -> int:
    """A descriptor of a new file. A file left there by a crash, or a link, is removed."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


class OsFiles:
    """The machine's file system."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, read_only: bool = False, keep: bool = False) -> File:
        flags = os.O_RDWR | os.O_CREAT if create else os.O_RDWR

        def opened() -> int:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC) if read_only else _open_to_write(path, flags)

        if not keep:
            return _OsFile(path, _reserve.call(opened))
        try:
            return _OsFile(path, opened())
        except OSError as error:
            if is_descriptor_shortage(error):
                _reserve.note_shortage(error)
            raise

    def read(self, path: str) -> bytes:
        try:
            with _reserve.call(lambda: open(path, "rb")) as file:
                return file.read()
        except OSError as error:
            raise _named(error, path) from None

    def write_atomically(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        try:
            with _reserve.call(lambda: open(_create_anew(temporary), "wb")) as file:
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise _named(error, temporary) from None
        os.replace(temporary, path)
        if sync:
            self.sync_dir(os.path.dirname(path) or ".")

    def list(self, path: str) -> list[str]:
        return sorted(_reserve.call(lambda: os.listdir(path)))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_dirs(self, path: str) -> None:
        make_private_dirs(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        # Imported here, because it brings compression libraries along that a
        # server's start can do without.
        import shutil

        with contextlib.suppress(FileNotFoundError):
            _reserve.call(lambda: shutil.rmtree(path))

    def disk_space(self, path: str) -> tuple[int, int]:
        import shutil  # see remove_tree

        usage = shutil.disk_usage(path)
        return usage.total, usage.free

    def sync_dir(self, path: str) -> None:
        descriptor = _reserve.call(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise _named(error, path) from None
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def lock(self, path: str):  # type: ignore[no-untyped-def]  # the return type is the protocol's
        import fcntl

        require_own_folder(os.path.dirname(path) or ".")
        descriptor = _open_to_write(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)
