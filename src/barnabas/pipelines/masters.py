"""Where Spark runs: this machine, or a cluster that a URL names, as Spark's ``--master`` does. Needs no Spark."""

import re
import socket

from barnabas.base.errors import BarnabasError

__all__ = ["MASTER", "is_local", "require_master"]

MASTER = re.compile(r"local(\[(\d+|\*)\])?|spark://[^\s/]+:\d+(,[^\s/]+:\d+)*|yarn|k8s://\S+")
"""The forms of Spark's ``--master`` that a flow takes."""
_CONNECT_TIMEOUT_S = 10.0


def is_local(master: str) -> bool:
    """Whether the driver's own process does all the work."""
    return master.startswith("local")


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
            problems.append(f"{each}: {error.strerror or error}")
        else:
            return
    raise BarnabasError(
        f"no Spark master answers at {master} ({'; '.join(problems)}); is it started, and is this its URL?"
    )
