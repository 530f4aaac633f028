"""Clusters that run on this machine by ``barnabas up``: the lock of a data dir, and the record by
which ``status``, ``down`` and ``logs`` find them.

The lock is held by the supervisor and inherited by its servers, so a data dir is free only when all
of them have ended. The record in the data dir says how to reach the cluster; a pointer to it lies
in the user's state folder, so that no data dir need be named. Nothing is read from a record whose
lock is free: it is of a cluster that has ended.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote
from typing import IO

from barnabas.base.errors import BarnabasError
from barnabas.base.private_files import make_private_dirs
from barnabas.base.user_folders import writable_user_folder
from barnabas.cli.machine.processes import is_alive, started_by
from barnabas.cli.machine.server_names import COORDINATION_NAME, SERVICES, server_of, server_title

__all__ = [
    "LocalCluster",
    "choose_cluster",
    "locked",
    "record",
    "refuse_started_by_hand",
    "running_cluster",
    "running_clusters",
    "started_by_hand",
    "stop_cluster",
    "stop_started_by_hand",
]

_LOCK = ".lock"
_RECORD = "cluster.json"
_POLL_S = 0.05


@dataclass(slots=True)
class LocalCluster:
    """What a record says. ``pids`` has each server's process under its name."""

    data_dir: str
    pid: int
    bootstrap_servers: str
    zookeeper_connect: str
    pids: dict[str, int] = field(default_factory=dict)
    is_temporary: bool = False
    """Whether the data dir is removed at the end."""
    output: str = ""
    """Where the supervisor's own messages go, if it runs in the background."""
    services: dict[str, str] = field(default_factory=dict)
    """The addresses of the schema registry and others, by their names."""


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the data dir's lock; raises `BarnabasError` when another cluster has it.

    Nothing else is written before."""
    with _lock_file(directory, "a") as file:
        if not _acquire(file):
            found = _read(directory)
            who = f" (process {found.pid}, at {found.bootstrap_servers})" if found else ""
            raise BarnabasError(
                f"{directory} is in use by a running cluster{who}: stop it with barnabas down --data-dir {quote(str(directory))}, or "
                "choose another --data-dir"
            )
        (directory / _RECORD).unlink(missing_ok=True)
        try:
            yield
        finally:
            (directory / _RECORD).unlink(missing_ok=True)
            _pointer(directory).unlink(missing_ok=True)


def record(cluster: LocalCluster) -> None:
    """Write the record of a cluster that is ready, and the pointer to it where the
    state folder can be written."""
    directory = Path(cluster.data_dir)
    (directory / _RECORD).write_text(json.dumps(asdict(cluster), indent=2), encoding="utf-8")
    with contextlib.suppress(OSError):
        pointer = _pointer(directory)
        make_private_dirs(pointer.parent)
        pointer.write_bytes(os.fsencode(directory))


def running_clusters() -> list[LocalCluster]:
    """The user's clusters that run now; pointers to others are removed."""
    found = []
    for pointer in sorted(_state_folder().glob("*.path")):
        with contextlib.suppress(OSError):
            cluster = _running(Path(os.fsdecode(pointer.read_bytes())))
            if cluster is None:
                pointer.unlink()
            else:
                found.append(cluster)
    return found


def running_cluster(directory: Path) -> LocalCluster | None:
    """The cluster that runs in a data dir."""
    return _running(directory.absolute())


def choose_cluster(data_dir: str | None) -> LocalCluster:
    """The cluster of a data dir, or the only one that runs. Raises `BarnabasError`."""
    if data_dir is not None:
        cluster = running_cluster(Path(data_dir))
        if cluster is None:
            refuse_started_by_hand(Path(data_dir))
            raise BarnabasError(
                f"no cluster runs in {data_dir}; start one with barnabas up --data-dir {quote(data_dir)}"
            )
        return cluster
    clusters = running_clusters()
    if not clusters:
        raise BarnabasError("no cluster of yours runs here; start one with barnabas up --detach")
    if len(clusters) > 1:
        dirs = ", ".join(cluster.data_dir for cluster in clusters)
        raise BarnabasError(f"{len(clusters)} clusters run: choose one with --data-dir ({dirs})")
    return clusters[0]


def stop_cluster(cluster: LocalCluster, timeout_s: float) -> None:
    """Stop everything, and wait until it has ended. Raises `BarnabasError` after the time.

    Brokers that were started by hand come first, and coordination servers last: brokers
    need them for a clean stop.
    """
    end = time.monotonic() + timeout_s
    directory = Path(cluster.data_dir)
    stop_started_by_hand(directory, timeout_s, is_coordination=False)
    with contextlib.suppress(ProcessLookupError):
        os.kill(cluster.pid, signal.SIGTERM)
    while _running(directory) is not None or (cluster.is_temporary and directory.exists()):
        if time.monotonic() > end:
            raise BarnabasError(
                f"the cluster in {cluster.data_dir} did not stop within {timeout_s:g} s: see barnabas logs, or end it "
                f"with kill -9 {cluster.pid}"
            )
        time.sleep(_POLL_S)
    stop_started_by_hand(directory, timeout_s, is_coordination=True)


def stop_started_by_hand(directory: Path, timeout_s: float, *, is_coordination: bool) -> None:
    """Stop the brokers, or the coordination servers, that were started by hand.

    Raises `BarnabasError` after the time."""
    end = time.monotonic() + timeout_s
    by_hand = started_by_hand(directory)
    pids = [pid for name, pid in by_hand.items() if name.startswith(COORDINATION_NAME) == is_coordination]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while running := [pid for pid in pids if is_alive(pid)]:
        if time.monotonic() > end:
            raise BarnabasError(
                f"process {running[0]}, which was started by hand, did not stop within {timeout_s:g} s: end it with "
                f"kill -9 {running[0]}"
            )
        time.sleep(_POLL_S)


def started_by_hand(directory: Path) -> dict[str, int]:
    """The servers that run on the data dir's files without the supervisor, as its messages
    advise, with their processes."""
    found = {}
    for command in ("zookeeper-server-start", "server-start", *(service.command for service in SERVICES.values())):
        for pid, path in started_by(command):
            name = server_of(path.name)
            if name is not None and path.parent.resolve() == directory.resolve() and is_alive(pid):
                found[name] = pid
    return found


def refuse_started_by_hand(directory: Path) -> None:
    """Raise `BarnabasError` if servers of a data dir run without a supervisor."""
    by_hand = started_by_hand(directory)
    if by_hand:
        who = " and ".join(f"{server_title(name)} (process {pid})" for name, pid in by_hand.items())
        raise BarnabasError(
            f"{who} {'runs' if len(by_hand) == 1 else 'run'}, started by hand on the files in {directory}: "
            f"barnabas down --data-dir {quote(str(directory))} stops what runs there"
        )


def _running(directory: Path) -> LocalCluster | None:
    """The record of a data dir whose lock is held."""
    found = _read(directory)
    if found is None:
        return None
    try:
        with _lock_file(directory, "r") as file:
            return None if _acquire(file) else found
    except BarnabasError:
        return None


def _read(directory: Path) -> LocalCluster | None:
    try:
        return LocalCluster(**json.loads((directory / _RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _lock_file(directory: Path, mode: str) -> IO[str]:
    try:
        return (directory / _LOCK).open(mode)
    except OSError as error:
        raise BarnabasError(
            f"{directory} cannot be written ({error.strerror}): choose another folder with --data-dir"
        ) from None


def _acquire(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # no such locks on Windows: the ports alone protect the cluster there
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _state_folder() -> Path:
    return writable_user_folder("XDG_STATE_HOME", ".local/state") / "clusters"


def _pointer(directory: Path) -> Path:
    from hashlib import sha256

    return _state_folder() / f"{sha256(os.fsencode(directory)).hexdigest()[:16]}.path"
