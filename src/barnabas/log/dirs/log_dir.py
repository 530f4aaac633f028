"""One log dir: its lock, its owner, its checkpoints, and whether its disk works.

Kafka: part of LogManager.

A log dir holds ``meta.properties`` (whose it is), four checkpoints by partition, a marker of the
last clean stop, and a folder for each partition.
"""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.files import Files, make_dirs_durably
from barnabas.base.ids import TopicPartition
from barnabas.log.checkpoints import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    CleanShutdown,
    MetaProperties,
    write_offsets,
)

__all__ = ["LogDir", "Owner"]

_NEW = ".barnabas_new"
"""A file that stays in an empty dir until the broker has found out which replicas
should be in it."""


class Owner(NamedTuple):
    """Which broker of which cluster a log dir belongs to."""

    broker_id: int
    cluster_id: str


class LogDir:
    """One log dir. Every method but `fail` and `unlock` raises `OSError`."""

    __slots__ = ("_files", "_lock", "error", "is_new", "path", "was_clean")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._lock = ExitStack()
        self.path = path
        self.error: str | None = None
        """Why the dir is offline; None while it is online."""
        self.is_new = False
        """Whether the dir was empty at the start, or at one from which
        `note_checked` did not follow."""
        self.was_clean = False
        """Whether the last stop was clean."""

    def file_path(self, name: str) -> str:
        """The path of a file or folder in the dir."""
        return f"{self.path.rstrip('/')}/{name}"

    def open(self, owner: Owner) -> int:
        """Make the dir if it is missing, lock it, and check or write its meta.properties.

        Returns the broker epoch of the last clean stop, -1 when it is unknown or the stop was not
        clean. Raises `BarnabasError` when the dir belongs to another broker or cluster, or
        another process uses it.
        """
        make_dirs_durably(self._files, self.path)
        try:
            self._lock.enter_context(self._files.lock(self.file_path(".lock")))
        except BlockingIOError as error:
            raise BarnabasError(
                f"Failed to acquire lock on file .lock in {self.path}. "
                f"A broker in another process is using this directory."
            ) from error
        self._check_owner(owner)
        epoch = CleanShutdown.take(self._files, self.file_path(CLEAN_SHUTDOWN))
        self.was_clean = epoch is not None
        return -1 if epoch is None else epoch

    def _check_owner(self, owner: Owner) -> None:
        path = self.file_path(META_PROPERTIES)
        found = MetaProperties.read(self._files, path)
        if found is None:
            self._files.write_atomically(self.file_path(_NEW), b"")
            MetaProperties(owner.broker_id, owner.cluster_id).write(self._files, path)
        self.is_new = self._files.exists(self.file_path(_NEW))
        if found is None:
            return
        if found.broker_id not in (-1, owner.broker_id):
            raise BarnabasError(
                f"{path} belongs to broker.id {found.broker_id}, this broker has {owner.broker_id}. "
                f"Set broker.id={found.broker_id}, or move the log dir away if its data is not needed."
            )
        if found.cluster_id not in ("", owner.cluster_id):
            raise BarnabasError(
                f"{path} belongs to cluster {found.cluster_id}, this broker has joined {owner.cluster_id}. "
                f"Check zookeeper.connect, or move the log dir away if its data is not needed."
            )

    def note_checked(self) -> None:
        """A new dir is like all others from now on: what the broker misses in it is known."""
        self.is_new = False
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(self.file_path(_NEW))

    def folders(self) -> Iterator[tuple[str, str]]:
        """(name, path) of the folders in the dir."""
        for name in self._files.list(self.path):
            path = self.file_path(name)
            if self._files.is_dir(path):
                yield name, path

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int], *, sync: bool) -> None:
        """Replace a checkpoint."""
        write_offsets(self._files, self.file_path(name), offsets, sync=sync)

    def mark_clean(self, broker_epoch: int) -> None:
        """Leave the marker of a clean stop."""
        CleanShutdown.write(self._files, self.file_path(CLEAN_SHUTDOWN), broker_epoch)

    def fail(self, reason: str) -> None:
        """The dir is offline from now on."""
        self.error = reason
        with contextlib.suppress(OSError):
            self.unlock()

    def unlock(self) -> None:
        """Let other processes use the dir."""
        self._lock.close()
