"""Patroni with PostgreSQL on an ensemble of ours: a primary at a time, through a switchover and
kills of the primary and of the ensemble's leader, and no acknowledged row lost.

The commands are those of docs/how-to/run-systems-on-coordination.md.
"""

import shlex
from pathlib import Path

import pytest

from support.ensemble import serving_ensemble
from support.needs import needs
from support.pages import DOCS, Command, blocks, commands, missing
from support.patroni import PatroniCluster, PatroniNode, Writers, patroni_cluster, reigns
from support.ports import free_ports
from support.reader import Reader
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400), needs("initdb", "setpriv", "make")]

PAGE = DOCS / "how-to" / "run-systems-on-coordination.md"
LIMIT_S = 60
SESSION_MS = 6000
"""The longest session of the ensemble, which cuts Patroni's 20 s short: a dead primary is
missed sooner."""


def test_the_ensemble_of_the_page_serves(tmp_path: Path) -> None:
    """The page's file for each of three servers; what they are asked by four letters."""
    members = [block for block in blocks(PAGE) if block.section.startswith("1.")]
    zoo_cfg = next(block.text for block in members if block.file == "zoo.cfg")
    ports = {number: free_ports(3) for number in (1, 2, 3)}
    places = {f"zoo{number}:2888:3888": f"localhost:{port[1]}:{port[2]}" for number, port in ports.items()}
    places |= {"/var/lib/barnabas/zookeeper": str(tmp_path / "1"), "clientPort=2181": f"clientPort={ports[1][0]}"}
    reader = Reader(tmp_path, places | {"zoo1 2181": f"localhost {ports[1][0]}"})

    def start_the_others() -> None:
        for number in (2, 3):
            directory = tmp_path / str(number)
            directory.mkdir()
            (directory / "myid").write_text(f"{number}\n")
            own = {
                f"dataDir={tmp_path}/1": f"dataDir={directory}",
                f":{ports[1][0]}": "",
                f"={ports[1][0]}": f"={ports[number][0]}",
            }
            text = reader.here(zoo_cfg)
            for before, after in own.items():
                text = text.replace(before, after)
            (tmp_path / f"zoo{number}.cfg").write_text(text)
            reader.stay(Command("", f"barnabas zookeeper-server-start zoo{number}.cfg", []))

    reader.before["barnabas zookeeper-server-start"] = start_the_others
    try:
        reader.follow(members)
    finally:
        reader.end()


def numbers(node: PatroniNode) -> set[object]:
    """What its table holds."""
    return {number for (number,) in node.query("SELECT number FROM numbers")}


def type_command(cluster: PatroniCluster, name: str, places: dict[str, str]) -> None:
    """What the page does with patronictl, for these nodes in the place of its nodes."""
    command = next(each for each in commands(PAGE) if each.line.startswith(f"patronictl -c patroni.yml {name}"))

    def here(text: str) -> str:
        return " ".join(places.get(word, word) for word in text.split(" "))

    output = cluster.ctl(*shlex.split(here(command.line))[3:])
    assert missing(command, lambda text: text, output) == [], output


def test_patroni_switches_and_fails_over_without_a_lost_row_or_a_second_primary(tmp_path: Path) -> None:
    """The ensemble's leader dies alone, which moves no primary; then a switchover; then primary and
    ensemble's leader die together. The dead primary comes back as a standby with the same rows."""
    with (
        serving_ensemble(tmp_path, maxSessionTimeout=SESSION_MS) as members,
        patroni_cluster(members.addresses) as cluster,
    ):
        first, second = cluster.until_complete()
        first.query("CREATE TABLE numbers (number integer PRIMARY KEY)")
        writers = Writers(cluster)
        try:
            writers.until_taken_by(first)
            dead = members.kill_leader()
            writers.until_taken_by(first)
            dead.start()

            type_command(cluster, "list", {})
            type_command(cluster, "switchover", {"pg1": first.name, "pg2": second.name})
            writers.until_taken_by(second)
            assert cluster.until_complete()[0] is second
            writers.until_taken_by(second)  # a standby has all that came before, too

            second.kill()
            members.kill_leader()
            third = eventually(cluster.leader, timeout_s=LIMIT_S, what="another primary")
            writers.until_taken_by(third)
            second.program.start()
            assert cluster.until_complete()[0] is third
        finally:
            inserts = writers.finish()
        assert reigns(inserts) == [first.name, second.name, third.name]
        wanted = {insert.number for insert in inserts}
        assert wanted <= numbers(third)
        for node in cluster.nodes.values():
            eventually(
                lambda node=node: numbers(node) == numbers(third), timeout_s=LIMIT_S, what=f"equal rows in {node.name}"
            )
