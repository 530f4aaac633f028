"""Daemons that send logs and metrics to Kafka, each with a configuration, files and ports of its
own: nothing of the machine's own daemon of that name is used.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from support.transaction_kills import Program, running
from support.waiting import eventually

__all__ = ["Lines", "daemon"]

_LIMIT_S = 60


class Lines:
    """A file to which lines are added: 0, 1, 2 ..."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        path.touch()

    @property
    def all(self) -> list[str]:
        """Those that are in it."""
        return [str(number) for number in range(self.count)]

    def add(self, count: int) -> None:
        """The next ones."""
        with self.path.open("a") as file:
            file.writelines(f"{number}\n" for number in range(self.count, self.count + count))
        self.count += count


@contextlib.contextmanager
def daemon(command: list[object], directory: Path, ready: Path, **environment: str) -> Iterator[Program]:
    """Run it in the foreground, from the moment that ``ready`` is there, which it makes."""
    ready.unlink(missing_ok=True)
    with running(command, directory / "daemon.log", environment) as process:

        def is_ready() -> bool:
            assert process.poll() is None, f"{command[0]} has ended with {process.returncode}"
            return ready.exists()

        eventually(is_ready, timeout_s=_LIMIT_S, what=f"{ready.name} of {command[0]}")
        yield process
