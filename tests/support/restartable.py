"""Programs of others that a test kills and starts again with the same command and folder."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Restartable", "restartable"]


@dataclass
class Restartable:
    """A program with its folder; its output is in ``log`` there."""

    command: Sequence[object]
    folder: Path
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def start(self) -> None:
        """Start it in a process group of its own."""
        assert self.process is None
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                list(map(str, self.command)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """End it and what it started at once, if it runs."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def output(self) -> str:
        """All that it has printed."""
        log = self.folder / "log"
        return log.read_text(errors="replace") if log.exists() else ""


@contextlib.contextmanager
def restartable(command: Sequence[object], folder: Path) -> Iterator[Restartable]:
    """A program that is started, and killed at the end; where the test fails, its
    last output is shown."""
    folder.mkdir(parents=True, exist_ok=True)
    program = Restartable(command, folder)
    program.start()
    try:
        yield program
    except BaseException as failure:
        failure.add_note(f"{folder.name}: {program.output()[-3000:]}")
        raise
    finally:
        program.kill()
