"""A cluster whose brokers are Apache's or ours, each replaceable by the other kind on the
same id, port and log dir."""

import contextlib
import functools
import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from support.knowing import members_known
from support.ports import free_ports
from support.reference import apache_command, apache_tool
from support.servers import BARNABAS
from support.waiting import eventually

APACHES, OURS = "apache", "ours"
HOST = "127.0.0.1"
LIMIT_S = 120

# What an administrator finds in the file that comes with Apache's distribution, the
# addresses aside.
_APACHES_FILE = """\
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
"""


@dataclass
class Member:
    """A broker: what stays when its kind changes, and the process that is it now."""

    broker_id: int
    port: int
    log_dir: Path
    properties: Path
    kind: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)


class MixedCluster:
    """Brokers 0, 1, 2 ... on one coordination service.

    `start`, `stop`, `kill` and `replace` work on one at a time."""

    def __init__(
        self, directory: Path, coordination: "Coordination", ports: Sequence[int], settings: dict[str, str]
    ) -> None:
        self.directory = directory
        self.coordination = coordination
        self.zookeeper = coordination.address
        self.bootstrap = ",".join(f"{HOST}:{port}" for port in ports)
        self.members = [self._member(number, port, settings) for number, port in enumerate(ports)]
        self.znodes = KazooClient(self.zookeeper)
        self.znodes.start()

    def _member(self, broker_id: int, port: int, settings: dict[str, str]) -> Member:
        log_dir = self.directory / f"kafka-logs-{broker_id}"
        properties = self.directory / f"server{broker_id}.properties"
        own = {"broker.id": broker_id, "listeners": f"PLAINTEXT://{HOST}:{port}", "log.dirs": log_dir}
        own |= {"zookeeper.connect": self.zookeeper, **settings}
        properties.write_text(_APACHES_FILE + "".join(f"{name}={value}\n" for name, value in own.items()))
        return Member(broker_id, port, log_dir, properties)

    # Processes

    def launch(self, broker_id: int, kind: str) -> None:
        """Start a broker's process and return at once."""
        member = self.members[broker_id]
        assert member.process is None or member.process.poll() is not None, f"broker {broker_id} runs"
        command = apache_command("tool", "kafka.Kafka") if kind == APACHES else [*BARNABAS, "server-start"]
        with (self.directory / f"{kind}-{broker_id}.log").open("ab") as log:
            member.process = subprocess.Popen(
                [*command, str(member.properties)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        member.kind = kind

    def start(self, broker_id: int, kind: str) -> None:
        """Start a broker and wait until it is registered and takes connections."""
        self.launch(broker_id, kind)
        self.await_registered(broker_id)

    def await_registered(self, broker_id: int) -> None:
        eventually(lambda: self._is_up(broker_id), timeout_s=LIMIT_S, what=f"broker {broker_id} is up")

    def await_expired(self, broker_id: int) -> None:
        """Wait until the session of a killed broker is over: Apache's broker ends where its
        registration is still there."""
        path = f"/brokers/ids/{broker_id}"
        eventually(lambda: self.znodes.exists(path) is None, timeout_s=LIMIT_S, what=f"{path} is gone")

    def _is_up(self, broker_id: int) -> bool:
        member = self.members[broker_id]
        assert member.process.poll() is None, f"broker {broker_id} ({member.kind}) ended, see {self.directory}"
        with socket.socket() as probe:
            listens = probe.connect_ex((HOST, member.port)) == 0
        return listens and self.znodes.exists(f"/brokers/ids/{broker_id}") is not None

    def stop(self, broker_id: int) -> None:
        """Stop a broker as its administrator would, and wait for its end."""
        self.members[broker_id].process.terminate()
        self.await_end(broker_id)

    def await_end(self, broker_id: int) -> None:
        """Wait until a broker that was asked to stop has ended in order."""
        process = self.members[broker_id].process
        assert process.wait(LIMIT_S) in (0, 128 + signal.SIGTERM), f"broker {broker_id} ended with {process.returncode}"

    def kill(self, broker_id: int) -> None:
        process = self.members[broker_id].process
        process.kill()
        process.wait()

    def replace(self, broker_id: int, kind: str) -> None:
        """Stop a broker, start one of the other kind in its place, and wait until
        all replicas are in sync."""
        self.stop(broker_id)
        self.start(broker_id, kind)
        self.await_whole()

    def close(self) -> None:
        self.znodes.stop()
        self.znodes.close()
        running = [member.process for member in self.members if member.process and member.process.poll() is None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @functools.cached_property
    def admin(self) -> AdminClient:
        """librdkafka's, for as long as the cluster lives."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    # What the znodes say

    def read(self, path: str) -> Any:
        """A znode's JSON, None where there is no such znode."""
        try:
            return json.loads(self.znodes.get(path)[0])
        except NoNodeError:
            return None

    def states(self, topic: str) -> dict[int, dict[str, Any]]:
        """Each partition's leader, leader_epoch and isr, with its replicas."""
        replicas = (self.read(f"/brokers/topics/{topic}") or {"partitions": {}})["partitions"]
        found = {}
        for number, assigned in replicas.items():
            state = self.read(f"/brokers/topics/{topic}/partitions/{number}/state")
            found[int(number)] = {**(state or {"leader": -1, "isr": []}), "replicas": assigned}
        return found

    def topics(self) -> list[str]:
        return sorted(self.znodes.get_children("/brokers/topics"))

    def is_whole(self) -> bool:
        """Every partition has a leader, and every replica is in sync."""
        return all(
            state["leader"] >= 0 and set(state["isr"]) == set(state["replicas"])
            for topic in self.topics()
            for state in self.states(topic).values()
        )

    def await_whole(self) -> None:
        eventually(self.is_whole, timeout_s=LIMIT_S, what="all replicas are in sync")

    def await_leader(self, topic: str, partition: int, *leaders: int) -> None:
        eventually(
            lambda: self.states(topic)[partition]["leader"] in leaders,
            timeout_s=LIMIT_S,
            what=f"one of {leaders} leads {topic}-{partition}",
        )

    @property
    def controller(self) -> int:
        found = self.read("/controller")
        return -1 if found is None else int(found["brokerid"])

    def give_office_to(self, *broker_ids: int) -> int:
        """End the controller's term until one of these brokers wins it; returns that one."""

        def won() -> int | None:
            holder = self.controller
            if holder in broker_ids:
                return holder + 1
            if holder >= 0:
                with contextlib.suppress(NoNodeError):
                    self.znodes.delete("/controller")
            return None

        return eventually(won, timeout_s=LIMIT_S, what=f"one of {broker_ids} is the controller") - 1

    # What lies in the log dirs

    def replica_dirs(self, topic: str, partition: int) -> list[Path]:
        found = [member.log_dir / f"{topic}-{partition}" for member in self.members]
        return [path for path in found if path.is_dir()]

    def log_bytes(self, topic: str, partition: int) -> list[bytes]:
        """Each replica's segments, joined."""
        return [segment_bytes(path) for path in self.replica_dirs(topic, partition)]

    def epochs(self, topic: str, partition: int) -> list[list[tuple[int, int]]]:
        """Each replica's (epoch, start offset) from leader-epoch-checkpoint, of
        epochs that have records.

        A leader notes its own epoch before the first record of it, which followers
        hear of with that record.
        """
        found = []
        for path in self.replica_dirs(topic, partition):
            end = log_end_offset(segment_bytes(path))
            found.append([(epoch, start) for epoch, start in leader_epochs(path) if start < end])
        return found

    def await_equal_logs(self, topic: str, partitions: int) -> None:
        """All replicas have the same bytes in the same epochs. No client may write at that time."""
        for partition in range(partitions):
            eventually(
                lambda partition=partition: len(set(self.log_bytes(topic, partition))) == 1,
                timeout_s=LIMIT_S,
                what=f"the replicas of {topic}-{partition} are equal",
            )

    def dump(self, broker_id: int, topic: str, partitions: int) -> str:
        """What Apache's DumpLogSegments says of a broker's replicas, without the files' places."""
        folders = [self.members[broker_id].log_dir / f"{topic}-{number}" for number in range(partitions)]
        files = ",".join(str(path) for folder in folders for path in sorted(folder.glob("*.log")))
        done = apache_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", files)
        assert done.returncode == 0, done.stderr
        return done.stdout.replace(str(self.members[broker_id].log_dir), "")


def segment_bytes(folder: Path) -> bytes:
    """The segments of a replica, joined: where one ends and the next begins is each
    broker's own affair."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def log_end_offset(log: bytes) -> int:
    """The offset after the last of these batches, 0 without any: base offset, length
    ... last offset delta."""
    position = end = 0
    while position + 27 <= len(log):
        base_offset, length = struct.unpack_from(">qi", log, position)
        end = base_offset + struct.unpack_from(">i", log, position + 23)[0] + 1
        position += 12 + length
    return end


def leader_epochs(folder: Path) -> list[tuple[int, int]]:
    """(epoch, start offset) as leader-epoch-checkpoint has them."""
    lines = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return [(int(epoch), int(offset)) for epoch, offset in map(str.split, lines)]


class Coordination:
    """One coordination server, Apache's or ours, on the same file and data dir."""

    def __init__(self, directory: Path) -> None:
        (self._port,) = free_ports(1)
        self.address = f"{HOST}:{self._port}"
        self._directory = directory
        self.config = directory / "zookeeper.properties"
        self.config.write_text(
            f"tickTime=2000\ndataDir={directory / 'zk'}\nclientPort={self._port}\nmaxClientCnxns=0\n"
            "admin.enableServer=false\n4lw.commands.whitelist=*\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, kind: str) -> None:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = apache_command("tool", main) if kind == APACHES else [*BARNABAS, "zookeeper-server-start"]
        with (self._directory / f"zookeeper-{kind}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self.config)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        eventually(lambda: _answers(self._port), timeout_s=LIMIT_S, what="the coordination server answers")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def await_end(self) -> None:
        """Wait until the server, which was asked to stop, has ended."""
        self._process.wait(LIMIT_S)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        try:
            probe.connect((HOST, port))
            # Apache's server answers "ruok" before it takes sessions.
            probe.sendall(b"srvr")
            return b"Mode: " in probe.makefile("rb").read()
        except OSError:
            return False


@contextlib.contextmanager
def mixed_cluster(
    directory: Path, kinds: Sequence[str], *, on: str = OURS, settings: dict[str, str] | None = None
) -> Iterator[MixedCluster]:
    """Brokers of these kinds, registered, on a coordination server of kind ``on``."""
    directory.mkdir(parents=True, exist_ok=True)
    coordination = Coordination(directory)
    coordination.start(on)
    try:
        ports = free_ports(len(kinds), consecutive=True)
        with contextlib.closing(MixedCluster(directory, coordination, ports, settings or {})) as cluster:
            for number, kind in enumerate(kinds):
                cluster.launch(number, kind)
            for number in range(len(kinds)):
                cluster.await_registered(number)
            members_known(cluster.bootstrap, len(kinds))
            yield cluster
    finally:
        coordination.stop()


def is_long() -> bool:
    """Whether the variants that CI has no time for are wanted."""
    return bool(os.environ.get("BARNABAS_LONG"))
