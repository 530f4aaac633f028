"""Archives of the classes of Apache's programs (class data sharing), with which their JVMs
start with half of the work.

A broker that starts and stops takes 2.2 s of processor time with one and 4 s without, a tool 0.4 s
and 0.6 s. The archives lie beside the jars in ~/.cache/reference, and are made once, by a broker
and tools that do next to nothing. A JVM for which an archive was not made starts without.
"""

import contextlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from support.knowing import members_known
from support.needs import fetching
from support.ports import free_ports
from support.reference import apache_command
from support.reference_program import ARCHIVE, archive_path
from support.servers import BARNABAS

__all__ = ["make_archives"]

_BROKER = "3.9.1"
_RELEASES = (_BROKER, "4.3.0")
_TIMEOUT_S = 240


@cache
def make_archives() -> None:
    """Make those that are not there: one process does, and the others wait for it."""
    with fetching():
        if all(path.exists() for path in (archive_path(_BROKER, is_broker=True), *map(_tools, _RELEASES))):
            return
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.suppress(AssertionError, OSError, subprocess.SubprocessError),
        ):
            _make(Path(folder))


def _tools(version: str) -> Path:
    return archive_path(version, is_broker=False)


def _make(folder: Path) -> None:
    zookeeper, port = free_ports(2)
    (folder / "zoo.cfg").write_text(f"dataDir={folder}/zk\nclientPort={zookeeper}\n")
    broker = folder / "server.properties"
    broker.write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={folder}/logs\n"
        f"zookeeper.connect=127.0.0.1:{zookeeper}\n"
    )
    with (folder / "log").open("ab") as log, contextlib.ExitStack() as running:

        def start(command: list[str], archive: Path | None = None) -> "subprocess.Popen[bytes]":
            environment = {**os.environ, **({ARCHIVE: f"{archive}.part"} if archive else {})}
            process = running.enter_context(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
            running.callback(process.kill)  # what has ended well is gone by then
            return process

        def end(process: "subprocess.Popen[bytes]", archive: Path) -> None:
            process.wait(_TIMEOUT_S)
            Path(f"{archive}.part").replace(archive)

        start([*BARNABAS, "zookeeper-server-start", str(folder / "zoo.cfg")])
        archive = archive_path(_BROKER, is_broker=True)
        server = start(apache_command("tool", "--version", _BROKER, "kafka.Kafka", broker), archive)
        members_known(f"127.0.0.1:{port}", 1)
        for version in _RELEASES:
            main = "org.apache.kafka.tools.TopicCommand"
            listing = apache_command(
                "tool", "--version", version, main, "--bootstrap-server", f"127.0.0.1:{port}", "--list"
            )
            end(start(listing, _tools(version)), _tools(version))
        server.terminate()
        end(server, archive)
