"""Flink's high availability on an ensemble of ours: a job goes on at another JobManager from its
last checkpoint when the one that leads dies together with the ensemble's leader; each number
is written once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from support.ensemble import serving_ensemble
from support.maven import QUICK, compiled, jars
from support.needs import ROOT, needs
from support.ports import free_ports
from support.restartable import Restartable, restartable
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs("java", "javac", "mvn"), pytest.mark.timeout(600)]

PROGRAM = ROOT / "tests" / "other_languages" / "java" / "flink_ha"
OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.time", "java.base/java.net")
"""What Flink's own start script opens."""
LIMIT_S = 90
COUNT, RATE = 3000, 100
JOB_MANAGER = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
CONFIG = """high-availability.type: zookeeper
high-availability.zookeeper.quorum: {addresses}
high-availability.zookeeper.client.session-timeout: 6 s
high-availability.storageDir: {state}/ha
high-availability.jobmanager.port: {port}
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {port}
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.port: 0
rest.bind-port: 0
taskmanager.host: 127.0.0.1
taskmanager.cpu.cores: 1.0
taskmanager.memory.framework.heap.size: 64 mb
taskmanager.memory.framework.off-heap.size: 64 mb
taskmanager.memory.task.heap.size: 64 mb
taskmanager.memory.task.off-heap.size: 0 mb
taskmanager.memory.network.min: 16 mb
taskmanager.memory.network.max: 16 mb
taskmanager.memory.managed.size: 16 mb
taskmanager.memory.jvm-metaspace.size: 128 mb
taskmanager.memory.jvm-overhead.min: 64 mb
taskmanager.memory.jvm-overhead.max: 64 mb
execution.checkpointing.interval: 500 ms
execution.checkpointing.dir: {state}/checkpoints
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 100
restart-strategy.fixed-delay.delay: 500 ms
heartbeat.interval: 1 s
heartbeat.timeout: 10 s
"""


class Cluster:
    """Two JobManagers, of which one leads, and a TaskManager."""

    def __init__(self, job_managers: dict[int, Restartable], client: KazooClient) -> None:
        self.job_managers = job_managers
        self._client = client

    def leader(self) -> int | None:
        """The port of the JobManager whose address is in the ensemble."""
        try:
            addresses = [self._client.get(path)[0] for path in self._connections("/flink")]
        except NoNodeError:  # it went meanwhile
            return None
        ports = {port for port in self.job_managers if any(b":%d/" % port in address for address in addresses)}
        return ports.pop() if len(ports) == 1 else None

    def _connections(self, place: str) -> Iterator[str]:
        for name in self._client.get_children(place):
            if name == "connection_info":
                yield f"{place}/{name}"
            else:
                yield from self._connections(f"{place}/{name}")


@contextlib.contextmanager
def running(directory: Path, addresses: str, client: KazooClient) -> Iterator[Cluster]:
    """The job is in the JobManagers' class path, as in an image of Flink's."""
    folder = jars("flink-2.2.1-ha", PROGRAM)
    opened = [option for package in OPENED for option in ("--add-opens", f"{package}=ALL-UNNAMED")]
    java: list[object] = [
        "java",
        *QUICK,
        "-Xmx256M",
        *opened,
        "-cp",
        compiled(PROGRAM / "Numbers.java", folder, directory),
    ]
    job = ["--job-classname", "Numbers", directory / "numbers", COUNT, RATE]
    with contextlib.ExitStack() as stack:

        def start(main: str, port: int, *arguments: object) -> Restartable:
            place = directory / f"{main.rpartition('.')[2]}-{port}"
            place.mkdir()
            config = CONFIG.format(addresses=addresses, state=(directory / "state").as_uri(), port=port)
            (place / "config.yaml").write_text(config)
            return stack.enter_context(restartable([*java, main, "--configDir", place, *arguments], place))

        job_managers = {port: start(JOB_MANAGER, port, *job) for port in free_ports(2)}
        start(TASK_MANAGER, 0)
        yield Cluster(job_managers, client)


def written(directory: Path) -> list[int]:
    """The numbers in files that a checkpoint has closed."""
    files = [file for file in (directory / "numbers").glob("*/part-*") if file.is_file()]
    return sorted(int(line) for file in files for line in file.read_text().splitlines())


def until_more(directory: Path) -> None:
    """Wait until more numbers are written."""
    goal = len(written(directory)) + RATE
    eventually(lambda: len(written(directory)) >= goal, timeout_s=LIMIT_S, what="more numbers are written")


def test_a_job_goes_on_at_another_job_manager_and_writes_each_number_once(tmp_path: Path) -> None:
    """First the ensemble's leader dies alone; then the JobManager that leads, and the ensemble's
    leader at the same time."""
    with (
        serving_ensemble(tmp_path) as members,
        members.client() as client,
        running(tmp_path, members.addresses, client) as cluster,
    ):
        until_more(tmp_path)
        first = cluster.leader()
        assert first is not None
        dead = members.kill_leader()
        until_more(tmp_path)
        dead.start()
        eventually(lambda: cluster.leader() == first, timeout_s=LIMIT_S, what="the same JobManager leads")

        cluster.job_managers[first].kill()
        members.kill_leader()
        eventually(lambda: cluster.leader() not in (None, first), timeout_s=LIMIT_S, what="another JobManager leads")
        until_more(tmp_path)
        eventually(lambda: len(written(tmp_path)) >= COUNT, timeout_s=LIMIT_S, what="all numbers are written")
        assert written(tmp_path) == list(range(COUNT))
