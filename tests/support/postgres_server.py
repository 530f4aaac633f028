"""A PostgreSQL server of this machine's for tests, in a folder of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.needs import program


class PostgresServer:
    """A server that listens on a socket in a folder of its own.

    With a port it listens there, too, and has what a reader of its log needs."""

    def __init__(self, folder: Path, extra: dict[str, Any], port: int | None = None) -> None:
        self._folder = folder
        self._options = f"-k {folder} -c fsync=off" + (
            " -c listen_addresses=''"
            if port is None
            else f" -c listen_addresses=127.0.0.1 -p {port} -c wal_level=logical"
        )
        self._quiet = {"stdout": subprocess.DEVNULL, "check": True, "cwd": folder, **extra}
        self.url = f"postgresql://tests@/postgres?host={folder}" + ("" if port is None else f"&port={port}")
        subprocess.run([program("initdb"), "-D", folder / "data", "-A", "trust", "-U", "tests"], **self._quiet)
        self.start()

    def start(self) -> None:
        self._control("-o", self._options, "-l", self._folder / "log", "-w", "-t", "120", "start")

    def stop(self) -> None:
        self._control("-m", "fast", "-w", "stop")

    def crash(self) -> None:
        """It ends at once, without a word to its clients' transactions, and recovers
        when it starts."""
        self._control("-m", "immediate", "-w", "stop")

    def _control(self, *arguments: Any) -> None:
        subprocess.run([program("pg_ctl"), "-D", self._folder / "data", *arguments], **self._quiet)


@contextmanager
def running_postgres(port: int | None = None) -> Iterator[PostgresServer]:
    """A server until the end of the block.

    The test is skipped where PostgreSQL finds no user to run as."""
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        extra: dict[str, Any] = {}
        if (owner := owner_of_servers()) is not None:
            shutil.chown(folder, owner)
            extra = {"user": owner, "extra_groups": []}
        running = PostgresServer(folder, extra, port)
        try:
            yield running
        finally:
            running.stop()


def owner_of_servers() -> str | None:
    """The user that runs PostgreSQL in the place of root, which it refuses; None
    where this process is not root's.

    The test is skipped where there is no such user."""
    if os.geteuid() != 0:
        return None
    owner = next((each for each in ("postgres", "nobody") if _has_user(each)), None)
    if owner is None:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody")
    return owner


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
