"""The reference's program, ``reference_program.py APACHE ARGUMENTS``, as the tests run it.

Its servers have 240 s to listen: on two busy cores, three JVMs need more than the program's
60 s. Java starts as it does for programs that end before its optimizing compiler has paid for
itself, and with an archive of classes where there is one (`support.class_archives`). And the
servers stop in their order: the program stops ZooKeeper together with the brokers, which then
wait for it, 15 s each.
"""

import hashlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ARCHIVE = "BARNABAS_ARCHIVE_CLASSES_AT"
"""The environment variable with the file in which a program leaves its classes when it ends."""
_LISTEN_S = 240
_STOP_S = 30


def archive_path(version: str, *, is_broker: bool) -> Path:
    """Where the archive for a release and the Java of this machine lies, or would."""
    java = Path(shutil.which("java") or "java").resolve()
    folder = Path.home() / ".cache" / "reference"
    files = (java.parents[1] / "lib" / "modules", folder / f"kafka-{version}")
    parts = [str(java), *(each.stat().st_mtime_ns for each in files if each.exists())]
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    return folder / f"classes-{version}-{'broker' if is_broker else 'tool'}-{digest}.jsa"


def quick_options(version: str, main: str) -> list[str]:
    """What Java is given beside the program's own options."""
    options = ["-XX:TieredStopAtLevel=1"]
    archive = archive_path(version, is_broker=main == "kafka.Kafka")
    if made := os.environ.get(ARCHIVE):
        options += [f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds*=off"]
    elif archive.exists():
        options += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]
    return options


def stay(servers: "list[subprocess.Popen[bytes]]") -> None:
    """Wait for a signal, then stop the brokers and after them ZooKeeper.

    Several brokers are killed: in an orderly stop, the last ones wait for others that
    could lead their partitions.
    """
    signals = [signal.SIGINT, signal.SIGTERM]
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.sigwait(signals)
    is_alone = sum("kafka.Kafka" in server.args for server in servers) < 2
    for server in reversed(servers):
        if is_alone:
            server.terminate()
        else:
            server.kill()
        try:
            server.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def main() -> None:
    """Run the program with what is different here."""
    del sys.argv[0]
    tool: dict[str, Any] = runpy.run_path(sys.argv[0], run_name="apache")
    its: dict[str, Any] = tool["main"].__globals__
    java = its["java"]

    def quick(version: str, name: str, *arguments: Any, **options: Any) -> list[str]:
        program, *rest = java(version, name, *arguments, **options)
        return [program, *quick_options(version, name), *rest]

    its["wait_port"].__defaults__ = (_LISTEN_S,)
    its.update(java=quick, stay=stay)
    its["main"]()


if __name__ == "__main__":
    main()
