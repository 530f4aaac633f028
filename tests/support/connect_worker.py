"""A worker of Apache's Kafka Connect in distributed mode, with exactly-once support for sources."""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.ports import free_ports
from support.reference import apache_command
from support.transaction_kills import Program, running
from support.waiting import eventually

__all__ = ["Worker", "worker"]

_LIMIT_S = 180


class Worker:
    """A running worker and its REST interface."""

    def __init__(self, process: Program, url: str) -> None:
        self.process = process
        self._url = url

    def serves(self) -> bool:
        """Whether the worker has joined its group and read its topics."""
        assert self.process.poll() is None, "the worker has ended"
        return self._request("GET", "/connectors") == 200

    def set_up(self, name: str, **config: object) -> None:
        """Make a connector, or change it; a worker in a rebalance refuses that for a while."""
        body = {each: str(value) for each, value in config.items()}

        def is_made() -> bool:
            assert self.process.poll() is None, "the worker has ended"
            return self._request("PUT", f"/connectors/{name}/config", body) in (200, 201)

        eventually(is_made, timeout_s=_LIMIT_S, what=f"connector {name}")

    def _request(self, method: str, path: str, body: Mapping[str, str] | None = None) -> int:
        """The status code; 0 where nothing listens."""
        request = urllib.request.Request(
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0


@contextlib.contextmanager
def worker(directory: Path, version: str, bootstrap: str, plugins: Path | None = None) -> Iterator[Worker]:
    """Start it and wait until it serves; killed at the end.

    Workers with one cluster form a group; ``plugins`` is a folder with one for each plugin."""
    (port,) = free_ports(1)
    properties = directory / "worker.properties"
    properties.write_text(
        f"""bootstrap.servers={bootstrap}
group.id=connect
listeners=http://127.0.0.1:{port}
exactly.once.source.support=enabled
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
offset.storage.partitions=1
status.storage.topic=connect-status
status.storage.partitions=1
offset.flush.interval.ms=500
session.timeout.ms=6000
heartbeat.interval.ms=1000
scheduled.rebalance.max.delay.ms=0
plugin.discovery=service_load
"""
        + (f"plugin.path={plugins}\n" if plugins else "")
    )
    command = apache_command(
        "tool", "--version", version, "org.apache.kafka.connect.cli.ConnectDistributed", properties
    )
    with running(command, directory / "worker.log") as process:
        found = Worker(process, f"http://127.0.0.1:{port}")
        eventually(found.serves, timeout_s=_LIMIT_S, what="a worker that serves")
        yield found
