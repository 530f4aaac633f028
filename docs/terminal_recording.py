"""Draw the documentation's pictures of terminals, in SVG, from what commands really print.

``python docs/terminal_recording.py [NAME ...]`` writes ``docs/pictures/NAME.svg``:

- ``a-broker-is-killed``: what ``examples/labs/kill_the_controller.py`` prints, line by line as it came; long waits are cut short.
- ``first-steps``: a session of tmux, with ``up``, ``tail``, ``overview`` and a producer in windows of their own, as tmux shows
  it. It takes the usual ports, and needs tmux.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from barnabas.client import Consumer
from barnabas.client.admin_connection import AdminConnection
from barnabas.client.topics import create_topic

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
LAB = ROOT / "examples" / "labs" / "kill_the_controller.py"
WIDTH = 118
LINES = 42
LONGEST_WAIT_S, LAST_S = 2.0, 8.0
COLUMNS, ROWS = 140, 27
PATIENCE_S = 60
ORDERS = ("table-7:one espresso", "table-2:two teas", "table-4:one cake", "table-7:the bill")
SERVERS = "localhost:9092"
OVERVIEW = re.compile(r"kitchen\s+\w+\s+\d+\s+1\b")


def styled(line: str) -> Text:
    """A line in the colours that the lab has on a terminal."""
    if line.startswith("$ "):
        return Text(line, "cyan")
    if line.startswith("ok "):
        return Text("ok", "green") + Text(line[2:])
    if re.match(r"\d\. ", line):
        return Text(line, "bold")
    return Text(line)


def draw(name: str, title: str, lines: Sequence[Text], width: int, times_s: Sequence[float] = ()) -> None:
    """Write a picture; with ``times_s`` each line appears at its time, over and over, where pictures may move."""
    # The file lives as long as this program.
    console = Console(record=True, width=width, file=open(os.devnull, "w"))  # noqa: SIM115
    for line in lines:
        line.truncate(width)
        console.print(line, no_wrap=True, crop=True)
    svg = console.export_svg(title=title, theme=DIMMED_MONOKAI, unique_id="t")
    # The font is one of the viewer's: nothing is loaded from elsewhere.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    if times_s:
        svg = svg.replace("</style>", f"{animation(times_s)}</style>", 1)
    PICTURES.mkdir(exist_ok=True)
    picture = PICTURES / f"{name}.svg"
    picture.write_text(svg)
    print(f"wrote {picture.relative_to(ROOT)}, {picture.stat().st_size:,} bytes")


def animation(times_s: Sequence[float]) -> str:
    """Style rules that show line after line. A viewer that ignores them shows all lines."""
    whole_s = times_s[-1] + LAST_S
    rules = []
    for number, at_s in enumerate(times_s):
        part = 100 * at_s / whole_s
        rules.append(f"@keyframes l{number}{{0%,{part:.2f}%{{opacity:0}}{part + 0.01:.2f}%,100%{{opacity:1}}}}")
        rules.append(f'[clip-path="url(#t-line-{number})"]{{animation:l{number} {whole_s:.1f}s step-end infinite}}')
    still = "@media (prefers-reduced-motion:reduce){[clip-path]{animation:none!important}}"
    return "\n" + "\n".join([*rules, still]) + "\n"


def lab() -> tuple[list[str], list[float]]:
    """The first lines of the lab, and when each came; raises `CalledProcessError` if it fails."""
    lines, times_s = [], []
    now_s, before_s = 0.0, time.monotonic()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([sys.executable, str(LAB)], stdout=subprocess.PIPE, text=True, env=environment) as process:
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
    """A session with windows side by side, and a second tmux around it that sees what a person sees."""

    def __init__(self, folder: str) -> None:
        self._sockets = [f"{folder}/inner", f"{folder}/outer"]
        (Path(folder) / "rc").write_text("PS1='$ '\n")
        shell = f"bash --noprofile --rcfile {folder}/rc"
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("TMUX")}
        self._environment |= {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        self._tmux(0, "new-session", "-d", *size, "-s", "barnabas", shell)
        self._tmux(0, "set", "-g", "status-right", "")
        self._tmux(0, "split-window", "-h", "-t", "barnabas:0.0", shell)
        self._tmux(0, "split-window", "-v", "-t", "barnabas:0.0", "-l", "18", shell)
        self._tmux(0, "split-window", "-v", "-t", "barnabas:0.2", "-l", "14", shell)
        self._tmux(1, "new-session", "-d", *size, "-s", "eye", f"tmux -u -S {self._sockets[0]} attach -t barnabas")
        self._tmux(1, "set", "-g", "status", "off")

    def _tmux(self, which: int, *words: str) -> str:
        command = ["tmux", "-u", "-f", "/dev/null", "-S", self._sockets[which], *words]
        return subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True).stdout

    def type(self, window: int, line: str) -> None:
        """A line and Enter, in one of the windows."""
        self._tmux(0, "send-keys", "-t", f"barnabas:0.{window}", "-l", line)
        self._tmux(0, "send-keys", "-t", f"barnabas:0.{window}", "Enter")

    def text(self, window: int) -> str:
        """What a window shows."""
        return self._tmux(0, "capture-pane", "-p", "-t", f"barnabas:0.{window}")

    def until(self, window: int, holds: Callable[[str], object]) -> None:
        """Wait for what a window shows."""
        end = time.monotonic() + PATIENCE_S
        while not holds(self.text(window)):
            if time.monotonic() > end:
                sys.exit(f"window {window} shows:\n{self.text(window)}")
            time.sleep(0.1)

    def screen(self) -> list[Text]:
        """All that is seen, with its colours."""
        # For what is drawn last.
        time.sleep(1)
        shown = self._tmux(1, "capture-pane", "-p", "-e", "-t", "eye")
        return [Text.from_ansi(line) for line in shown.rstrip("\n").split("\n")]

    def interrupt(self, window: int) -> None:
        """Ctrl-C."""
        self._tmux(0, "send-keys", "-t", f"barnabas:0.{window}", "C-c")

    def end(self) -> None:
        for which in (1, 0):
            self._tmux(which, "kill-server")


def first_steps() -> list[Text]:
    """``up``, ``tail``, ``overview`` and a producer, each in its window."""
    with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
        tmux = Tmux(folder)
        up, overview, tail, producer = 0, 1, 2, 3
        try:
            tmux.type(up, "barnabas up --brokers 3")
            tmux.until(up, lambda text: "ready" in text)
            with AdminConnection(SERVERS) as admin:
                create_topic(admin, "orders", partitions=3, replication_factor=3, configs={})
            tmux.type(tail, "barnabas tail orders --last 4")
            tmux.type(producer, "barnabas console-producer --topic orders \\")
            tmux.type(producer, f"    --bootstrap-server {SERVERS} \\")
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
            return tmux.screen()
        finally:
            tmux.interrupt(up)
            tmux.until(up, lambda text: text.rstrip().endswith("$"))
            tmux.end()


def read(count: int) -> None:
    """A group reads and commits so many records."""
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
            title = "python examples/labs/kill_the_controller.py"
            draw("a-broker-is-killed", title, [styled(line) for line in lines], WIDTH, times_s)
        if not names or "first-steps" in names:
            if not shutil.which("tmux"):
                sys.exit("tmux is needed for first-steps")
            draw("first-steps", "tmux: barnabas up, tail, overview", first_steps(), COLUMNS)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error}\n{error.stdout}{error.stderr}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
