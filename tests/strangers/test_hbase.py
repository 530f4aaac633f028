"""Apache HBase on an ensemble of ours: two masters and two region servers keep each acknowledged
row, through kills of the active master, of a region server and of the ensemble's leader."""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from support.ensemble import HOST, serving_ensemble
from support.maven import QUICK, compiled, jars
from support.needs import ROOT, needs
from support.ports import free_ports
from support.restartable import Restartable, restartable
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs("java", "javac", "mvn"), pytest.mark.timeout(600)]

PROGRAM = ROOT / "tests" / "other_languages" / "java" / "hbase"
LIMIT_S = 120
OPENED = (
    "java.nio",
    "sun.nio.ch",
    "java.lang",
    "jdk.internal.ref",
    "java.lang.reflect",
    "java.util",
    "java.util.concurrent",
)
EXPORTED = ("java.base/jdk.internal.misc", "java.security.jgss/sun.security.krb5")
"""What HBase's own start script opens."""
MASTER = "org.apache.hadoop.hbase.master.HMaster"
REGION_SERVER = "org.apache.hadoop.hbase.regionserver.HRegionServer"


def site(directory: Path, addresses: str, own: dict[str, object]) -> str:
    """A file hbase-site.xml: the files are those of one machine, in the place of HDFS."""
    values: dict[str, object] = {
        "hbase.cluster.distributed": "true",
        "hbase.rootdir": (directory / "root").as_uri(),
        "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.wal.provider": "filesystem",
        "hbase.zookeeper.quorum": addresses,
        "zookeeper.session.timeout": 6000,
        "hbase.master.info.port": -1,
        "hbase.regionserver.info.port": -1,
        "hbase.unsafe.regionserver.hostname": HOST,
        "hbase.master.ipc.address": HOST,
        "hbase.regionserver.ipc.address": HOST,
        "hbase.regionserver.handler.count": 5,
        "hbase.regionserver.hlog.blocksize": 8 << 20,
        "hbase.netty.worker.count": 2,
        **own,
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in values.items()
    )
    return f"<configuration>\n{properties}</configuration>\n"


LOG4J = """log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c: %m%n
"""


class Cluster:
    """Masters and region servers, by port."""

    def __init__(self, client: KazooClient) -> None:
        self.masters: dict[int, Restartable] = {}
        self.region_servers: dict[int, Restartable] = {}
        self._client = client

    def active(self) -> int | None:
        """The port of the master that is active: the others say in the ensemble that they wait."""
        if not self._client.exists("/hbase/master"):
            return None
        waiting = {int(name.split(",")[1]) for name in self._client.get_children("/hbase/backup-masters")}
        running = {port for port, program in self.masters.items() if program.process} - waiting
        return running.pop() if len(running) == 1 else None

    def serving(self) -> set[int]:
        """The ports of region servers that the ensemble knows."""
        if not self._client.exists("/hbase/rs"):
            return set()
        return {int(name.split(",")[1]) for name in self._client.get_children("/hbase/rs")} & set(self.region_servers)


@contextlib.contextmanager
def running(directory: Path, java: list[object], addresses: str, client: KazooClient) -> Iterator[Cluster]:
    """Two of each."""
    cluster = Cluster(client)
    with contextlib.ExitStack() as stack:
        for main, setting, found in (
            (MASTER, "hbase.master.port", cluster.masters),
            (REGION_SERVER, "hbase.regionserver.port", cluster.region_servers),
        ):
            for port in free_ports(2):
                folder = directory / f"{main.rpartition('.')[2]}-{port}"
                folder.mkdir()
                own = {setting: port, "hbase.tmp.dir": folder}
                (folder / "hbase-site.xml").write_text(site(directory, addresses, own))
                command = [*java[:-1], f"{folder}:{java[-1]}", main, "start"]
                found[port] = stack.enter_context(restartable(command, folder))
        yield cluster


def written(writer: Restartable) -> set[str]:
    """The numbers that are acknowledged."""
    return set(re.findall(r"^written (\d+)$", writer.output(), re.MULTILINE))


def until_more(writer: Restartable) -> None:
    """Wait until more are, in both regions."""
    goal = len(written(writer)) + 100
    eventually(lambda: len(written(writer)) >= goal, timeout_s=LIMIT_S, what="more rows are written")


def test_each_acknowledged_row_is_there_after_kills_of_master_region_server_and_ensembles_leader(
    tmp_path: Path,
) -> None:
    """The ensemble's leader dies alone; then it dies with the active master; then a region server
    dies, as soon as another master is active, and its regions and their log go to the
    other one."""
    folder = jars("hbase-2.6.3", PROGRAM)
    java: list[object] = ["java", *QUICK]
    java += [option for name in OPENED for option in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
    java += [option for name in EXPORTED for option in ("--add-exports", f"{name}=ALL-UNNAMED")]
    java += ["-cp", compiled(PROGRAM / "Rows.java", folder, tmp_path)]
    (tmp_path / "classes" / "log4j.properties").write_text(LOG4J)
    with (
        serving_ensemble(tmp_path) as members,
        members.client() as client,
        running(tmp_path, java, members.addresses, client) as cluster,
    ):
        eventually(lambda: len(cluster.serving()) == 2, timeout_s=LIMIT_S, what="two region servers")
        (tmp_path / "client.xml").write_text(site(tmp_path, members.addresses, {}))
        rows = [*java, "Rows", tmp_path / "client.xml"]
        run(*rows, "create")
        with restartable([*rows, "write"], tmp_path / "writer") as writer:
            until_more(writer)
            dead = members.kill_leader()
            until_more(writer)
            dead.start()
            members.until_serving()

            first = eventually(cluster.active, timeout_s=LIMIT_S, what="an active master")
            cluster.masters[first].kill()
            dead = members.kill_leader()
            eventually(
                lambda: cluster.active() not in (None, first), timeout_s=LIMIT_S, what="the other master is active"
            )
            until_more(writer)
            dead.start()

            lost = min(cluster.serving())
            cluster.region_servers[lost].kill()
            eventually(lambda: lost not in cluster.serving(), timeout_s=LIMIT_S, what="a region server is gone")
            until_more(writer)
            writer.kill()
            wanted = written(writer)
        assert wanted <= set(re.findall(r"^read (\d+)$", run(*rows, "read"), re.MULTILINE))


def run(*command: object) -> str:
    """What a program prints, which must succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
