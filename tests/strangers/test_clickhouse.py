"""ClickHouse's replicated tables on an ensemble of ours: each number is in both replicas once,
through kills of the ensemble's leader and of the replica that leads."""

import contextlib
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.debian import unpacked
from support.ensemble import HOST, serving_ensemble
from support.pages import DOCS, blocks
from support.ports import free_ports
from support.restartable import Restartable, restartable
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

LIMIT_S = 60
PAGE = DOCS / "how-to" / "run-systems-on-coordination.md"
BLOCK = 100
PACKAGES = (
    "clickhouse-server", "clickhouse-common", "libboost-filesystem1.74.0", "libboost-program-options1.74.0",
    "libcapnp-0.9.2", "libcctz2", "libcpuinfo0", "libdouble-conversion3", "libexpat1", "libfarmhash0", "libicu72",
    "libjemalloc2", "libltdl7", "liblz4-1", "libmariadb3", "libmetrohash1", "libodbc2", "libpcre3", "libpocodata80",
    "libpocodataodbc80", "libpocofoundation80", "libpocojson80", "libpocomongodb80", "libpoconet80",
    "libpoconetssl80", "libpococrypto80", "libpocoutil80", "libpocoxml80", "librdkafka1", "libre2-9", "libsasl2-2",
    "libssl3", "libzstd1",
)  # fmt: skip
"""Of Debian 12: ClickHouse 18.16.1, and its libraries."""
CONFIG = """<yandex>
    <logger><level>information</level><console>1</console></logger>
    <listen_host>127.0.0.1</listen_host>
    <http_port>{http}</http_port>
    <tcp_port>{tcp}</tcp_port>
    <interserver_http_port>{interserver}</interserver_http_port>
    <interserver_http_host>127.0.0.1</interserver_http_host>
    <path>{folder}/data/</path>
    <tmp_path>{folder}/tmp/</tmp_path>
    <mark_cache_size>100000000</mark_cache_size>
    <users_config>{debian}/etc/clickhouse-server/users.xml</users_config>
    <default_profile>default</default_profile>
    <default_database>default</default_database>
</yandex>
"""
TABLE = next(block.text for block in blocks(PAGE) if block.language == "sql")
COUNTS = "SELECT count(), uniqExact(number), max(number) + 1 FROM numbers"


class Replica:
    """A ClickHouse server, asked over HTTP."""

    def __init__(self, program: Restartable, http: int) -> None:
        self.program = program
        self._url = f"http://{HOST}:{http}/"

    def run(self, statement: str) -> str | None:
        """What a statement returns; None while the server does not do it."""
        try:
            with urllib.request.urlopen(self._url, statement.encode(), timeout=30) as answer:
                return str(answer.read().decode().strip())
        except OSError:
            return None

    def insert(self, block: int) -> None:
        """A hundred numbers, until they are acknowledged.

        A block that is sent again is known by its hash, which is a node of the ensemble."""
        values = ",".join(f"({number})" for number in range(block * BLOCK, (block + 1) * BLOCK))
        eventually(
            lambda: self.run(f"INSERT INTO numbers VALUES {values}") is not None,
            timeout_s=LIMIT_S,
            what=f"block {block} is acknowledged",
        )

    def leads(self) -> bool:
        """Whether it decides about merges."""
        return self.run("SELECT is_leader FROM system.replicas WHERE table = 'numbers'") == "1"


@contextlib.contextmanager
def replicas(directory: Path, addresses: str) -> Iterator[list[Replica]]:
    """Two servers with the page's file for ZooKeeper."""
    section = next(block.text for block in blocks(PAGE) if block.file == "zookeeper.xml")
    ports = iter(address.rpartition(":")[2] for address in addresses.split(","))
    debian = unpacked("clickhouse", *PACKAGES)
    path = ":".join(str(each) for folder in ("usr/lib", "lib") for each in (debian / folder).glob("*-linux-gnu"))
    nodes = re.sub(r"<host>zoo\d</host><port>2181<", lambda _: f"<host>{HOST}</host><port>{next(ports)}<", section)
    with contextlib.ExitStack() as stack:
        found = []
        for name in ("ch1", "ch2"):
            folder = directory / name
            http, tcp, interserver = free_ports(3)
            (folder / "config.d").mkdir(parents=True)
            text = CONFIG.format(http=http, tcp=tcp, interserver=interserver, folder=folder, debian=debian)
            (folder / "config.xml").write_text(text)
            (folder / "config.d" / "zookeeper.xml").write_text(nodes.replace("ch1", name))
            command = [
                "env",
                f"LD_LIBRARY_PATH={path}",
                debian / "usr/sbin/clickhouse-server",
                f"--config-file={folder}/config.xml",
            ]
            found.append(Replica(stack.enter_context(restartable(command, folder)), http))
        for replica in found:
            eventually(lambda replica=replica: replica.run("SELECT 1"), timeout_s=LIMIT_S, what="a server answers")
        yield found


def test_replicas_have_each_number_once_after_kills_of_both_leaders(tmp_path: Path) -> None:
    """Inserts go on while the ensemble's leader dies; then the replica that leads dies, too, and
    the other one leads, takes numbers, and gives them to the first when that is back."""
    with serving_ensemble(tmp_path) as members, replicas(tmp_path, members.addresses) as both:
        for replica in both:
            eventually(lambda replica=replica: replica.run(TABLE) is not None, timeout_s=LIMIT_S, what="the table")
        blocks_sent = iter(range(1000))

        def insert(*places: Replica) -> None:
            for place in places:
                for _ in range(3):
                    place.insert(next(blocks_sent))

        insert(*both)
        dead = members.kill_leader()
        insert(*both)
        dead.start()

        leader = eventually(
            lambda: next((each for each in both if each.leads()), None), timeout_s=LIMIT_S, what="a replica leads"
        )
        (other,) = (each for each in both if each is not leader)
        assert not other.leads()
        leader.program.kill()
        members.kill_leader()
        eventually(other.leads, timeout_s=LIMIT_S, what="the other replica leads")
        insert(other)
        leader.program.start()
        insert(other, leader)

        wanted = str(next(blocks_sent) * BLOCK)
        for replica in both:
            eventually(
                lambda replica=replica: replica.run(COUNTS) == "\t".join([wanted] * 3),
                timeout_s=LIMIT_S,
                what=f"{wanted} numbers in each replica",
            )
        assert [each for each in both if each.leads()] == [other]
        eventually(lambda: other.run("OPTIMIZE TABLE numbers FINAL") is not None, timeout_s=LIMIT_S, what="one merge")
        for replica in both:
            eventually(
                lambda replica=replica: (
                    replica.run("SELECT count() FROM system.parts WHERE active AND table = 'numbers'") == "1"
                ),
                timeout_s=LIMIT_S,
                what="both replicas have merged",
            )
