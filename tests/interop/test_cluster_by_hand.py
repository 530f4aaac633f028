"""The course's cluster as its notes have it: zoo.cfg, three properties files, each
server started by hand."""

import glob
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.knowing import members_known
from support.ports import free_ports
from support.servers import Server, barnabas
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

OLD_NAMES = {
    "producer.type": "async",
    "batch.num.messages": "10",
    "queue.buffering.max.ms": "100",
    "request.required.acks": "-1",
    "compression.codec": "gzip",
}


class ByHand:
    """Four servers, each from a file such as a student writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.zk_port, *self.ports = free_ports(4)
        (folder / "zoo.cfg").write_text(
            f"tickTime=2000\ndataDir={folder}/zookeeper\nclientPort={self.zk_port}\ninitLimit=5\nsyncLimit=2\n"
        )
        self.servers = [Server(["zookeeper-server-start", str(folder / "zoo.cfg")], folder / "zk.log", self.zk_port)]
        for number, port in enumerate(self.ports):
            path = folder / f"server{number or ''}.properties"
            path.write_text(
                f"broker.id={number}\nlisteners=PLAINTEXT://:{port}\nlog.dirs={folder}/kafka-logs{number or ''}\n"
                f"zookeeper.connect=localhost:{self.zk_port}\nreplica.lag.time.max.ms=10000\n"
                "replica.lag.max.messages=4000\nmin.insync.replicas=2\n"
            )
            self.servers.append(Server(["server-start", str(path)], folder / f"broker{number}.log", port))
        self.brokers = ",".join(f"localhost:{port}" for port in self.ports)

    def ids(self) -> str:
        done = barnabas("zookeeper-shell", f"localhost:{self.zk_port}", "ls", "/brokers/ids")
        return done.stdout.rstrip().rpartition("\n")[2]

    def isr(self, topic: str) -> list[str]:
        done = barnabas("topics", "--describe", "--topic", topic, "--bootstrap-server", self.brokers)
        return [line.split("Isr: ")[1].split("\t")[0] for line in done.stdout.splitlines() if "Isr: " in line]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ByHand]:
    made = ByHand(tmp_path)
    try:
        for server in made.servers:
            server.start()
        yield made
    finally:
        for server in reversed(made.servers):
            if server.process is not None:
                server.kill()


def test_the_commands_of_the_notes_work_as_written(cluster: ByHand) -> None:
    """Create with replication factor 3, describe, produce by old and new names, dump
    all logs, stop broker 0."""
    eventually(lambda: cluster.ids() == "[0, 1, 2]", timeout_s=60, what="three brokers")
    members_known(cluster.brokers, 3)
    broker = ["--bootstrap-server", f"localhost:{cluster.ports[0]}"]
    made = barnabas("topics", "--create", "--topic", "topic1", *broker, "--partitions", 3, "--replication-factor", 3)
    assert made.stdout == "Created topic topic1.\n", made.stderr
    eventually(lambda: [len(isr) for isr in cluster.isr("topic1")] == [5] * 3, timeout_s=60, what="all in sync")

    lines = "".join(f"customer {number}\n" for number in range(30))
    to_all = ["console-producer", "--topic", "topic1", "--broker-list", cluster.brokers]
    assert barnabas(*to_all, "--request-required-acks", -1, "--sync", text=lines).returncode == 0
    old = [text for name, value in OLD_NAMES.items() for text in ("--producer-property", f"{name}={value}")]
    assert barnabas(*to_all, *old, text=lines).returncode == 0
    assert barnabas(*to_all, "--producer-property", "compression.codec=2", text=lines).returncode == 0
    read = barnabas(
        *["console-consumer", "--topic", "topic1", *broker, "--from-beginning", "--group", "g", "--max-messages", 90]
    )
    assert "Processed a total of 90 messages" in read.stderr

    def logs(number: str) -> list[str]:
        return sorted(glob.glob(f"{cluster.folder}/kafka-logs{number}/topic1-*/00000000000000000000.log"))

    def contents(number: str) -> str:
        dumped = barnabas("dump-log", "--files", *logs(number), "--print-data-log")
        return dumped.stdout.replace(f"kafka-logs{number}/", "")

    first = contents("")
    assert first.count("| offset: ") == 90
    assert set(re.findall(r"compresscodec: (\w+)", first)) == {"none", "gzip", "snappy"}
    assert "isvalid: false" not in first
    assert contents("1") == contents("2") == first

    assert cluster.servers[1].stop() == 0
    assert cluster.ids() == "[1, 2]"
    eventually(lambda: all("0" not in isr for isr in cluster.isr("topic1")), timeout_s=60, what="sets without broker 0")
    report = ["topics", "--describe", "--under-replicated-partitions", "--bootstrap-server", cluster.brokers]
    eventually(lambda: barnabas(*report).stdout.count("Topic: topic1") == 3, timeout_s=60, what="all in the report")
    assert barnabas(*to_all, "--request-required-acks", -1, text=lines).returncode == 0
