"""The memory of a process, as Linux counts it."""

from pathlib import Path

__all__ = ["Memory"]


class Memory:
    """By how much the memory of a process grew since this was made."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._figure = "VmHWM"
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is what it has now
        except OSError:
            self._figure = "VmRSS"  # what it has in the end, where peaks cannot be set back
        self._before_mib = self._mib("VmRSS")

    def _mib(self, name: str) -> float:
        return next(int(line.split()[1]) for line in self._status.open() if line.startswith(name)) / 1024

    @property
    def grown_mib(self) -> float:
        """At most, at any time since."""
        return self._mib(self._figure) - self._before_mib

    @property
    def kept_mib(self) -> float:
        """Now."""
        return self._mib("VmRSS") - self._before_mib
