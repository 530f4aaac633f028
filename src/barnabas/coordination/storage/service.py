"""The edge of the storage: writes snapshots while the server serves, gives them to
operators, and takes theirs.

One snapshot is written at a time, slice by slice; a thread writes the slices. None is written
while a restored state takes the place of the server's own: it would be of the old state, and
a restart would find it.

In ZooKeeper: ZooKeeperServer.takeSnapshot and restoreFromSnapshot.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from barnabas.base.errors import ConfigError
from barnabas.coordination.core.database import Database
from barnabas.coordination.storage.storage import SnapshotFile, Storage

__all__ = ["SnapshotService"]

logger = logging.getLogger(__name__)
_PART_BYTES = 1 << 20
_MANY_ACLS = 1000

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class SnapshotService:
    """See the module."""

    def __init__(
        self,
        storage: Storage,
        executor: Executor | None,
        database: Callable[[], Database],
        *,
        now_ms: Callable[[], int],
        on_begin: Callable[[], None],
        on_written: Callable[[int, int], None],
    ) -> None:
        """``database`` returns the present state.

        ``on_written(zxid, ms that it took)`` follows each snapshot."""
        self._storage = storage
        self._executor = executor
        self._database = database
        self._now_ms = now_ms
        self._on_begin = on_begin
        self._on_written = on_written
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._lock = asyncio.Lock()
        """held while a snapshot is written, while old files are removed, and while a restored state
        takes the place of the server's own"""
        self._is_restoring = False
        self._is_over = False

    @property
    def is_writing(self) -> bool:
        """Whether a snapshot is under way, or waits for its turn; or old files are removed."""
        return bool(self._tasks)

    def begin(self) -> "asyncio.Task[SnapshotFile | None]":
        """Begin to write one, as soon as no other is under way.

        The result is None if it cannot be written."""
        return self._start(self._write())

    def purge(self, retain: int) -> "asyncio.Task[None]":
        """Begin to remove the files that are no longer needed, `Storage.purge`."""
        return self._start(self._purge(retain))

    def _start(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def cancel(self) -> None:
        """The server stops. At return nothing is written any more."""
        self._is_over = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with self._lock:  # a restored state that is taking its place has it at the end
            pass

    async def _write(self) -> SnapshotFile | None:
        async with self._lock:
            return None if self._is_over else await self._write_alone()

    async def _purge(self, retain: int) -> None:
        async with self._lock:
            if self._is_over:
                return
            try:
                for path in await self._run(self._storage.purge, retain):
                    logger.info("Removed %s", path)
            except OSError as error:
                logger.error("Old snapshots and logs cannot be removed: %s", error)

    async def _write_alone(self) -> SnapshotFile | None:
        self._on_begin()
        database = self._database()
        if len(database.tree.known_acls()) > _MANY_ACLS:
            for _ in database.tree.forget_unused_acls():
                await asyncio.sleep(0)
            database = self._database()
        began_ms, zxid = self._now_ms(), database.last_zxid
        writer = self._storage.begin_snapshot(database)
        logger.info("Writing snapshot %s", writer.path)
        try:
            while (part := writer.next_part()) is not None:
                await self._run(writer.write, part)
            await self._run(writer.finish)
            self._on_written(zxid, self._now_ms() - began_ms)
            return SnapshotFile(writer.path, zxid, self._storage.files.size(writer.path))
        except OSError as error:
            logger.error("The snapshot %s cannot be written, so log files are kept for longer: %s", writer.path, error)
            await self._run(writer.abandon)
            return None
        except BaseException:
            await self._run(writer.abandon)
            raise

    async def _run(self, work: Callable[[*_Ts], _T], *args: *_Ts) -> _T:
        """Do work in a thread.

        A task that is cancelled meanwhile ends after the work: what follows uses the same files."""
        done = asyncio.get_running_loop().run_in_executor(self._executor, work, *args)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait((done,))
            raise

    # For operators

    async def take(self) -> SnapshotFile:
        """Write one. Raises OSError."""
        taken = await self.begin()
        if taken is None:
            raise OSError("the snapshot cannot be written: see the log")
        return taken

    async def read(self, snapshot: SnapshotFile) -> AsyncIterator[bytes]:
        """The bytes of a snapshot that was taken, in parts."""
        run, file = asyncio.get_running_loop().run_in_executor, self._storage.files.open(snapshot.path, read_only=True)
        try:
            position = 0
            while part := await run(self._executor, file.read_at, position, _PART_BYTES):
                yield part
                position += len(part)
        finally:
            file.close()

    async def restore(
        self, parts: AsyncIterator[bytes], size_bytes: int, stop_writing: Callable[[], Awaitable[None]]
    ) -> Database:
        """Make the snapshot that comes in parts the state on disk, and return it.

        ``size_bytes`` is 0 if it is not known. ``stop_writing`` is called when it is known to
        be whole, and returns when nothing is written to the log any more. Raises
        `BarnabasError` if it cannot be restored, `NoRoomError` if the disk has no room for it,
        and OSError. The next snapshot is written after this returns, so the caller must have
        the new state in place before it awaits.
        """
        if self._is_restoring:
            raise ConfigError("another snapshot is being restored")
        self._is_restoring = True
        restoration = self._storage.new_restoration()
        try:
            await self._run(restoration.check_room, size_bytes)
            async for part in parts:
                await self._run(restoration.write, part)
            database = await self._run(restoration.read)
            # Not before: an upload may take long, and snapshots are due meanwhile.
            async with self._lock:
                began_ms = self._now_ms()
                try:
                    await stop_writing()
                    await self._run(self._storage.restore, restoration, database.last_zxid)
                except BaseException:
                    self._is_over = True  # the server stops: its files may be of either state
                    raise
        except BaseException:
            await self._run(restoration.abandon)
            raise
        finally:
            self._is_restoring = False
        self._on_begin()
        self._on_written(database.last_zxid, self._now_ms() - began_ms)
        return database
