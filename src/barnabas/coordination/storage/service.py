"""The edge of the storage: writes snapshots while the server serves, gives them to operators, and takes theirs.

One snapshot is written at a time, slice by slice; a thread writes the slices.

In ZooKeeper: ZooKeeperServer.takeSnapshot and restoreFromSnapshot.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor

from barnabas.base.errors import ConfigError
from barnabas.coordination.core.database import Database
from barnabas.coordination.storage.storage import SnapshotFile, Storage

__all__ = ["SnapshotService"]

logger = logging.getLogger(__name__)
_PART_BYTES = 1 << 20
_MANY_ACLS = 1000


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
        """``database`` returns the present state; ``on_written(zxid, ms that it took)`` follows each snapshot."""
        self._storage = storage
        self._executor = executor
        self._database = database
        self._now_ms = now_ms
        self._on_begin = on_begin
        self._on_written = on_written
        self._task: asyncio.Task[SnapshotFile | None] | None = None
        self._is_restoring = False

    @property
    def is_writing(self) -> bool:
        """Whether a snapshot is under way."""
        return self._task is not None

    def begin(self) -> "asyncio.Task[SnapshotFile | None]":
        """Begin to write one; the result is None if it cannot be written."""
        task = self._task = asyncio.get_running_loop().create_task(self._write())
        return task

    async def cancel(self) -> None:
        """The server stops."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _write(self) -> SnapshotFile | None:
        self._on_begin()
        database, run = self._database(), asyncio.get_running_loop().run_in_executor
        if len(database.tree.known_acls()) > _MANY_ACLS:
            database.tree.forget_unused_acls()
        began_ms, zxid = self._now_ms(), database.last_zxid
        writer = self._storage.begin_snapshot(database)
        logger.info("Writing snapshot %s", writer.path)
        try:
            while (part := writer.next_part()) is not None:
                await run(self._executor, writer.write, part)
            await run(self._executor, writer.finish)
            self._on_written(zxid, self._now_ms() - began_ms)
            return SnapshotFile(writer.path, zxid, self._storage.files.size(writer.path))
        except OSError as error:
            logger.error("The snapshot %s cannot be written, so log files are kept for longer: %s", writer.path, error)
            await run(self._executor, writer.abandon)
            return None
        finally:
            self._task = None

    # For operators

    async def take(self) -> SnapshotFile:
        """Write one. Raises OSError."""
        await self._until_idle()
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

    async def restore(self, parts: AsyncIterator[bytes], stop_writing: Callable[[], Awaitable[None]]) -> Database:
        """Make the snapshot that comes in parts the state on disk, and return it.

        ``stop_writing`` is called when it is known to be whole, and returns when nothing is written to the log any more. Raises
        `BarnabasError` if it cannot be restored, and OSError.
        """
        if self._is_restoring:
            raise ConfigError("another snapshot is being restored")
        self._is_restoring = True
        restoration, run = self._storage.new_restoration(), asyncio.get_running_loop().run_in_executor
        try:
            async for part in parts:
                await run(self._executor, restoration.write, part)
            database = await run(self._executor, restoration.read)
            began_ms = self._now_ms()
            await stop_writing()
            await self._until_idle()
            await run(self._executor, self._storage.restore, restoration, database.last_zxid)
        finally:
            await run(self._executor, restoration.abandon)
            self._is_restoring = False
        self._on_begin()
        self._on_written(database.last_zxid, self._now_ms() - began_ms)
        return database

    async def _until_idle(self) -> None:
        """Wait for the end of a snapshot that is under way."""
        if self._task is not None:
            await asyncio.wait((self._task,))
