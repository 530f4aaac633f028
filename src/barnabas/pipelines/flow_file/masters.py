"""Where Spark runs: this machine, or a cluster that a URL names, as Spark's ``--master`` does.

Needs no Spark."""

import re
import socket
from collections.abc import Mapping

from barnabas.base.errors import BarnabasError
from barnabas.base.redaction import redacted_address

__all__ = ["MASTER", "is_local", "require_master", "shown_master", "task_problem"]

MASTER = re.compile(r"local(\[(\d+|\*)\])?|spark://[^\s/]+:\d+(,[^\s/]+:\d+)*|yarn|k8s://\S+")
"""The forms of Spark's ``--master`` that a flow takes."""
_CONNECT_TIMEOUT_S = 10.0


def is_local(master: str) -> bool:
    """Whether the driver's own process does all the work."""
    return master.startswith("local")


def task_problem(settings: Mapping[str, str], master: str | None, cores: int) -> str | None:
    """Why no task could ever run with ``spark.task.cpus``: Spark itself ends with a stack trace, or
    waits for ever; None if one can."""
    text = settings.get("spark.task.cpus", "1")
    if not text.isdecimal() or int(text) < 1:
        return f'has "spark.task.cpus" = "{text}", but must have a number from 1'
    field, most = "resources.cores", cores
    if master and is_local(master):
        field, inner = "resources.master", master[len("local[") : -1] or "1"
        if inner == "*":
            return None
        most = int(inner)
    elif executor := settings.get("spark.executor.cores"):
        field, most = "spark.executor.cores", int(executor) if executor.isdecimal() else 0
        if master and master.startswith("spark://") and cores < most:
            field, most = "resources.cores", cores
    elif master and not master.startswith("spark://"):
        field, most = "spark.executor.cores", 1
    if int(text) <= most:
        return None
    return f'has "spark.task.cpus" = "{text}", but {field} gives {most}, so no task could run: take fewer, or raise {field}'


def shown_master(master: str) -> str:
    """The URL for messages: without what may be a password."""
    return ",".join(map(redacted_address, master.split(",")))


def require_master(master: str) -> None:
    """Raise `BarnabasError` if no standalone master answers.

    Spark alone would try for a minute, then report another error.
    """
    if not master.startswith("spark://"):
        return
    problems: list[str] = []
    for each in master.removeprefix("spark://").split(","):
        host, _, port = each.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
        except OSError as error:
            problems.append(f"{redacted_address(each)}: {error.strerror or error}")
        else:
            return
    raise BarnabasError(
        f"no Spark master answers at {shown_master(master)} ({'; '.join(problems)}); is it started, and is this its URL?"
    )
