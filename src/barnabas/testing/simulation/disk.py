"""A simulated disk: what was not synced can be lost.

A `Disk` holds inodes and directories in two versions, as the running machine sees them (the
page cache) and as they are on stable storage. The death of a process changes neither. At a
power loss each file keeps what was synced, and of the rest any 512-byte blocks and any size
between; each directory keeps the entries that were there at its last `SimulatedFiles.sync_dir`,
and the first few of the changes since, in their order. As POSIX has it, syncing a new file does
not sync its entry in the directory.

`SimulatedFiles` is one process's way to the disk: it dies with the process, and in the middle
of an operation if asked so. Faults: an error once for an operation on paths that hold a text,
a full disk, slowness.
"""

import contextlib
import errno
import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from barnabas.base.files import Buffer, File
from barnabas.base.randomness import Random
from barnabas.testing.simulation.loop import Killed, Process, SimulatedClock
from barnabas.testing.simulation.trace import Trace, checksum

__all__ = ["Disk", "DiskFault", "SimulatedFiles"]

_LONGEST_US = 10_000_000
"""What a slow disk takes for one piece of work at most: a minute of one more would look
like a server that hangs."""

BLOCK_BYTES = 512
BOOT_ID_PATH = ("proc", "sys", "kernel", "random", "boot_id")


class Inode:
    """A file's bytes, now and on stable storage."""

    __slots__ = ("data", "dirty", "durable", "lost", "modified_ms")

    def __init__(self, now_ms: int) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()
        self.lost: set[int] = set()
        """Blocks that count as clean after a failed sync, and never reached the disk."""
        self.modified_ms = now_ms

    def touched(self, start: int, end: int) -> None:
        """Note that the bytes changed."""
        if end > start:
            blocks = range(start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1)
            self.dirty.update(blocks)
            if self.lost:
                self.lost.difference_update(blocks)

    def resize(self, size: int) -> None:
        old = len(self.data)
        if size < old:
            del self.data[size:]
            self.touched(size, old)
        else:
            self.data.extend(bytes(size - old))
            self.touched(old, size)

    def damage(self, data: bytes | bytearray) -> None:
        """The file is another one now, on stable storage too; no process may have it open."""
        self.data = bytearray(data)
        self.durable = bytearray(data)
        self.dirty.clear()
        self.lost.clear()

    def sync(self) -> None:
        """Make stable what is in the page cache."""
        size = len(self.data)
        if len(self.durable) > size:
            del self.durable[size:]
        elif len(self.durable) < size:
            self.durable.extend(bytes(size - len(self.durable)))
        for block in self.dirty:
            start = block * BLOCK_BYTES
            if start < size:
                self.durable[start : start + BLOCK_BYTES] = self.data[start : start + BLOCK_BYTES]
        self.dirty.clear()

    def fail_sync(self) -> None:
        """As in Linux: the error is reported once, and the pages count as clean though
        they never reached the disk."""
        self.lost |= self.dirty
        self.dirty.clear()

    def evict(self) -> None:
        """Forget the pages of a failed sync, as a system short of memory does: reads
        return what is on the disk."""
        for block in sorted(self.lost):
            start = block * BLOCK_BYTES
            old = self.durable[start : start + BLOCK_BYTES]
            end = min(start + BLOCK_BYTES, len(self.data))
            if start < end:
                self.data[start:end] = (old + bytes(BLOCK_BYTES))[: end - start]
        self.lost.clear()

    def synced_bytes(self) -> int:
        """How many bytes from the start are certain to survive a power loss."""
        end = min(len(self.durable), len(self.data))
        return min([end, *(block * BLOCK_BYTES for block in self.dirty), self.readable_bytes()])

    def readable_bytes(self) -> int:
        """How many bytes from the start are certain to survive the death of the process."""
        return min([len(self.data), *(block * BLOCK_BYTES for block in self.lost)])

    def lose_power(self, rng: Random) -> None:
        """Keep what was synced, and of the rest what chance wrote back."""
        self.evict()
        low, high = sorted((len(self.durable), len(self.data)))
        if self.dirty or low != high:
            size = rng.choice((len(self.durable), len(self.data), max(rng.randint(low, high) & -BLOCK_BYTES, low)))
            share = rng.choice((0.0, 0.5, 0.9, 1.0))
            kept = bytearray(self.durable[:size])
            kept.extend(bytes(size - len(kept)))
            for block in sorted(self.dirty):
                start = block * BLOCK_BYTES
                if start < size and rng.random() < share:
                    piece = self.data[start : start + BLOCK_BYTES][: size - start]
                    kept[start : start + len(piece)] = piece
            self.data = kept
        self.durable = bytearray(self.data)
        self.dirty.clear()


class Directory:
    """Entries now, entries on stable storage, and the changes between, in order."""

    __slots__ = ("changes", "durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.changes: list[tuple[tuple[str, Inode | Directory | None], ...]] = []

    def change(self, *steps: "tuple[str, Inode | Directory | None]") -> None:
        """Set or remove (None) entries, all or nothing."""
        self.changes.append(steps)
        _apply(self.entries, steps)

    def sync(self) -> None:
        if self.changes:
            self.durable = dict(self.entries)
            self.changes.clear()

    def lose_power(self, rng: Random) -> None:
        for steps in self.changes[: rng.randint(0, len(self.changes))]:
            _apply(self.durable, steps)
        self.changes.clear()
        self.entries = dict(self.durable)
        for name in sorted(self.entries):
            self.entries[name].lose_power(rng)


def _apply(entries: "dict[str, Inode | Directory]", steps: "tuple[tuple[str, Inode | Directory | None], ...]") -> None:
    for name, node in steps:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


@dataclass(slots=True)
class DiskFault:
    """An error to come: for ``operation`` (append, write, sync, open ...) on a path
    that holds ``path_part``."""

    operation: str
    error: int = errno.EIO
    path_part: str = ""
    count: int = 1


class Disk:
    """One machine's disk; it outlives processes and power losses."""

    def __init__(
        self,
        rng: Random,
        clock: SimulatedClock,
        trace: Trace | None = None,
        *,
        name: str = "disk",
        capacity_bytes: int = 1 << 40,
    ) -> None:
        self.rng = rng
        self.clock = clock
        self.trace = trace
        self.name = name
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.root = Directory()
        self.locks: dict[str, object] = {}
        self._boots = 0
        self._boot()
        self.faults: list[DiskFault] = []
        self.errors_met = 0
        self.slowness = 1.0
        self.cuts = 0
        """How often records were cut off the end of a log."""

    def lose_power(self) -> None:
        """Forget what was not synced; no process of the machine may be alive."""
        self.locks.clear()
        self.root.lose_power(self.rng)
        self._boot()
        self.used_bytes = sum(len(inode.data) for _, inode in self.walk())

    def wipe(self) -> None:
        """Another, empty disk; no process of the machine may be alive."""
        self.locks.clear()
        self.root = Directory()
        self._boots -= 1  # the same boot as before
        self._boot()
        self.used_bytes = 0

    def _boot(self) -> None:
        """What the system exposes in files: each boot has an id."""
        self._boots += 1
        directory = self.root
        for name in BOOT_ID_PATH[:-1]:
            below = directory.durable.setdefault(name, Directory())
            assert isinstance(below, Directory)
            directory.entries[name] = below
            directory = below
        inode = Inode(0)
        inode.data += b"boot-%d\n" % self._boots
        directory.entries[BOOT_ID_PATH[-1]] = inode

    def inode(self, path: str) -> Inode | None:
        """The file at a path."""
        node: Inode | Directory | None = self.root
        for name in _names(path):
            node = node.entries.get(name) if isinstance(node, Directory) else None
        return node if isinstance(node, Inode) else None

    def evict(self) -> None:
        """No process has the files open any more; see `Inode.evict`."""
        for _, inode in self.walk():
            if inode.lost:
                inode.evict()

    def walk(self) -> Iterator[tuple[str, Inode]]:
        """All files with their paths, in order."""

        def below(path: str, directory: Directory) -> Iterator[tuple[str, Inode]]:
            for name in sorted(directory.entries):
                node = directory.entries[name]
                if isinstance(node, Directory):
                    yield from below(f"{path}/{name}", node)
                else:
                    yield f"{path}/{name}", node

        yield from below("", self.root)

    def survives(self, path: str) -> Inode | None:
        """The file, if a power loss now would surely leave its name with this
        content's synced part."""
        directory = self.root
        names = _names(path)
        for position, name in enumerate(names):
            if directory.changes:
                # Certain only where neither the entry nor a change under way touches the name.
                touched = {changed for steps in directory.changes for changed, _ in steps}
                if name in touched:
                    return None
            node = directory.durable.get(name)
            if position == len(names) - 1:
                return node if isinstance(node, Inode) else None
            if not isinstance(node, Directory):
                return None
            directory = node
        return None

    def io_delay_us(self) -> int:
        """How long a piece of blocking work takes."""
        base = 30 + self.rng.expovariate(1 / 300)
        if self.rng.random() < 0.01:
            base += self.rng.expovariate(1 / 20_000)
        return int(min(base * self.slowness, _LONGEST_US))


def _names(path: str) -> list[str]:
    return [name for name in posixpath.normpath(path).split("/") if name and name != "."]


class SimulatedFiles:
    """A process's `barnabas.base.files.Files`."""

    def __init__(self, disk: Disk, process: Process | None = None) -> None:
        self.disk = disk
        self.process = process
        self.die_in: int | None = None
        """Operations until the process dies in the middle of one."""
        self.on_death: Callable[[], None] | None = None

    # Faults

    def enter(self, operation: str, path: str, what: str = "") -> None:
        """Every operation begins here."""
        process, disk = self.process, self.disk
        if process is not None and not process.is_alive:
            raise Killed
        if self.die_in is not None:
            self.die_in -= 1
            if self.die_in < 0:
                self.die_in = None
                if self.on_death is not None:
                    self.on_death()
                raise Killed
        if disk.trace is not None:
            disk.trace.note(f"{disk.name} {operation} {path} {what}")
        for fault in disk.faults:
            if fault.operation == operation and fault.path_part in path and fault.count > 0:
                fault.count -= 1
                disk.errors_met += 1
                raise OSError(fault.error, f"simulated failure of {operation}", path)

    def _grow(self, path: str, size: int) -> None:
        disk = self.disk
        if size > 0 and disk.used_bytes + size > disk.capacity_bytes:
            disk.errors_met += 1
            raise OSError(errno.ENOSPC, "No space left on the simulated device", path)
        disk.used_bytes += size

    # Look-ups

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self.disk.root
        for name in _names(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        *parents, name = _names(path)
        node: Inode | Directory | None = self._find("/".join(parents))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return node, name

    def _file(self, path: str) -> Inode:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return node

    # The Files protocol

    def open(self, path: str, *, create: bool = False, read_only: bool = False, keep: bool = False) -> File:
        del keep  # the simulated disk does not count descriptors
        self.enter("open", path)
        parent, name = self._parent(path)
        if create and name not in parent.entries:
            parent.change((name, Inode(self.disk.clock.wall_ms())))
        return _SimulatedFile(self, path, self._file(path), read_only=read_only)

    def read(self, path: str) -> bytes:
        self.enter("read", path)
        return bytes(self._file(path).data)

    def write_atomically(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append([data])
        if sync:
            file.sync()
        file.close()
        self.rename(temporary, path)
        if sync:
            self.sync_dir(posixpath.dirname(path) or "/")

    def list(self, path: str) -> list[str]:
        self.enter("list", path)
        return sorted(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        self.enter("exists", path)
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        node = self._find(path)
        return node.modified_ms if isinstance(node, Inode) else self.disk.clock.wall_ms()

    def make_dirs(self, path: str) -> None:
        self.enter("make_dirs", path)
        directory = self.disk.root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = Directory()
                directory.change((name, node))
            if not isinstance(node, Directory):
                raise FileExistsError(errno.EEXIST, "File exists", path)
            directory = node

    def rename(self, old: str, new: str) -> None:
        self.enter("rename", old, new)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        node = source.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        replaced = target.entries.get(new_name)
        if replaced is node:
            return
        if isinstance(replaced, Directory) and (replaced.entries or not isinstance(node, Directory)):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", new)
        if isinstance(replaced, Inode):
            if isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", new)
            self.disk.used_bytes -= len(replaced.data)
        if source is target:
            source.change((old_name, None), (new_name, node))
        else:
            target.change((new_name, node))
            source.change((old_name, None))

    def remove(self, path: str) -> None:
        self.enter("remove", path)
        parent, name = self._parent(path)
        self.disk.used_bytes -= len(self._file(path).data)
        parent.change((name, None))

    def remove_tree(self, path: str) -> None:
        self.enter("remove_tree", path)
        node = self._find(path)
        if node is None:
            return
        parent, name = self._parent(path)
        self.disk.used_bytes -= _tree_bytes(node)
        parent.change((name, None))

    def sync_dir(self, path: str) -> None:
        self.enter("sync_dir", path)
        self._directory(path).sync()
        self.charge(2)

    def disk_space(self, path: str) -> tuple[int, int]:
        self.enter("disk_space", path)
        return self.disk.capacity_bytes, max(self.disk.capacity_bytes - self.disk.used_bytes, 0)

    @contextlib.contextmanager
    def lock(self, path: str) -> Iterator[None]:
        """Hold a lock file; the death of the process lets it go."""
        if not self.exists(path):
            self.open(path, create=True).close()
        held = self.disk.locks
        holder = held.get(path)
        if holder is not None and (not isinstance(holder, Process) or holder.is_alive):
            raise BlockingIOError(errno.EWOULDBLOCK, "Resource temporarily unavailable", path)
        mine: object = self.process if self.process is not None else object()
        held[path] = mine
        try:
            yield
        finally:
            if held.get(path) is mine:
                del held[path]

    def charge(self, units: int) -> None:
        """Let a blocking operation on the loop take its time when the disk is slow."""
        if self.process is not None and self.disk.slowness > 1:
            self.process.block(int(units * 200 * self.disk.slowness))


def _tree_bytes(node: Inode | Directory) -> int:
    if isinstance(node, Inode):
        return len(node.data)
    return sum(_tree_bytes(below) for below in node.entries.values())


class _SimulatedFile:
    """An open file; it stays readable after its name is gone."""

    __slots__ = ("_files", "_inode", "_is_open", "_path", "_read_only")

    def __init__(self, files: SimulatedFiles, path: str, inode: Inode, *, read_only: bool) -> None:
        self._files = files
        self._path = path
        self._inode = inode
        self._read_only = read_only
        self._is_open = True

    def _check(self, *, writes: bool = False) -> Inode:
        if not self._is_open or (writes and self._read_only):
            raise OSError(errno.EBADF, "Bad file descriptor", self._path)
        if writes:
            self._inode.modified_ms = self._files.disk.clock.wall_ms()
        return self._inode

    def size(self) -> int:
        return len(self._inode.data)

    def read_at(self, offset: int, size: int) -> bytes:
        inode = self._check()
        return bytes(inode.data[offset : offset + size])

    def append(self, parts: Sequence[Buffer]) -> None:
        data = b"".join(bytes(part) for part in parts)
        self._files.enter("append", self._path, checksum(data))
        inode = self._check(writes=True)
        self._files._grow(self._path, len(data))
        start = len(inode.data)
        inode.data += data
        inode.touched(start, start + len(data))
        self._files.charge(1)

    def write_at(self, offset: int, data: Buffer) -> None:
        self._files.enter("write", self._path, f"{offset} {checksum(data)}")
        inode = self._check(writes=True)
        view = memoryview(data).cast("B")
        end = offset + len(view)
        self._files._grow(self._path, max(end - len(inode.data), 0))
        if offset > len(inode.data):
            inode.resize(offset)
        inode.data[offset:end] = view
        inode.touched(offset, end)

    def truncate(self, size: int) -> None:
        self._files.enter("truncate", self._path, str(size))
        inode = self._check(writes=True)
        self._files._grow(self._path, size - len(inode.data))
        if size < len(inode.data) and self._path.endswith(".log"):
            self._files.disk.cuts += 1
        inode.resize(size)

    def sync(self) -> None:
        inode = self._check()
        try:
            self._files.enter("sync", self._path, str(len(inode.data)))
        except OSError:
            inode.fail_sync()
            raise
        inode.sync()
        self._files.charge(5)

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self._is_open = False

    def __repr__(self) -> str:
        return f"_SimulatedFile({self._path!r}, size={len(self._inode.data)})"
