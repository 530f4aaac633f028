"""Apache's Connect on three brokers of ours: two distributed workers with connectors for files and
for a database, while a worker is killed, and the brokers that lead Connect's topics."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import confluent_kafka
import pytest

from barnabas.client import Admin
from barnabas.testing import ProcessCluster
from support.connect_database import CHANGES, Orders, database_plugins
from support.connect_worker import FILES, Lines, Worker, starting_worker
from support.mixed import is_long
from support.needs import needs, needs_reference
from support.ports import free_ports
from support.postgres_server import running_postgres
from support.servers import barnabas
from support.transaction_copies import make, read_committed
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference, needs("initdb", "pg_ctl")]
pytestmark += [pytest.mark.fault, pytest.mark.timeout(600)]

VERSIONS = ("3.9.1", "4.3.0") if is_long() else ("3.9.1",)
LIMIT_S = 150
TOPICS = ("connect-configs", "connect-offsets", "connect-status")
SETTINGS = {f"{kind}.storage.segment.ms": 1000 for kind in ("config", "offset", "status")}
SETTINGS |= {f"{kind}.storage.min.cleanable.dirty.ratio": 0.01 for kind in ("config", "offset", "status")}
SETTINGS |= {"offset.storage.partitions": 3}
EVERY_SECOND = {"log.cleaner.backoff.ms": "1000"}


class Workers:
    """Workers of one group, and what ends them."""

    def __init__(self, cluster: ProcessCluster, directory: Path, version: str) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap_servers
        self.directory = directory
        self._version = version
        self._plugins = database_plugins()
        self._running = contextlib.ExitStack()
        self.members: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start(self) -> Worker:
        """One more, without a wait."""
        starting = starting_worker(self.directory, self._version, self.bootstrap, self._plugins, SETTINGS)
        self.members.append(self._running.enter_context(starting))
        return self.members[-1]

    def kill(self, worker_id: str) -> Worker:
        """SIGKILL to one of them; another one that is left."""
        (killed,) = (each for each in self.members if each.id == worker_id)
        killed.kill()
        self.members.remove(killed)
        return self.members[0]

    def leader(self, topic: str) -> int:
        """The broker that leads partition 0."""
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.bootstrap})
        return int(admin.list_topics(topic, timeout=LIMIT_S).topics[topic].partitions[0].leader)


@pytest.fixture(scope="module", params=VERSIONS)
def workers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Two that serve, on three brokers."""
    directory = tmp_path_factory.mktemp("connect")
    with ProcessCluster(3, data_dir=directory / "cluster", settings=EVERY_SECOND) as cluster:
        if not request.param.startswith("3."):
            feature = ("--feature", "transaction.version=2", "--bootstrap-server", cluster.bootstrap_servers)
            assert barnabas("features", "upgrade", *feature).returncode == 0
        with Workers(cluster, directory, request.param) as group:
            for worker in [group.start(), group.start()]:
                eventually(worker.serves, timeout_s=LIMIT_S, what="a worker that serves")
            yield group


class CopiedLines(Lines):
    """Lines that a source writes to a topic and a sink to another file."""

    def __init__(self, workers: Workers, name: str) -> None:
        super().__init__(workers.directory / name)
        self.path.touch()
        self.target = workers.directory / f"{name}-copied"
        self.topic = make(workers.bootstrap, name, 1, 3)
        self.source, self.sink = f"{name}-source", f"{name}-sink"
        self._bootstrap = workers.bootstrap

    def expected(self) -> list[str]:
        """All lines."""
        return [str(number) for number in range(self.count)]

    def written(self) -> list[str]:
        """Those in the topic."""
        return read_committed(self._bootstrap, self.topic)

    def copied(self) -> list[str]:
        """Those in the other file."""
        return self.target.read_text().splitlines() if self.target.exists() else []

    def connect(self, worker: Worker) -> None:
        """The source, exactly once, and the sink, at least once."""
        reading = {"connector.class": f"{FILES}SourceConnector", "file": self.path, "topic": self.topic}
        exact = {"exactly.once.support": "required", "transaction.boundary": "poll"}
        worker.set_up(self.source, **reading, **exact)
        worker.set_up(
            self.sink,
            **{"connector.class": f"{FILES}SinkConnector", "file": self.target, "topics": self.topic},
            **{"consumer.override.isolation.level": "read_committed", "consumer.override.session.timeout.ms": 6000},
            **{"consumer.override.heartbeat.interval.ms": 1000},
        )


def all_run(worker: Worker, names: tuple[str, ...], tasks: int) -> dict[tuple[str, int], str]:
    """The worker of each task, of a connector itself as task -1; nothing unless all are RUNNING."""
    found = worker.tasks(*names)
    if len(found) < tasks + len(names) or {state for state, _ in found.values()} != {"RUNNING"}:
        return {}
    return {name: at for name, (_, at) in found.items()}


def test_killed_worker_and_leaders_of_connects_topics_cost_no_row_and_no_line(workers: Workers) -> None:
    """The other worker takes the tasks over; the table's copy is equal, each line is in its topic
    once, and all tasks run on two workers in the end."""
    (port,) = free_ports(1)
    with running_postgres(port) as server, contextlib.closing(Orders(server.url, port)) as orders:
        lines = CopiedLines(workers, "numbers")

        def feed(count: int = 50) -> None:
            orders.add(count)
            lines.add(count)

        def all_is_there() -> bool:
            return orders.rows("copies") == orders.rows() and set(lines.copied()) == set(lines.expected())

        worker, other = workers.members
        feed()
        orders.connect(worker)
        lines.connect(other)
        names = ("rows", "copies", lines.source, lines.sink)
        places = eventually(lambda: all_run(worker, names, 5), timeout_s=LIMIT_S, what="all tasks run")
        assert set(places.values()) == {worker.id, other.id}
        eventually(all_is_there, timeout_s=LIMIT_S, what="the first rows and lines")

        feed()
        left = workers.kill(places["rows", 0])
        feed()
        eventually(
            lambda: set(all_run(left, names, 5).values()) == {left.id}, timeout_s=LIMIT_S, what="the other one has all"
        )
        workers.start()
        for topic in ("connect-offsets", "connect-status"):
            leader = workers.leader(topic)
            workers.cluster.kill_broker(leader)
            feed()
            eventually(all_is_there, timeout_s=LIMIT_S, what=f"rows and lines without the leader of {topic}")
            workers.cluster.start_broker(leader)
        ids = {each.id for each in workers.members}
        eventually(
            lambda: set(all_run(left, names, 5).values()) == ids, timeout_s=LIMIT_S, what="two workers share the tasks"
        )
        feed()
        eventually(all_is_there, timeout_s=LIMIT_S, what="all rows and lines")
        assert lines.written() == lines.expected()
        with Admin({"bootstrap.servers": workers.bootstrap}) as admin:
            (made,) = admin.describe_topics([CHANGES])
        assert [len(each.replicas) for each in made.partitions] == [3, 3]
        for name in names:
            left.remove(name)


def test_connector_stops_and_goes_on_where_its_offsets_say(workers: Workers) -> None:
    """Pause, resume, restart and stop; the offsets are shown, changed and reset, of a source in
    Connect's topic and of a sink in its group."""
    lines = CopiedLines(workers, "steps")
    worker = workers.members[-1]
    source, sink = f"/connectors/{lines.source}", f"/connectors/{lines.sink}"

    def states(name: str) -> set[str]:
        return {state for state, _ in worker.tasks(name).values()}

    def reaches(name: str, state: str) -> None:
        eventually(lambda: states(name) == {state}, timeout_s=LIMIT_S, what=f"{name} is {state}")

    def copies(count: int) -> None:
        eventually(lambda: len(lines.copied()) == count, timeout_s=LIMIT_S, what=f"{count} copies")

    lines.add(10)
    lines.connect(worker)
    copies(10)
    worker.call("PUT", f"{sink}/pause")
    reaches(lines.sink, "PAUSED")
    lines.add(10)
    eventually(lambda: len(lines.written()) == 20, timeout_s=LIMIT_S, what="the source goes on")
    assert len(lines.copied()) == 10
    worker.call("PUT", f"{sink}/resume")
    copies(20)
    worker.call("POST", f"{source}/restart?includeTasks=true&onlyFailed=false")
    reaches(lines.source, "RUNNING")

    place = {"partition": {"filename": str(lines.path)}, "offset": {"position": lines.path.stat().st_size}}
    assert worker.get(f"{source}/offsets") == {"offsets": [place]}
    worker.call("PUT", f"{source}/stop")
    reaches(lines.source, "STOPPED")
    worker.call("PATCH", f"{source}/offsets", {"offsets": [{**place, "offset": {"position": len("0\n" * 5)}}]})
    worker.call("PUT", f"{source}/resume")
    again = lines.expected() + lines.expected()[5:]
    eventually(lambda: lines.written() == again, timeout_s=LIMIT_S, what="the source repeats what it is asked for")
    copies(len(again))

    worker.call("PUT", f"{sink}/stop")
    reaches(lines.sink, "STOPPED")
    worker.call("DELETE", f"{sink}/offsets")
    assert worker.get(f"{sink}/offsets") == {"offsets": []}
    worker.call("PUT", f"{sink}/resume")
    copies(2 * len(again))
    for name in (lines.source, lines.sink):
        worker.remove(name)
    eventually(lambda: worker.get("/connectors") == [], timeout_s=LIMIT_S, what="no connector")


def test_connects_topics_are_made_as_it_asks_and_compacted(workers: Workers) -> None:
    """One partition of configurations, three replicas of all; of what is superseded the status
    topic keeps nothing but the active segment's."""
    with Admin({"bootstrap.servers": workers.bootstrap}) as admin:
        topics = {each.name: each for each in admin.describe_topics(TOPICS)}
        assert {name: len(each.partitions) for name, each in topics.items()} == dict(
            zip(TOPICS, (1, 3, 1), strict=True)
        )
        for name, topic in topics.items():
            assert all(len(each.replicas) == 3 for each in topic.partitions)
            assert admin.topic_configs(name)["cleanup.policy"].value == "compact"
    worker = workers.members[0]
    lines = CopiedLines(workers, "states")
    lines.connect(worker)

    def is_compacted() -> bool:
        worker.call("POST", f"/connectors/{lines.sink}/restart?includeTasks=true&onlyFailed=false")
        offsets = offsets_of(workers.bootstrap, "connect-status")
        return len(offsets) < offsets[-1] + 1 - offsets[0]

    eventually(is_compacted, timeout_s=LIMIT_S, what="the status topic is compacted")
    for name in (lines.source, lines.sink):
        worker.remove(name)


def offsets_of(bootstrap: str, topic: str) -> list[int]:
    """The offsets of all records of partition 0."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reads", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    try:
        while (message := reader.poll(LIMIT_S)) is not None and message.error() is None:
            found.append(message.offset())
    finally:
        reader.close()
    return found
