"""Barnabas's servers as processes, started the way users start them."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.ports import free_ports

BARNABAS = [sys.executable, "-m", "barnabas"]


def barnabas(*args: object, text: str = "", timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*BARNABAS, *map(str, args)], input=text, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def command_of(pid: int) -> str:
    """The command line of a process; "" where there is none.

    Systems give the pid of one that has ended to another one soon."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@dataclass
class Up:
    """A cluster started by ``barnabas up``."""

    bootstrap: str
    zookeeper: str
    pids: dict[str, int]
    directory: Path
    process: subprocess.Popen[str] = field(repr=False)

    def kill(self, member: str) -> None:
        """Kill a member ("zookeeper", "0", "1" ...) with 9."""
        os.kill(self.pids[member], signal.SIGKILL)


@contextlib.contextmanager
def up(directory: Path, *args: object, brokers: int = 1, preexec_fn: Callable[[], None] | None = None) -> Iterator[Up]:
    """``barnabas up`` on free ports; stopped at the end, and its exit code checked.

    ``preexec_fn`` as in `subprocess`."""
    ports = free_ports(brokers + 1, consecutive=True)
    command = [*BARNABAS, "up", "--brokers", str(brokers), "--port", str(ports[1]), "--zk-port", str(ports[0])]
    command += ["--data-dir", str(directory), *map(str, args)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=preexec_fn)
    try:
        line = process.stdout.readline()
        ready = re.fullmatch(r"ready (\S+) zk=(\S+) pids=(\S+)\n", line)
        assert ready, f"barnabas up did not come up: {line!r}"
        pids = {name: int(pid) for name, pid in (item.split(":") for item in ready[3].split(","))}
        yield Up(ready[1], ready[2], pids, directory, process)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        process.stdout.close()
    assert code == 0, f"barnabas up ended with {code}"


@dataclass
class Server:
    """One server process that can be killed and started again on the same data."""

    argv: list[str]
    log: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*BARNABAS, *self.argv], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Stop it in the middle of whatever it does.

        Its connections stay, and the kernel takes new ones for it."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)
