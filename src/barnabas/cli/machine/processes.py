"""The servers that run on this machine, found by the command lines of their processes."""

import os
from pathlib import Path

from barnabas.base.errors import BarnabasError

__all__ = ["is_alive", "servers_to_stop", "started_by"]


def servers_to_stop(command: str) -> list[tuple[int, Path]]:
    """The same as `started_by`.

    Raises `BarnabasError` where a system does not show its processes."""
    if not Path("/proc/self").exists():
        raise BarnabasError("this system has no /proc: stop the server's process by its id")
    return started_by(command)


def started_by(command: str) -> list[tuple[int, Path]]:
    """This user's processes that run a server's command, by their ids, each with the path of
    the file of its settings."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid != os.getuid():
                continue
            words = os.fsdecode((folder / "cmdline").read_bytes()).split("\0")
            where = words.index(command)
            runs_ours = where > 0 and (
                Path(words[where - 1]).name == "barnabas" or words[where - 2 : where] == ["-m", "barnabas"]
            )
            if not runs_ours:
                continue
            path = _file_of(words[where + 1 :])
            found.append((int(folder.name), Path(os.path.abspath((folder / "cwd").readlink() / path))))
        except (OSError, ValueError, StopIteration):
            continue
    return sorted(found)


def _file_of(arguments: list[str]) -> str:
    """The file among a command's arguments. Raises StopIteration."""
    values = {position + 1 for position, word in enumerate(arguments) if word in ("--override", "--log-level")}
    return next(
        word for position, word in enumerate(arguments) if word and not word.startswith("-") and position not in values
    )


def is_alive(pid: int) -> bool:
    """Whether a process runs.

    One that has ended, and whose parent has not asked for its exit code yet, does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()
