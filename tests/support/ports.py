"""Free ports, for processes that get theirs from the command line or a file."""

import random
import socket


def free_ports(count: int, *, consecutive: bool = False) -> list[int]:
    """Ports that nothing listens on now, below the range from which the system takes ports for connections."""
    rng = random.SystemRandom()
    while True:
        first = rng.randrange(12_000, 31_000)
        ports = [first + n for n in range(count)] if consecutive else rng.sample(range(12_000, 32_000), count)
        if all(map(_is_free, ports)):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
