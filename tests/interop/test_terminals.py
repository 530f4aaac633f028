"""Commands on a real terminal: Ctrl-C ends each with 130, at once, and leaves the
terminal as it was."""

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers import Up, up

pytestmark = [pytest.mark.interop]

START_S = 60.0
END_S = 60.0


class Terminal:
    """A command whose standard streams are a terminal that it controls, as in a shell."""

    def __init__(self, *words: str) -> None:
        self._master, slave = pty.openpty()
        self._before = termios.tcgetattr(slave)
        self._slave = slave
        self.shown = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=self._take,
        )

    @staticmethod
    def _take() -> None:
        """In the child, a session leader by now: make the terminal its own, so that
        keys become signals."""
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def read_until(self, text: bytes) -> None:
        """Wait until the command has shown this."""
        end = time.monotonic() + START_S
        while text not in self.shown:
            assert time.monotonic() < end, self.shown
            assert self._read(0.1) or self.process.poll() is None, self.shown
        self.shown = self.shown.partition(text)[2]

    def _read(self, wait_s: float) -> bytes:
        ready, _, _ = select.select([self._master], [], [], wait_s)
        data = os.read(self._master, 65_536) if ready else b""
        self.shown += data
        return data

    def press(self, key: bytes) -> None:
        """Type."""
        os.write(self._master, key)

    def wait(self) -> int:
        """The exit code; what the command still shows is read meanwhile."""
        end = time.monotonic() + END_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self.shown
            self._read(0.05)
        while self._read(0.0):
            pass
        return self.process.returncode

    def is_as_before(self) -> bool:
        """Whether the terminal has the settings that it had."""
        return termios.tcgetattr(self._slave) == self._before

    def close(self) -> None:
        """End what runs, and give the terminal back."""
        self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A broker with two records, and a group that has read one."""
    with up(tmp_path_factory.mktemp("terminals")) as running:
        for words, text in ((("-t", "t", "-P"), "one\ntwo\n"), (("-t", "t", "-G", "g", "-c", "1"), "")):
            command = [sys.executable, "-m", "barnabas", "cat", "-b", running.bootstrap, *words]
            subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=120)
        yield running


@pytest.mark.parametrize(
    ("words", "shown", "last"),
    [
        (("tail", "t"), b"two", b"^C"),
        (("cat", "-C", "-t", "t"), b"two", b"^C"),
        (("console-consumer", "--topic", "t", "--from-beginning"), b"two", b"Processed a total of 2 messages\r\n"),
        (("console-producer", "--topic", "t"), b">", b"^C"),
        (("overview", "--watch", "0.2"), b"TOPIC", b"^C"),
        (("consumer-groups", "--describe", "--group", "g", "--watch", "0.2"), b"CURRENT-OFFSET", b"^C"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_ctrl_c_ends_a_command_of_a_terminal(words: tuple[str, ...], shown: bytes, last: bytes, cluster: Up) -> None:
    """With no word of an error, and with the terminal as it was."""
    terminal = Terminal(*words, "--bootstrap-server", cluster.bootstrap)
    try:
        terminal.read_until(shown)
        terminal.press(b"\x03")
        assert terminal.wait() == 130, terminal.shown
        assert last in terminal.shown
        assert b"Traceback" not in terminal.shown
        assert terminal.is_as_before()
    finally:
        terminal.close()


def test_ctrl_c_stops_a_cluster_of_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers do not get the key's signal: the supervisor stops them in order,
    and nothing is left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    terminal = Terminal("up", "--port", "0", "--zk-port", "0")
    try:
        terminal.read_until(b"ready ")
        terminal.read_until(b"\r\n")
        terminal.press(b"\x03")
        assert terminal.wait() == 130
        assert terminal.shown == b"^C"
        assert terminal.is_as_before()
    finally:
        terminal.close()
    assert list(tmp_path.glob("barnabas*")) == []


def test_the_shell_completes_commands_and_paths(cluster: Up) -> None:
    """The tabulator key, as in zkCli."""
    terminal = Terminal("zookeeper-shell", cluster.zookeeper)
    try:
        terminal.read_until(b"(CONNECTED) 0] ")
        terminal.press(b"getAc\t /brokers/to\t\n")
        terminal.read_until(b"getAcl /brokers/topics")
        terminal.read_until(b": cdrwa")
        terminal.press(b"quit\n")
        assert terminal.wait() == 0
    finally:
        terminal.close()
