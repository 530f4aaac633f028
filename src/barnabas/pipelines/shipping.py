"""What a Spark cluster gets from this machine: our own code, and where the cluster is. Needs no Spark.

Executors run on other machines with a Python environment of their own at the same path. Packages with compiled code (pyarrow,
confluent-kafka) must be installed there; our own code goes with each flow, so it is of the version that planned it.
"""

import re
import socket
import zipfile
from pathlib import Path

import barnabas
from barnabas.base.errors import BarnabasError

__all__ = ["MASTER", "is_local", "require_master", "zip_package"]

MASTER = re.compile(r"local(\[(\d+|\*)\])?|spark://[^\s/]+:\d+(,[^\s/]+:\d+)*|yarn|k8s://\S+")
"""The forms of Spark's ``--master`` that a flow takes."""
_CONNECT_TIMEOUT_S = 10.0


def is_local(master: str) -> bool:
    """Whether the driver's own process does all the work."""
    return master.startswith("local")


def require_master(master: str) -> None:
    """Raise `BarnabasError` if no standalone master answers; Spark alone would try for a minute, then speak of something else."""
    if not master.startswith("spark://"):
        return
    problems: list[str] = []
    for each in master.removeprefix("spark://").split(","):
        host, _, port = each.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
        except OSError as error:
            problems.append(f"{each}: {error.strerror or error}")
        else:
            return
    raise BarnabasError(
        f"no Spark master answers at {master} ({'; '.join(problems)}); is it started, and is this its URL?"
    )


def zip_package(folder: Path) -> Path:
    """Our package as a zip in a folder, as ``--py-files`` takes it."""
    root = Path(barnabas.__file__).parent
    path = folder / "barnabas.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted(root.rglob("*.py")):
            archive.write(each, each.relative_to(root.parent))
    return path
