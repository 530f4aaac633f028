"""Workers of Apache's Kafka Connect in distributed mode, with exactly-once support for sources and
the settings of the page for users."""

import contextlib
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.pages import DOCS, file_of
from support.ports import free_ports
from support.reference import apache_command
from support.transaction_kills import Program, running
from support.waiting import eventually

__all__ = ["FILES", "Lines", "Worker", "starting_worker", "worker"]

FILES = "org.apache.kafka.connect.file.FileStream"
"""With "SourceConnector" or "SinkConnector" behind it: the connectors for files."""

_PAGE = DOCS / "how-to" / "connect-and-streams.md"
_TEXT = "org.apache.kafka.connect.storage.StringConverter"
_LIMIT_S = 180
_NO_ANSWER = 0


class Lines:
    """A file to which lines are added: 0, 1, 2 ..."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0

    def add(self, count: int) -> None:
        """The next ones."""
        with self.path.open("a") as file:
            file.writelines(f"{number}\n" for number in range(self.count, self.count + count))
        self.count += count


class Worker:
    """A running worker and its REST interface."""

    def __init__(self, process: Program, port: int) -> None:
        self.process = process
        self.id = f"127.0.0.1:{port}"
        """Its ``worker_id`` in the status of tasks."""

    def kill(self) -> None:
        """SIGKILL."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def serves(self) -> bool:
        """Whether the worker has joined its group and read its topics."""
        return self._is(200, "GET", "/connectors")

    def set_up(self, name: str, **config: object) -> None:
        """Make a connector, or change it."""
        body = {each: str(value) for each, value in config.items()}
        self._until(f"connector {name}", "PUT", f"/connectors/{name}/config", body)

    def remove(self, name: str) -> None:
        """Delete a connector."""
        self._until(f"no connector {name}", "DELETE", f"/connectors/{name}")

    def call(self, method: str, path: str, body: object = None) -> None:
        """A request that succeeds in the end: a worker in a rebalance refuses it for a while."""
        self._until(f"{method} {path}", method, path, body)

    def get(self, path: str) -> Any:
        """The answer to a GET; None without one."""
        status, answer = self._request("GET", path)
        return answer if status == 200 else None

    def tasks(self, *names: str) -> dict[tuple[str, int], tuple[str, str]]:
        """State and worker of each task of these connectors; of a connector itself as task -1."""
        found = {}
        for name in names:
            status = self.get(f"/connectors/{name}/status") or {"connector": {}, "tasks": []}
            for number, each in [(-1, status["connector"]), *((task["id"], task) for task in status["tasks"])]:
                found[name, number] = (each.get("state", ""), each.get("worker_id", ""))
        return found

    def _until(self, what: str, method: str, path: str, body: object = None) -> None:
        eventually(lambda: self._is(range(200, 300), method, path, body), timeout_s=_LIMIT_S, what=what)

    def _is(self, wanted: "int | range", method: str, path: str, body: object = None) -> bool:
        assert self.process.poll() is None, "the worker has ended"
        status, _ = self._request(method, path, body)
        return status in wanted if isinstance(wanted, range) else status == wanted

    def _request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status code and what came with it; `_NO_ANSWER` where nothing listens."""
        request = urllib.request.Request(
            f"http://{self.id}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return int(answer.status), json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None
        except OSError:
            return _NO_ANSWER, None


@contextlib.contextmanager
def starting_worker(
    directory: Path,
    version: str,
    bootstrap: str,
    plugins: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[Worker]:
    """Start it, without a wait; killed at the end.

    Workers with one cluster form a group; ``plugins`` is a folder with one for each plugin."""
    (port,) = free_ports(1)
    properties = directory / f"worker-{port}.properties"
    lines = {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": _TEXT,
        "value.converter": _TEXT,
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
        "offset.flush.interval.ms": 500,
        "plugin.discovery": "service_load",
        **({"plugin.path": plugins} if plugins else {}),
        **(settings or {}),
    }
    # The last line of a name counts.
    properties.write_text(
        file_of(_PAGE, "worker.properties") + "".join(f"{name}={value}\n" for name, value in lines.items())
    )
    command = apache_command(
        "tool", "--version", version, "org.apache.kafka.connect.cli.ConnectDistributed", properties
    )
    with running(command, directory / f"worker-{port}.log") as process:
        yield Worker(process, port)


@contextlib.contextmanager
def worker(directory: Path, version: str, bootstrap: str, plugins: Path | None = None) -> Iterator[Worker]:
    """The same, once it serves."""
    with starting_worker(directory, version, bootstrap, plugins) as found:
        eventually(found.serves, timeout_s=_LIMIT_S, what="a worker that serves")
        yield found
