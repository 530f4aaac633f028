"""Exactly once with frameworks in Java: each is killed while a transaction is open, and started
again; then the broker that coordinates its transaction is killed. Each record is there once, in
order.
"""

import contextlib
from pathlib import Path

import pytest

from barnabas.testing import ProcessCluster
from support.maven import QUICK, compiled, jars
from support.needs import ROOT, needs
from support.servers import barnabas
from support.transaction_copies import committed, make
from support.transaction_kills import Numbers, Program, copy_through_kills, kill_a_coordinator, running
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs("java", "javac", "mvn"), pytest.mark.timeout(900)]

PROGRAMS = ROOT / "tests" / "other_languages" / "java"
OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.time")
"""What Flink's own start script opens."""
LIMIT_S = 180


class Copier:
    """A program that reads one topic and writes another."""

    def __init__(self, bootstrap: str, name: str, command: list[object], directory: Path) -> None:
        self.source, self.target = (make(bootstrap, f"{name}-{end}", 1, 3) for end in ("in", "out"))
        self.numbers = Numbers(bootstrap, self.source)
        self._command = [*command, bootstrap, name, self.source, self.target, directory / "state"]
        self._log = directory / "log"

    def run(self) -> contextlib.AbstractContextManager[Program]:
        """Run it; what it keeps in its directory is there again."""
        return running(self._command, self._log)

    def is_exact_through_kills(self, cluster: ProcessCluster) -> bool:
        """Whether each number is there once, in order, after kills of it and of a coordinator."""

        def kill(process: Program) -> None:
            kill_a_coordinator(cluster, process, self.numbers)

        values = copy_through_kills(self.run, cluster.bootstrap_servers, self.target, self.numbers, kill)
        return values == [str(number) for number in range(self.numbers.count)]


@pytest.mark.parametrize("level", [0, 2])
def test_a_killed_listener_of_spring_copies_each_record_once(tmp_path: Path, level: int) -> None:
    """A batch listener with a KafkaTransactionManager, in both versions of transactions."""
    folder = jars("spring-kafka-4.1.2", PROGRAMS / "spring")
    command = ["java", *QUICK, "-cp", compiled(PROGRAMS / "spring" / "Copier.java", folder, tmp_path), "Copier"]
    with ProcessCluster(3, data_dir=tmp_path / "cluster") as cluster:
        bootstrap = cluster.bootstrap_servers
        if level:
            feature = ("--feature", f"transaction.version={level}")
            assert barnabas("features", "upgrade", *feature, "--bootstrap-server", bootstrap).returncode == 0
        copier = Copier(bootstrap, "spring", command, tmp_path)
        assert copier.is_exact_through_kills(cluster)
        eventually(
            lambda: committed(bootstrap, "spring", copier.source) == copier.numbers.count,
            timeout_s=LIMIT_S,
            what="the group's offset",
        )


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_a_killed_job_of_flink_copies_each_record_once(tmp_path: Path, naming: str) -> None:
    """The next run commits what its checkpoint has, and finds and aborts what is left over.

    Two ways to name transactions: with POOLING it lists them at the brokers."""
    folder = jars("flink-2.2.1-kafka-5.0.0", PROGRAMS / "flink")
    opened = [option for package in OPENED for option in ("--add-opens", f"{package}=ALL-UNNAMED")]
    classpath = compiled(PROGRAMS / "flink" / "Copier.java", folder, tmp_path)
    command = ["java", *QUICK, *opened, f"-Dnaming={naming}", "-cp", classpath, "Copier"]
    with ProcessCluster(3, data_dir=tmp_path / "cluster") as cluster:
        assert Copier(cluster.bootstrap_servers, "flink", command, tmp_path).is_exact_through_kills(cluster)


def test_a_killed_stream_of_pekko_copies_each_record_once(tmp_path: Path) -> None:
    """Pekko Connectors' transactional source and sink."""
    folder = jars("pekko-connectors-kafka-1.1.0", PROGRAMS / "pekko")
    command = ["java", *QUICK, "-cp", compiled(PROGRAMS / "pekko" / "Copier.java", folder, tmp_path), "Copier"]
    with ProcessCluster(3, data_dir=tmp_path / "cluster") as cluster:
        assert Copier(cluster.bootstrap_servers, "pekko", command, tmp_path).is_exact_through_kills(cluster)
