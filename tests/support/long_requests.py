"""Requests as long as they may be, beside a producer of one record each millisecond."""

from os import environ
from typing import Any

from support.memory import Memory
from support.raw import ask
from support.stalls import Stalls

__all__ = ["IS_TRIAL", "NAMES", "LongRequests"]

IS_TRIAL = "BARNABAS_NAMES" in environ
NAMES = int(environ.get("BARNABAS_NAMES", "4000"))
"""How many things a request names."""
_MEMORY_MIB = 16 + NAMES * 600 / (1 << 20)
"""Each name costs an object in the request, one in the answer, and perhaps an error."""


class LongRequests:
    """Sends requests to a broker, one after the other, and notes what each took."""

    def __init__(self, stalls: Stalls, port: int) -> None:
        self._stalls = stalls
        self._port = port
        self.kept: list[str] = []
        """Requests after which the broker kept too much memory."""

    def send(self, name: str, message: Any, version: int) -> Any:
        """The answer; None where the broker closes the connection instead."""
        memory = Memory(self._stalls.cluster.pids["0"])
        answers: list[Any] = []

        def work() -> None:
            try:
                answers.append(ask(self._port, message, version, timeout_s=300))
            except ConnectionError:
                answers.append(None)

        self._stalls.during(name, work)
        kept_mib, most_mib = memory.kept_mib, memory.grown_mib
        (answer,) = answers
        self._stalls.rows[-1] += f", memory +{kept_mib:.1f} (most {most_mib:.1f}) MiB" + (
            " closed" if answer is None else ""
        )
        print(self._stalls.rows[-1], flush=True)
        if kept_mib > _MEMORY_MIB:
            self.kept.append(f"{name}: {kept_mib:.1f} MiB")
        return answer
