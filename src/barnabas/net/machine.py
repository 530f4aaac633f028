"""What the process and its machine are: names and versions, memory, descriptors, processor time.

For ZooKeeper's `envi` and `mntr`. In ZooKeeper: Environment, and the process figures
of the Prometheus client.
"""

import getpass
import os
import platform
import socket
import sys
import tempfile
import time
from collections.abc import Iterable

from barnabas.net.process_metrics import ProcessMetrics

__all__ = ["environment", "free_and_capacity_bytes", "process_figures", "show_date"]

_STARTED_S = time.time()
_JAVA_KEYS = ("java.version", "java.vendor", "java.home", "java.class.path", "java.library.path", "java.compiler")


def environment() -> dict[str, str]:
    """The names that ZooKeeper's servers report. There is no Java, and its names say so."""
    total_mb, free_mb = _memory_mb()
    return {
        "host.name": socket.gethostname(),
        **dict.fromkeys(_JAVA_KEYS, "none"),
        "java.io.tmpdir": tempfile.gettempdir(),
        "python.version": platform.python_version(),
        "python.implementation": platform.python_implementation(),
        "python.home": sys.prefix,
        "os.name": platform.system(),
        "os.arch": platform.machine(),
        "os.version": platform.release(),
        "user.name": _user(),
        "user.home": os.path.expanduser("~"),
        "user.dir": os.getcwd(),
        "os.memory.free": f"{free_mb}MB",
        "os.memory.max": f"{total_mb}MB",
        "os.memory.total": f"{total_mb}MB",
    }


def show_date(wall_ms: int) -> str:
    """As Java's Date prints it: Thu Jan 01 00:00:00 UTC 1970."""
    return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(wall_ms / 1000))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def _memory_mb() -> tuple[int, int]:
    """All of the machine's memory, and what of it is free."""
    try:
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        return (
            os.sysconf("SC_PHYS_PAGES") * page_bytes >> 20,
            os.sysconf("SC_AVPHYS_PAGES") * page_bytes >> 20,
        )
    except (ValueError, OSError, AttributeError):
        return 0, 0


def process_figures() -> dict[str, float]:
    """Descriptors, memory and processor time, under the names of the Prometheus client.

    What is unknown is missing."""
    figures: dict[str, float] = {
        ProcessMetrics.CPU.name: time.process_time(),
        ProcessMetrics.START_TIME.name: _STARTED_S,
    }
    try:
        import resource

        figures[ProcessMetrics.MAX_FDS.name] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # Linux gives their number as the size since 6.2: to list 10,000 takes some milliseconds.
        figures[ProcessMetrics.OPEN_FDS.name] = os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
        with open("/proc/self/statm", encoding="ascii") as file:
            virtual, resident = file.read().split()[:2]
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        figures[ProcessMetrics.VIRTUAL_MEMORY.name] = int(virtual) * page_bytes
        figures[ProcessMetrics.RESIDENT_MEMORY.name] = int(resident) * page_bytes
    except (ImportError, OSError):
        pass  # not Linux
    return figures


def free_and_capacity_bytes(folders: Iterable[str]) -> dict[str, tuple[int, int]]:
    """For each folder the bytes that this process may still write to its file system, and the size
    of that. What cannot be asked is missing, as on a disk that failed. May wait for a disk."""
    found = {}
    for folder in folders:
        try:
            system = os.statvfs(folder)
        except OSError:
            continue
        found[folder] = system.f_bavail * system.f_frsize, system.f_blocks * system.f_frsize
    return found
