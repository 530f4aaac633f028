"""A coordination server and three brokers, each a process of its own, for trials that
kill, pause or cut them off."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from support.knowing import topic_known
from support.load import PARTITIONS
from support.ports import free_ports
from support.servers import Server
from support.waiting import eventually

BROKERS = 3
SESSION_MS = 2000
"""Of the brokers' sessions in trials that wait for one to end."""


class Trio:
    """Four server processes on one folder."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        tick_ms: int = 500,
        each: Mapping[int, Mapping[str, object]] | None = None,
        ports: list[int] | None = None,
    ) -> None:
        """``settings`` are for all brokers, ``each`` has those of single ones.

        ``ports``: coordination's, brokers'."""
        self.directory = directory
        self.zk_port, *ports = ports or free_ports(1 + BROKERS)
        (directory / "zoo.cfg").write_text(
            f"tickTime={tick_ms}\ndataDir={directory}/zk\nclientPort={self.zk_port}\nmaxClientCnxns=0\n"
            "clientPortAddress=127.0.0.1\n"
        )
        self.zookeeper = Server(
            ["zookeeper-server-start", str(directory / "zoo.cfg")], directory / "zk.log", self.zk_port
        )
        self.brokers = []
        for number, port in enumerate(ports):
            properties: dict[str, object] = {
                "broker.id": number,
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.dirs": f"{directory}/logs{number}",
                "zookeeper.connect": f"127.0.0.1:{self.zk_port}",
                "offsets.topic.replication.factor": 3,
                "transaction.state.log.replication.factor": 3,
                "transaction.state.log.min.isr": 2,
                "group.initial.rebalance.delay.ms": 0,
                "min.insync.replicas": 2,
                "replica.lag.time.max.ms": 3000,
                "log.segment.bytes": 2_000_000,
                **(settings or {}),
                **(each or {}).get(number, {}),
            }
            path = directory / f"server{number}.properties"
            path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            self.brokers.append(Server(["server-start", str(path)], directory / f"broker{number}.log", port))
        self.at_end: list[Callable[[], None]] = []
        """What a stop calls first."""
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    @property
    def servers(self) -> dict[str, Server]:
        """By name: "zookeeper", "0", "1", "2"."""
        return {"zookeeper": self.zookeeper, **{str(n): broker for n, broker in enumerate(self.brokers)}}

    def start(self) -> None:
        for server in self.servers.values():
            server.start()

    def stop(self) -> None:
        """End all four, the brokers first, as is right.

        Those that are paused too, and not those stopped before."""
        for ending in self.at_end:
            ending()
        for servers in (self.brokers, [self.zookeeper]):
            running = [server for server in servers if server.process is not None and server.process.poll() is None]
            for server in running:
                server.resume()
                server.process.terminate()
            for server in running:
                server.process.wait(60)

    # What clients see

    def create(self, topic: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None) -> None:
        """A topic with three replicas of each partition, once all brokers are there.

        Returns when all are in sync."""

        def created() -> bool:
            try:
                if len(self.admin.list_topics(timeout=10).brokers) < BROKERS:
                    return False
                (made,) = self.admin.create_topics(
                    [NewTopic(topic, partitions, BROKERS, config=dict(config or {}))], request_timeout=10
                ).values()
                made.result(15)
            except Exception as error:  # a later try shows whether it lasts
                return "TOPIC_ALREADY_EXISTS" in str(error)
            return True

        eventually(created, timeout_s=60, what="the topic is created")
        topic_known(self.bootstrap, topic, partitions)
        self.wait_until_in_sync(topic)

    def partitions(self, topic: str) -> list[Any]:
        """librdkafka's metadata of each partition; none while it is not known."""
        try:
            found = self.admin.list_topics(topic, timeout=5).topics[topic].partitions
        except Exception:  # no broker answers at the moment
            return []
        return [found[index] for index in sorted(found)]

    def leader(self, topic: str, partition: int = 0) -> int:
        """Waits until there is one."""

        def found() -> int | None:
            known = self.partitions(topic)
            return known[partition].leader + 1 if known else None

        return eventually(found, timeout_s=60, what="a leader") - 1

    def controller(self) -> int:
        """Waits until there is one."""

        def found() -> int:
            try:
                return self.admin.list_topics(timeout=5).controller_id + 1
            except Exception:  # no broker answers at the moment
                return 0

        return eventually(found, timeout_s=60, what="a controller") - 1

    def in_sync(self, topic: str) -> bool:
        known = self.partitions(topic)
        return bool(known) and all(len(partition.isrs) == BROKERS for partition in known)

    def wait_until_in_sync(self, topic: str) -> None:
        eventually(lambda: self.in_sync(topic), timeout_s=60, what="all replicas are in sync")

    # What is on disk

    def log_bytes(self, number: int, topic: str, partition: int) -> bytes:
        """All of a replica's segments, joined."""
        folder = self.directory / f"logs{number}" / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))

    def wait_until_equal(self, topic: str, partitions: int = PARTITIONS) -> None:
        """All replicas of each partition have the same bytes."""
        for partition in range(partitions):
            eventually(
                lambda partition=partition: (
                    len({self.log_bytes(number, topic, partition) for number in range(BROKERS)}) == 1
                ),
                timeout_s=60,
                what="all replicas have the same bytes",
            )


@contextlib.contextmanager
def trio(directory: Path, settings: Mapping[str, object] | None = None, **options: Any) -> Iterator[Trio]:
    """A started `Trio`, stopped at the end."""
    cluster = Trio(directory, settings, **options)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


class Epochs:
    """Watches the partitions' znodes: a leader epoch never falls and never has two leaders."""

    def __init__(self, cluster: Trio, topic: str, partitions: int = PARTITIONS) -> None:
        self.leaders: dict[tuple[int, int], set[int]] = {}
        """The leaders seen, by partition and leader epoch; without -1 (none)."""
        self.faults: list[str] = []
        self._topic = topic
        self._last: dict[int, tuple[int, int]] = {}
        self._states: dict[int, dict[str, Any]] = {}
        self._client = KazooClient(f"127.0.0.1:{cluster.zk_port}", timeout=30)
        cluster.at_end.append(self.close)
        self._client.start(60)
        for index in range(partitions):
            self._client.DataWatch(f"/brokers/topics/{topic}/partitions/{index}/state", self._watcher(index))

    def _watcher(self, index: int) -> Any:
        def changed(data: bytes | None, _: Any) -> None:
            if data is None:
                return
            self._states[index] = state = json.loads(data)
            now = (state["leader_epoch"], state["controller_epoch"])
            before = self._last.get(index, now)
            if now[0] < before[0] or now[1] < before[1]:
                self.faults.append(f"partition {index}: (leader epoch, controller epoch) fell from {before} to {now}")
            self._last[index] = now
            if state["leader"] >= 0:
                leaders = self.leaders.setdefault((index, now[0]), set())
                leaders.add(state["leader"])
                if len(leaders) > 1:
                    self.faults.append(f"partition {index}: epoch {now[0]} has the leaders {leaders}")

        return changed

    def state(self, partition: int) -> dict[str, Any]:
        """The znode's "leader", "isr" and epochs as they are now.

        The last known while coordination does not answer."""
        path = f"/brokers/topics/{self._topic}/partitions/{partition}/state"
        # Kazoo's own watches may lag behind a server that was away.
        with contextlib.suppress(KazooException):
            self._states[partition] = json.loads(self._client.get(path)[0])
        return self._states[partition]

    def controller(self) -> int:
        """The controller's id; -1 for none, or while the coordination server does not answer."""
        try:
            return json.loads(self._client.get("/controller")[0])["brokerid"]
        except KazooException:
            return -1

    @property
    def elections(self) -> int:
        """How many leader epochs were seen beyond the first of each partition."""
        return len(self.leaders) - len({index for index, _ in self.leaders})

    def close(self) -> None:
        """Watch no more; the cluster's stop does it too."""
        self._client.stop()
        self._client.close()
