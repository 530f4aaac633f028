"""Python processes of Spark as forks of a server, and what remains of them when either end is
killed; this test plays the JVM."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from barnabas.pipelines.spark import fork_client
from barnabas.pipelines.spark.worker_launcher import ForkServer, prepare_python

pytestmark = pytest.mark.skipif(
    not ForkServer.is_possible(), reason="forks without an exec are relied on under Linux only"
)

MODULE = """
import json, os, sys
import numpy
shown = {"pid": os.getpid(), "name": __name__, "arguments": sys.argv[1:], "folder": os.getcwd(), "at": sys.path[0]}
shown |= {"variable": os.environ.get("OF_TEST"), "address": os.environ.get("BARNABAS_FORK_SERVER")}
shown |= {"is_fork": "pyspark.worker" in sys.modules, "number": int(numpy.random.randint(1 << 62)), "hash": hash("a")}
print(json.dumps(shown), flush=True)
said = sys.stdin.readline()
print(said.strip(), "to stderr", file=sys.stderr)
sys.exit(int(said))
"""
DRIVER = """
import os, subprocess, sys
from barnabas.pipelines.spark.worker_launcher import ForkServer
server = ForkServer({}, 2)
print(server.environment["BARNABAS_FORK_SERVER"], flush=True)
sys.stdin.readline()
environment = {**os.environ, **server.environment, "PYTHONHASHSEED": "0"}
worker = subprocess.Popen([sys.argv[1], "-m", "worker_of_test"], env=environment, stdin=subprocess.PIPE)
worker.wait()
"""
_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    server = ForkServer({}, 2)
    await_answer(server.environment["BARNABAS_FORK_SERVER"])
    yield server
    server.close()
    assert not Path(server.environment["BARNABAS_FORK_SERVER"]).parent.exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "worker_of_test.py").write_text(MODULE)
    return tmp_path


class Started:
    """What Spark holds of a Python process: a child and its pipes.

    The process itself may be another."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.child = subprocess.Popen(
            [prepare_python(folder / "my cache"), "-m", "worker_of_test", "a b", "ü"],
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": "0", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.child.stdout is not None
        self.shown: dict[str, Any] = json.loads(self.child.stdout.readline())
        self.pid: int = self.shown["pid"]

    def finish(self, said: str = "0") -> str:
        return self.child.communicate(said, _TIMEOUT_S)[1]


def await_answer(address: str) -> None:
    """Until a server has loaded its modules: on a busy machine a client does not wait that
    long, and starts a process."""
    request = fork_client._encode_request([], {}, "/")  # which is refused
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(address)
        socket.send_fds(connection, [request[:4]], [0, 1, 2])
        connection.sendall(request[4:])
        assert connection.recv(1)


def await_end(pid: int) -> None:
    def has_ended() -> bool:
        try:
            return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return True

    wait(has_ended)


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_of_spark_is_a_fork_with_its_own_streams_arguments_environment_and_folder(
    server: ForkServer, folder: Path
) -> None:
    """And ends with the exit code of its module, which is Spark's child's, too."""
    started = Started(folder, {**server.environment, "OF_TEST": "1=2\n3"})
    expected = {"name": "__main__", "arguments": ["a b", "ü"], "folder": str(folder), "at": str(folder)}
    expected |= {"variable": "1=2\n3", "address": None, "is_fork": True}
    assert {name: started.shown[name] for name in expected} == expected
    assert started.pid != started.child.pid
    assert Path(f"/proc/{started.pid}/comm").read_text() == "ü\n"
    assert started.finish("3") == "3 to stderr\n"
    assert started.child.returncode == 3


def test_forks_have_random_numbers_of_their_own_and_the_hashes_that_spark_asks_for(
    server: ForkServer, folder: Path
) -> None:
    """NumPy's generator would be the same in all; texts must have one hash in all,
    with a server or without."""
    runs = [Started(folder, environment) for environment in (server.environment, server.environment, {})]
    for each in runs:
        each.finish()
    assert [each.shown["is_fork"] for each in runs] == [True, True, False]
    assert len({each.shown["number"] for each in runs}) == 3
    assert len({each.shown["hash"] for each in runs}) == 1


def test_a_request_for_another_interpreter_gets_one_of_its_own(server: ForkServer, folder: Path) -> None:
    """A seed of hashes counts at the start of an interpreter only."""
    started = Started(folder, {**server.environment, "PYTHONHASHSEED": "7"})
    assert not started.shown["is_fork"]
    assert started.pid == started.child.pid
    started.finish()


def test_refused_requests_are_started_plainly_and_signal_nothing(server: ForkServer, folder: Path) -> None:
    """The report that the refusing process has ended is no process to wait for: a signal to number
    0 would end Spark and the driver."""
    command = [sys.executable, "-I", "-S", fork_client.__file__, "/bin/echo", "-m", "started"]
    environment = {**os.environ, **server.environment, "PYTHONHASHSEED": "7"}
    for _ in range(20):
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            start_new_session=True,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, b"-m started\n")


def test_a_killed_fork_ends_what_spark_has_started_in_the_same_way(server: ForkServer, folder: Path) -> None:
    """Spark notices the end of its child, and reads the ends of its pipes."""
    started = Started(folder, server.environment)
    os.kill(started.pid, signal.SIGKILL)
    started.finish("")
    assert started.child.returncode == -signal.SIGKILL
    await_end(started.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_fork_ends_when_spark_ends_what_it_has_started(
    server: ForkServer, folder: Path, number: signal.Signals
) -> None:
    """By SIGTERM, as Spark does, and by kill -9."""
    started = Started(folder, server.environment)
    started.child.send_signal(number)
    started.child.wait(_TIMEOUT_S)
    await_end(started.pid)
    started.child.communicate(timeout=_TIMEOUT_S)


def test_after_a_kill_of_the_server_its_forks_end_and_others_start_without_it(folder: Path) -> None:
    """What Spark has started ends as well, so that Spark starts it again."""
    server = ForkServer({}, 2)
    with contextlib.closing(server):
        await_answer(server.environment["BARNABAS_FORK_SERVER"])
        started = Started(folder, server.environment)
        assert started.shown["is_fork"]
        (pid,) = (
            int(each)
            for each in children(os.getpid())
            if b"fork_server.py" in command(each) and owns(each, started.pid)
        )
        os.kill(pid, signal.SIGKILL)
        assert started.child.wait(_TIMEOUT_S) == 1
        await_end(started.pid)
        started.child.communicate(timeout=_TIMEOUT_S)
        alone = Started(folder, server.environment)
        assert not alone.shown["is_fork"]
        alone.finish()


def test_a_kill_of_the_driver_leaves_no_process(folder: Path) -> None:
    """Neither the server, nor its fork, nor what Spark has started, nor the socket."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, prepare_python(folder / "my cache")],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    await_answer(driver.stdout.readline().strip())
    driver.stdin.write("\n")
    driver.stdin.flush()
    shown = json.loads(driver.stdout.readline())
    assert shown["is_fork"]
    left = [*children(driver.pid), str(shown["pid"])]
    assert len(left) == 3
    driver.kill()
    for each in left:
        await_end(int(each))
    driver.communicate(timeout=_TIMEOUT_S)
    wait(lambda: not list(folder.glob("barnabas-python-*")))


def children(pid: int) -> list[str]:
    """Of all threads of a process."""
    return [each for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]


def owns(server: str, pid: int) -> bool:
    return str(pid) in children(int(server))


def command(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_workers_with_several_cores_are_forks_too(folder: Path) -> None:
    """``spark.task.cpus`` gives them as many threads, which numpy's library must not
    start before the fork."""
    server = ForkServer({"spark.task.cpus": "2"}, 2)
    try:
        started = Started(folder, {**server.environment, "OMP_NUM_THREADS": "2"})
        assert started.shown["is_fork"]
        started.finish()
    finally:
        server.close()
