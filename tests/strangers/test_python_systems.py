"""Python systems that use Kafka, each with its own clients: Celery over kombu, kombu's own tests,
OpenTelemetry's instrumentation.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from barnabas.testing import ProcessCluster
from support.environments import python_of, source_of
from support.killed_brokers import coordinator_killed, leader_killed
from support.needs import ROOT
from support.repeated_copies import first_of_each
from support.transaction_copies import make
from support.transaction_kills import Program, running
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(600)]

PROGRAMS = ROOT / "tests" / "other_languages" / "python"
A_TIME = 200
LIMIT_S = 90
ATTEMPTS = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    """Three brokers."""
    with ProcessCluster(3) as running_cluster:
        yield running_cluster


class Tasks:
    """Tasks of Celery's, each with a number that it keeps in a file."""

    def __init__(self, bootstrap: str, queue: str, directory: Path) -> None:
        self._kept = directory / "kept"
        self._log = directory / "log"
        self._command = [python_of("systems"), PROGRAMS / "celery_worker.py", bootstrap, queue, self._kept]
        self.count = 0

    @property
    def done(self) -> list[str]:
        """The numbers of those that ran, in their order, again where one ran again."""
        return self._kept.read_text().splitlines() if self._kept.exists() else []

    def send(self) -> None:
        """The next ones."""
        subprocess.run([*self._command, "send", str(self.count), str(self.count + A_TIME)], timeout=LIMIT_S, check=True)
        self.count += A_TIME

    def working(self) -> AbstractContextManager[Program]:
        """A worker, killed at the end."""
        return running([*self._command, "worker"], self._log)

    def are_left_by_a_killed_worker(self) -> bool:
        """Whether a worker that is killed leaves tasks that were sent before it ran."""
        self.send()
        done = len(set(self.done))
        with self.working() as process:
            self.wait(process, done + 1)
        return len(set(self.done)) < self.count

    def wait(self, process: Program, count: int) -> None:
        """Wait until so many have run."""

        def are_done() -> bool:
            assert process.poll() is None, f"the worker has ended with {process.returncode}"
            return len(set(self.done)) >= count

        eventually(are_done, timeout_s=LIMIT_S, what=f"{count} tasks")


def test_celerys_tasks_run_at_least_once_through_kills_of_worker_and_brokers(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    """A worker that acknowledges late is killed with tasks to do; then leader and coordinator."""
    tasks = Tasks(cluster.bootstrap_servers, "tasks", tmp_path)
    assert any(tasks.are_left_by_a_killed_worker() for _ in range(ATTEMPTS)), "each kill came too late"
    with tasks.working() as process:
        tasks.wait(process, tasks.count)
        with leader_killed(cluster, "tasks"):
            tasks.send()
            tasks.wait(process, tasks.count)
        with coordinator_killed(cluster, "tasks-consumer-group"):
            tasks.send()
            tasks.wait(process, tasks.count)
    assert first_of_each(tasks.done) == [str(number) for number in range(tasks.count)]


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python"])
def test_a_trace_goes_with_each_record_while_the_leader_is_killed(cluster: ProcessCluster, client: str) -> None:
    """A span of its sending is the link or the parent of one span of its receipt."""
    topic = make(cluster.bootstrap_servers, f"traced-by-{client}", 1, 3)
    command = [python_of("systems"), PROGRAMS / "opentelemetry_spans.py", client, cluster.bootstrap_servers, topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def send() -> None:
            process.stdin.write(f"{A_TIME}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{A_TIME}\n"

        send()
        with leader_killed(cluster, topic):
            send()
        output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    spans = json.loads(output)
    sent = {span["context"] for span in spans if span["name"] == f"{topic} send"}
    received = [
        origin
        for span in spans
        if span["name"] in (f"{topic} process", f"{topic} receive")
        for origin in span["links"] or [span["parent"]]
    ]
    assert len(sent) == len(received) == 2 * A_TIME
    assert set(received) == sent


@contextmanager
def kombus_tests(source: Path, names: str) -> Iterator[Program]:
    """Those of kombu's tests for Kafka that have these names, pointed at a broker of their own."""
    tests = source / "t" / "integration" / "test_kafka.py"
    with ProcessCluster(1) as cluster:
        port = cluster.bootstrap_servers.rpartition(":")[2]
        pointed = tests.read_text().replace("port='9092'", f"port='{port}'")
        assert pointed.count(port) == 2
        copy = tests.with_name(f"test_kafka_{port}.py")
        copy.write_text(pointed)
        command = [python_of("systems"), "-m", "pytest", "-q", "-W", "ignore", copy, "-k", names]
        with subprocess.Popen(command, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            yield process


def test_kombus_own_tests_of_its_transport_for_kafka_pass(tmp_path: Path) -> None:
    """Those of its source distribution, without a second try; two halves at once, for most of their
    time is waiting."""
    source = source_of("kombu", "systems", tmp_path)
    with (
        kombus_tests(source, "BasicFunctionality or BaseExchangeTypes") as first,
        kombus_tests(source, "Failover or Message") as second,
    ):
        outputs = [process.communicate(timeout=400)[0].decode() for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), "\n".join(outputs)
    passed = [int(count) for output in outputs for count in re.findall(r"(\d+) passed", output)]
    assert sum(passed) == 38
    assert "1 skipped" in outputs[0]  # fanout, which the transport has not
