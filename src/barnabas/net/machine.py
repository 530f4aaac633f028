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

__all__ = ["environment", "process_figures", "show_date"]

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
        "process_cpu_seconds_total": time.process_time(),
        "process_start_time_seconds": _STARTED_S,
    }
    try:
        import resource

        figures["process_max_fds"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # Linux gives their number as the size since 6.2: to list 10,000 takes some milliseconds.
        figures["process_open_fds"] = os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
        with open("/proc/self/statm", encoding="ascii") as file:
            virtual, resident = file.read().split()[:2]
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        figures["process_virtual_memory_bytes"] = int(virtual) * page_bytes
        figures["process_resident_memory_bytes"] = int(resident) * page_bytes
    except (ImportError, OSError):
        pass  # not Linux
    return figures
