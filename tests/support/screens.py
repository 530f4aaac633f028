"""Programs with a screen, in a terminal emulator (pyte)."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping

import pyte

SCREEN_S = 60.0


class Screen:
    """A program in a terminal of its own, and what a person sees there."""

    def __init__(self, *command: str, size: tuple[int, int] = (80, 24), env: Mapping[str, str] | None = None) -> None:
        columns, lines = size
        self._master, self._slave = pty.openpty()
        self._resize(columns, lines)
        self._before = termios.tcgetattr(self._slave)
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.sent = b""
        self.process = subprocess.Popen(
            command,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
        )

    def _resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """As a window that is drawn to another size."""
        self._screen.resize(lines, columns)
        self._resize(columns, lines)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display)

    def _read(self, wait_s: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], wait_s)
        if ready:
            data = os.read(self._master, 65_536)
            self.sent += data
            self._stream.feed(data)
        return bool(ready)

    def wait_for(self, shown: str | Callable[[str], bool]) -> str:
        """What is shown as soon as it has this."""
        end = time.monotonic() + SCREEN_S
        while not (shown in self.text if isinstance(shown, str) else shown(self.text)):
            assert time.monotonic() < end, self.text
            assert self._read(0.1) or self.process.poll() is None, self.sent[-2000:]
        return self.text

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self) -> int:
        """The exit code, when it has ended by itself and given the terminal back."""
        end = time.monotonic() + SCREEN_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self.text
            self._read(0.05)
        while self._read(0.0):
            pass
        assert termios.tcgetattr(self._slave) == self._before
        assert b"Traceback" not in self.sent
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)
