"""A person who follows a page of documentation: one shell, and other terminals for what stays."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path

from support.pages import Block, Command, commands_of, missing
from support.waiting import eventually

_BARNABAS = f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n'
_STAYS = re.compile(r"barnabas (zookeeper-server-start|server-start|mirror-maker|up(?!.* (--detach|-d)\b))")
_LOOKS = re.compile(r"--describe|--verify|zookeeper-shell \S+ (ls|get)|zookeeper-status|overview|srvr|verification")
_ADDED = ((re.compile(r"^barnabas up(?!.*--port)"), "barnabas up --port 0 --zk-port 0"),)


class Reader:
    """Types the commands of a page, with the addresses, folders and processes of
    this machine (``places``)."""

    def __init__(self, directory: Path, places: Mapping[str, str]) -> None:
        self.directory = directory
        self.places = dict(places)
        self.terminals: list[Terminal] = []
        self.before: dict[str, Callable[[], object]] = {}
        """What the test does before the next command that has this in it."""
        self.before_interrupt: dict[str, Callable[[], object]] = {}
        """What must be over before Ctrl-C in the terminal of a command that has this in it."""
        self.instead: dict[str, Callable[[Command], str]] = {}
        """How the test performs commands that have this in them; each returns what is printed."""
        self._shell = ""
        bin_dir = directory / "bin"
        bin_dir.mkdir(parents=True, exist_ok=True)
        for name, text in {
            "barnabas": _BARNABAS,
            "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
            "nc": f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("netcat.py")} "$@"\n',
            "curl": f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("curl.py")} "$@"\n',
        }.items():
            (bin_dir / name).write_text(text)
            (bin_dir / name).chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}"}

    def here(self, text: str) -> str:
        """The page's text with the names of this machine."""
        names = sorted(self.places, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, names)), lambda found: self.places[found[0]], text) if names else text

    def run(self, command: Command, text: str = "", *, may_fail: bool = False) -> str:
        """What the command prints; it must end with 0, unless it ``may_fail``."""
        output, code = self._run(command, text)
        assert may_fail or code == 0, f"{command.line}\n{output}"
        return output

    def _run(self, command: Command, text: str = "") -> tuple[str, int]:
        line = self._shell + self.here(command.line)
        for pattern, replacement in _ADDED:
            line = pattern.sub(replacement, line)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.directory,
            env=self.environment,
            input=text,
            timeout=120,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout, done.returncode

    def stay(self, command: Command) -> "Terminal":
        """The command in a terminal of its own."""
        line = self.here(command.line)
        for pattern, replacement in _ADDED:
            line = pattern.sub(replacement, line)
        terminal = Terminal(line, self.directory, self.environment, len(self.terminals))
        self.terminals.append(terminal)
        return terminal

    def compare(self, command: Command) -> None:
        """Repeat a command that only looks, until it prints what the page shows."""
        lacking: list[str] = []

        def shows() -> bool:
            output, code = self._run(command)
            lacking[:] = [f"it ended with {code}: {output}"] if code else missing(command, self.here, output)
            if lacking:
                lacking.append(output)
            return not lacking

        try:
            eventually(shows, timeout_s=60)
        except AssertionError:
            raise AssertionError("\n".join([command.line, "lacks:", *lacking])) from None

    def follow(self, blocks: list[Block]) -> None:
        """Write the files of a page and type its commands, in its order."""
        for block in blocks:
            if block.file:
                path = self.directory / self.here(block.file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.here(block.text))
            elif not block.not_run:
                for command in commands_of(block):
                    self.type(command)

    def type(self, command: Command) -> None:
        """Do what a reader does with one command, and look for what the page shows."""
        line = command.line
        for part in [each for each in self.before if each in line]:
            self.before.pop(part)()
        typed = [each[2:] for each in command.output if each.startswith("> ")]
        if re.fullmatch(r"[A-Z_]+=\S*", line):
            self._shell += self.here(line) + "; "
        elif line.startswith("cat ") and command.output:
            (self.directory / line.split()[1]).write_text(self.here("\n".join(command.output)) + "\n")
        elif performers := [perform for part, perform in self.instead.items() if part in line]:
            output = performers[0](command)
            assert missing(command, self.here, output) == [], f"{line}\n{output}"
        elif _STAYS.match(line):
            terminal = self.stay(command)
            terminal.await_lines(command, self.here)
            if any(each.startswith("^C") for each in command.output):
                for part in [each for each in self.before_interrupt if each in line]:
                    self.before_interrupt.pop(part)()
                terminal.interrupt()
                assert missing(command, self.here, terminal.text()) == [], f"{line}\n{terminal.text()}"
        elif typed:
            output = self.run(command, self.here("\n".join(typed)) + "\n")
            assert missing(command, self.here, output) == [], f"{line}\n{output}"
        elif _LOOKS.search(line):
            self.compare(command)
        else:
            output = self.run(command)
            assert missing(command, self.here, output) == [], f"{line}\n{output}"
            # Like Kafka's, it does not wait for the end, which a person sees.
            if "barnabas server-stop" in line:
                name = line.split()[-1]
                for terminal in self.terminals:
                    if terminal.line.endswith(f"server-start {name}"):
                        terminal.await_end()

    def end(self) -> None:
        """Ctrl-C in every terminal that is left, the last one first."""
        for terminal in reversed(self.terminals):
            terminal.interrupt()


class Terminal:
    """A command that stays, and what it printed so far: in a file, which takes any
    number of lines."""

    def __init__(self, line: str, directory: Path, environment: dict[str, str], number: int) -> None:
        self.line = line
        self._output = directory / f"terminal-{number}"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=directory, env=environment, stdout=output, stderr=subprocess.STDOUT
            )

    def text(self) -> str:
        """What it printed."""
        return self._output.read_text()

    def await_lines(self, command: Command, here: Callable[[str], str]) -> None:
        """Wait until it shows what the page does, of a server that it serves.

        What follows ^C comes at its end."""
        shown = list(takewhile(lambda line: not line.startswith("^C"), command.output))
        if re.search(r"barnabas (server-start|up)", command.line):
            shown.append("...started..." if "server-start" in command.line else "ready...")
        eventually(lambda: not missing(command._replace(output=shown), here, self.text()), timeout_s=60, what=self.line)

    def await_end(self) -> None:
        """Wait until the program ended by itself."""
        self._process.wait(60)

    def interrupt(self) -> None:
        """Ctrl-C, and wait for its end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)

    def total(self) -> int:
        """Ctrl-C in a consumer's terminal: how many records it says it processed."""
        self.interrupt()
        return int(re.search(r"Processed a total of (\d+) messages", self.text())[1])
