"""All events of a simulation, line by line.

Two runs were the same if the hashes of their traces are equal."""

import hashlib
import zlib

from barnabas.testing.simulation.loop import SimulatedLoop

__all__ = ["Trace", "checksum"]


def checksum(data: "bytes | bytearray | memoryview") -> str:
    """A short name of some bytes."""
    return f"{len(data)}:{zlib.crc32(data):08x}"


class Trace:
    """Lines with their virtual time, hashed; kept as text on demand, the newest always."""

    def __init__(self, loop: SimulatedLoop, *, keep: bool = False) -> None:
        self._loop = loop
        self._hash = hashlib.blake2b(digest_size=16)
        self.count = 0
        self.lines: list[str] | None = [] if keep else None

    def note(self, what: str) -> None:
        """Add a line."""
        line = f"{self._loop.now_us} {what}"
        self._hash.update(line.encode("utf-8", "surrogateescape"))
        self._hash.update(b"\n")
        self.count += 1
        if self.lines is not None:
            self.lines.append(line)

    def digest(self) -> str:
        """The hash of all lines."""
        return self._hash.hexdigest()
