"""The tutorial "A first cluster": every command on the page is executed, in order, and its output compared."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import DOCS, Command, commands, steady
from support.servers import Up, up
from support.waiting import eventually

pytestmark = [pytest.mark.interop]
SERVER = "--bootstrap-server localhost:9092"
BARNABAS = f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n'


class Reader:
    """A person who follows the page: one shell, and other terminals for what stays."""

    def __init__(self, directory: Path, cluster: Up) -> None:
        self._directory = directory
        self._cluster = cluster
        self._terminals: list[Terminal] = []
        (directory / "bin").mkdir()
        program = directory / "bin" / "barnabas"
        program.write_text(BARNABAS)
        program.chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def here(self, text: str) -> str:
        """The page's addresses, folder and processes as they are here."""
        for number, address in enumerate(self._cluster.bootstrap.split(",")):
            text = text.replace(f"localhost:{9092 + number}", address)
        text = text.replace("localhost:2181", self._cluster.zookeeper)
        text = text.replace("/tmp/barnabas", str(self._cluster.directory))
        for number, name in enumerate(("zookeeper", "0", "1", "2")):
            text = text.replace(str(4711 + number), str(self._cluster.pids[name]))
        return text

    def run(self, command: Command, text: str = "", *, may_fail: bool = False) -> str:
        """What the command prints; it must end with 0, unless it ``may_fail``."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self.here(command.line)],
            cwd=self._directory,
            env=self._environment,
            input=text,
            timeout=60,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert may_fail or done.returncode == 0, f"{command.line}\n{done.stdout}"
        return done.stdout

    def stay(self, command: Command) -> "Terminal":
        """The command in a terminal of its own."""
        terminal = Terminal(self.here(command.line), self._directory, self._environment, len(self._terminals))
        self._terminals.append(terminal)
        return terminal

    def compare(self, command: Command) -> None:
        """Repeat a command that only looks, until it prints what the page shows."""
        wanted = {steady(self.here(line)) for line in command.output if line.strip() and line != "..."}

        def shows() -> bool:
            return wanted <= {steady(line) for line in self.run(command).splitlines()}

        eventually(shows, what=f"{command.line} prints {wanted}")

    def end(self) -> None:
        """Ctrl-C in every terminal that is left."""
        for terminal in self._terminals:
            terminal.interrupt()


class Terminal:
    """A command that stays, and what it printed so far: in a file, which takes any number of lines."""

    def __init__(self, line: str, directory: Path, environment: dict[str, str], number: int) -> None:
        self._output = directory / f"terminal-{number}"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=directory, env=environment, stdout=output, stderr=subprocess.STDOUT
            )

    def text(self) -> str:
        """What it printed."""
        return self._output.read_text()

    def interrupt(self) -> None:
        """Ctrl-C, and wait for its end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)

    def total(self) -> int:
        """Ctrl-C in a consumer's terminal: how many records it says it processed."""
        self.interrupt()
        return int(re.search(r"Processed a total of (\d+) messages", self.text())[1])


def test_every_command_of_the_tutorial_does_what_the_page_shows(tmp_path: Path) -> None:
    """From the first start to the death of a broker that has two copies."""
    page = commands(DOCS / "tutorial" / "first-cluster.md")
    assert len(page) > 25
    assert page[0].line.startswith("barnabas up --brokers 3 ")
    with up(tmp_path / "cluster", brokers=3) as cluster:
        reader = Reader(tmp_path, cluster)
        shell = ""
        group: list[Terminal] = []
        try:
            for command in page[1:]:
                line = command.line
                if group and command.section.startswith("5"):
                    described = Command("", page_line(page, "consumer-groups"), [])
                    eventually(lambda described=described: lags(reader.run(described)) == {0}, what="all is read")
                    assert sum(each.total() for each in group) == 10_000
                    group.clear()
                if line.startswith("BROKERS="):
                    shell = reader.here(line) + "; "
                elif "server-start" in line and command.section.startswith("1"):
                    assert Path(reader.here(line).split()[-1]).exists()  # what up has started already
                elif "server-start" in line:
                    reader.stay(command)
                    ids = "barnabas zookeeper-shell localhost:2181 ls /brokers/ids | tail -1"
                    reader.compare(Command("", ids, ["[0, 1, 2]"]))
                elif "console-producer" in line and not re.search("[|<]", line):
                    reader.run(command, "hello\nworld\n")
                elif "--group customer-group" in line and "console-consumer" in line:
                    # Each member then starts there, and not at the end as it is when the member has its partitions.
                    seek = f"barnabas groups seek customer-group --topic topic1 --to end {SERVER}"
                    reader.run(Command("", seek, []))
                    group += [reader.stay(command), reader.stay(command)]
                    members = Command("", f"{page_line(page, 'consumer-groups')} --members", [])
                    eventually(
                        lambda members=members: reader.run(members, may_fail=True).count("console-consumer") >= 2,
                        what="both joined",
                    )
                elif line.startswith("ls "):
                    assert reader.run(command)  # which broker has which partition is chosen at random
                elif "console-consumer" in line and "--max-messages" not in line:
                    assert two_lines(reader.stay(command)) == {"hello", "world"}
                else:
                    reader.compare(command._replace(line=shell + line))
        finally:
            reader.end()


def lags(described: str) -> set[int | None]:
    """The lags that consumer-groups --describe shows; None for one that is not known yet."""
    rows = [line.split() for line in described.splitlines() if line.startswith("customer-group")]
    return {int(row[5]) if row[5].isdecimal() else None for row in rows}


def page_line(page: list[Command], part: str) -> str:
    """The page's command that has this in it."""
    return next(command.line for command in page if part in command.line)


def two_lines(consumer: Terminal) -> set[str]:
    """What a consumer prints first; then Ctrl-C."""
    eventually(lambda: consumer.text().count("\n") >= 2, what="two lines")
    lines = set(consumer.text().splitlines()[:2])
    assert consumer.total() == 2
    return lines
