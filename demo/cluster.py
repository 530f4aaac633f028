"""The demo's cluster: three brokers as processes, on the usual ports where these are free."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.testing import ProcessCluster

__all__ = ["BARNABAS", "Cluster", "wait_until"]

BARNABAS = [sys.executable, "-m", "barnabas"]
_BROKERS = 3


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Return when the condition holds; raises TimeoutError that says what did not come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {timeout_s:.0f} s")
        time.sleep(0.05)


class Cluster(ProcessCluster):
    """Coordination and three brokers as processes of their own."""

    def __init__(self, folder: Path) -> None:
        port, zk_port = _ports()
        super().__init__(_BROKERS, data_dir=folder / "cluster", port=port, zk_port=zk_port)

    def memory_mb(self) -> dict[str, int]:
        """Resident memory of each process."""
        return {name: _resident_mb(pid) for name, pid in self.pids.items()}


def _ports() -> tuple[int, int]:
    """The usual ports if they are free, else any; PORT and ZK_PORT choose others."""
    if "PORT" in os.environ:
        return int(os.environ["PORT"]), int(os.environ.get("ZK_PORT", "0"))
    return ProcessCluster.usual_ports(_BROKERS)


def _resident_mb(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000
