"""Draw the documentation's pictures of terminals, in SVG, from what commands really print.

``python docs/terminal_recording.py [NAME ...]`` writes ``docs/pictures/NAME.svg``:

- ``a-broker-is-killed``: what ``examples/labs/kill_the_controller.py`` prints, line by line as it
  came; long waits are cut short.
- ``first-steps``: a session of tmux, with ``up``, ``tail``, ``overview`` and a producer in panes of
  their own, as a terminal (pyte) shows what tmux sends. It takes the usual ports, and needs tmux.
"""

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyte
from terminal_picture import Pane, draw

from barnabas.client import Consumer
from barnabas.client.admin.topics import create_topic
from barnabas.client.cluster.admin_connection import AdminConnection

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
LAB = ROOT / "examples" / "labs" / "kill_the_controller.py"
WIDTH = 118
LINES = 42
LONGEST_WAIT_S = 2.0
COLUMNS, ROWS = 140, 27
PATIENCE_S = 60
ORDERS = ("table-7:one espresso", "table-2:two teas", "table-4:one cake", "table-7:the bill")
SERVERS = "localhost:9092"
OVERVIEW = re.compile(r"kitchen\s+\w+\s+\d+\s+1\b")


def styled(line: str) -> str:
    """A line in the colours that the lab has on a terminal."""
    if line.startswith("$ "):
        return f"\x1b[36m{line}\x1b[m"
    if line.startswith("ok "):
        return f"\x1b[32mok\x1b[m{line[2:]}"
    return f"\x1b[1m{line}\x1b[m" if re.match(r"\d\. ", line) else line


def write(name: str, picture: str) -> None:
    """Keep a picture."""
    PICTURES.mkdir(exist_ok=True)
    path = PICTURES / f"{name}.svg"
    path.write_text(picture)
    print(f"wrote {path.relative_to(ROOT)}, {path.stat().st_size:,} bytes")


def lab() -> tuple[list[str], list[float]]:
    """The first lines of the lab, and when each came; raises `CalledProcessError` if it fails."""
    lines, times_s = [], []
    now_s, before_s = 0.0, time.monotonic()
    with subprocess.Popen([sys.executable, str(LAB)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            now_s += min(LONGEST_WAIT_S, time.monotonic() - before_s)
            before_s = time.monotonic()
            # Not the folder of this machine.
            if not line.startswith("$ DATA="):
                lines.append(line.rstrip())
                times_s.append(now_s)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, LAB.name, "\n".join(lines), "")
    return lines[:LINES], times_s[:LINES]


class Tmux:
    """A session with panes, attached to a terminal emulator, which sees what a person sees."""

    def __init__(self, folder: str, columns: int = COLUMNS, rows: int = ROWS) -> None:
        self._socket = f"{folder}/tmux"
        (Path(folder) / "rc").write_text("PS1='$ '\n")
        self._shell = f"bash --noprofile --rcfile {shlex.quote(folder)}/rc"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("TMUX")}
        # pyte is compatible with the console of Linux.
        self._environment |= {"LC_ALL": "C.UTF-8", "TERM": "linux", "XDG_CONFIG_HOME": f"{folder}/config"}
        self.emulator = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.emulator)
        self._tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), "-s", "barnabas", self._shell)
        self._tmux("set", "-g", "status-right", "")
        ours, its = pty.openpty()
        termios.tcsetwinsize(its, (rows, columns))
        attach = ["tmux", "-u", "-S", self._socket, "attach", "-t", "barnabas"]
        self._terminal = open(ours, "rb", buffering=0)  # noqa: SIM115
        with open(its, "wb") as other_end:
            self._attached = subprocess.Popen(
                attach,
                stdin=other_end,
                stdout=other_end,
                stderr=other_end,
                env=self._environment,
                start_new_session=True,
            )

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-u", "-f", "/dev/null", "-S", self._socket, *words]
        return subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True).stdout

    def split(self, pane: int, direction: str, *options: str) -> None:
        """A pane beside (``-h``) or below (``-v``) another one."""
        self._tmux("split-window", direction, "-t", f"barnabas:0.{pane}", *options, self._shell)

    def type(self, pane: int, line: str) -> None:
        """A line and Enter, in one of the panes."""
        self._tmux("send-keys", "-t", f"barnabas:0.{pane}", "-l", line)
        self._tmux("send-keys", "-t", f"barnabas:0.{pane}", "Enter")

    def text(self, pane: int) -> str:
        """What a pane holds."""
        return self._tmux("capture-pane", "-p", "-t", f"barnabas:0.{pane}")

    def until(self, pane: int, holds: Callable[[str], object]) -> None:
        """Wait for what a pane holds."""
        end = time.monotonic() + PATIENCE_S
        while not holds(self.text(pane)):
            if time.monotonic() > end:
                sys.exit(f"pane {pane} shows:\n{self.text(pane)}")
            self._look(0.1)

    def panes(self) -> list[Pane]:
        """All panes, with their texts."""
        shape = "#{pane_index} #{pane_left} #{pane_top} #{pane_width} #{pane_height}"
        found = [[int(word) for word in line.split()] for line in self._tmux("list-panes", "-F", shape).splitlines()]
        return [Pane(*place, self.text(pane)) for pane, *place in found]

    def picture(self, title: str) -> str:
        """All that is seen, when it has not changed for half a second."""
        while self._look(0.5):
            pass
        return draw(self.emulator, title, self.panes())

    def _look(self, wait_s: float) -> bool:
        """Whether something was drawn meanwhile."""
        has_news = False
        end = time.monotonic() + wait_s
        while select.select([self._terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            self._stream.feed(self._terminal.read(65536))
            has_news = True
        return has_news

    def interrupt(self, pane: int) -> None:
        """Ctrl-C."""
        self._tmux("send-keys", "-t", f"barnabas:0.{pane}", "C-c")

    def end(self) -> None:
        self._tmux("kill-server")
        self._attached.wait()
        self._terminal.close()


def first_steps() -> str:
    """``up``, ``tail``, ``overview`` and a producer, each in its pane."""
    with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
        tmux = Tmux(folder)
        up, overview, tail, producer = 0, 1, 2, 3
        tmux.split(up, "-h")
        tmux.split(up, "-v", "-l", "18")
        tmux.split(tail, "-v", "-l", "14")
        try:
            tmux.type(up, "barnabas up --brokers 3")
            tmux.until(up, lambda text: "ready" in text)
            with AdminConnection(SERVERS) as admin:
                create_topic(admin, "orders", partitions=3, replication_factor=3, configs={})
            tmux.type(overview, f"barnabas context add local --bootstrap-servers {SERVERS}")
            tmux.until(overview, lambda text: "commands use" in text)
            tmux.type(tail, "barnabas tail orders --last 4")
            tmux.type(producer, "barnabas console-producer --topic orders \\")
            tmux.type(producer, "    --property parse.key=true --property key.separator=:")
            tmux.until(producer, lambda text: text.rstrip().endswith(">"))
            for number, order in enumerate(ORDERS, 1):
                tmux.type(producer, order)
                tmux.until(tail, lambda text, number=number: text.count("table-") == number)
                if number == len(ORDERS) - 1:
                    # Of the last order, overview shows the lag.
                    read(number)
            tmux.type(overview, "barnabas overview")
            tmux.until(overview, OVERVIEW.search)
            return tmux.picture("tmux: barnabas up, tail, overview")
        finally:
            tmux.interrupt(up)
            tmux.until(up, lambda text: text.rstrip().endswith("$"))
            tmux.end()


def read(count: int) -> None:
    """A group reads this many records, and commits them."""
    settings = {"bootstrap.servers": SERVERS, "group.id": "kitchen", "auto.offset.reset": "earliest"}
    with Consumer({**settings, "enable.auto.commit": "false"}) as consumer:
        consumer.subscribe(["orders"])
        records = [consumer.poll(30) for _ in range(count)]
        assert None not in records
        consumer.poll(0)
        consumer.commit()


def main(names: Sequence[str]) -> int:
    """Record and write."""
    try:
        if not names or "a-broker-is-killed" in names:
            lines, times_s = lab()
            screen = pyte.Screen(WIDTH, len(lines))
            pyte.Stream(screen).feed("\r\n".join(styled(line[:WIDTH]) for line in lines))
            title = "python examples/labs/kill_the_controller.py"
            write("a-broker-is-killed", draw(screen, title, times_s=times_s))
        if not names or "first-steps" in names:
            if not shutil.which("tmux"):
                sys.exit("tmux is needed for first-steps")
            write("first-steps", first_steps())
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error}\n{error.stdout}{error.stderr}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
