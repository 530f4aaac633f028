"""Free ports, for processes that get theirs from the command line or a file."""

import os
import random
import socket

_FIRST, _END = 12_000, 32_000
"""Below the range from which the system takes ports for connections."""


def _range_of_worker() -> tuple[int, int]:
    """Workers of one run have ranges of their own: a port is free for a while
    between its choice and its use."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = (_END - _FIRST) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return _FIRST + number * size, _FIRST + (number + 1) * size


_first, _end = _range_of_worker()
_next = random.SystemRandom().randrange(_first, _end)


def free_ports(count: int, *, consecutive: bool = False) -> list[int]:
    """Ports that nothing listens on now.

    One that was given out comes again late, for a server may be down for a while."""
    global _next  # one sequence for the process
    found: list[int] = []
    while len(found) < count:
        if _next >= _end or (consecutive and _next + count - len(found) > _end):
            _next = _first
            found = [] if consecutive else found
        if _is_free(_next):
            found.append(_next)
        elif consecutive:
            found = []
        _next += 1
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
