"""The tutorial "A first cluster": every command on the page is executed, in order,
and its output compared."""

import re
from pathlib import Path

import pytest

from support.pages import DOCS, Command, commands
from support.reader import Reader, Terminal
from support.servers import Up, up
from support.waiting import eventually

pytestmark = [pytest.mark.interop]
SERVER = "--bootstrap-server localhost:9092"


def places(cluster: Up) -> dict[str, str]:
    """The page's addresses, folder and processes as they are here."""
    found = {f"localhost:{9092 + number}": address for number, address in enumerate(cluster.bootstrap.split(","))}
    found |= {"localhost:2181": cluster.zookeeper, "/tmp/barnabas": str(cluster.directory)}
    return found | {
        str(4711 + number): str(cluster.pids[name]) for number, name in enumerate(("zookeeper", "0", "1", "2"))
    }


def test_every_command_of_the_tutorial_does_what_the_page_shows(tmp_path: Path) -> None:
    """From the first start to the death of a broker that has two copies."""
    page = commands(DOCS / "tutorial" / "first-cluster.md")
    assert len(page) > 25
    assert page[0].line.startswith("barnabas up --brokers 3 ")
    with up(tmp_path / "cluster", brokers=3) as cluster:
        reader = Reader(tmp_path, places(cluster))
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
                    reader.type(command)
                elif "server-start" in line and command.section.startswith("1"):
                    # What up has started already.
                    assert Path(reader.here(line).split()[-1]).exists()
                elif "server-start" in line:
                    reader.stay(command)
                    ids = "barnabas zookeeper-shell localhost:2181 ls /brokers/ids | tail -1"
                    reader.compare(Command("", ids, ["[0, 1, 2]"]))
                elif "console-producer" in line and not re.search("[|<]", line):
                    reader.run(command, "hello\nworld\n")
                elif "--group customer-group" in line and "console-consumer" in line:
                    # Each member then starts there, and not at the end as it is when the
                    # member has its partitions.
                    seek = f"barnabas groups seek customer-group --topic topic1 --to end {SERVER}"
                    reader.run(Command("", seek, []))
                    group += [reader.stay(command), reader.stay(command)]
                    members = Command("", f"{page_line(page, 'consumer-groups')} --members", [])
                    eventually(
                        lambda members=members: reader.run(members, may_fail=True).count("console-consumer") >= 2,
                        what="both joined",
                    )
                elif line.startswith("ls "):
                    # Which broker has which partition is chosen at random.
                    assert reader.run(command)
                elif "console-consumer" in line and "--max-messages" not in line:
                    assert two_lines(reader.stay(command)) == {"hello", "world"}
                else:
                    reader.compare(command)
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
