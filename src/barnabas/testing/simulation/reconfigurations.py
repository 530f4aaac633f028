"""Simulated ensembles that change: the zoo.cfg files on the machines' disks, and an operator
who requests the changes.

A server that the configuration does not name follows without a vote. When such a server starts
again, the operator gives it a zoo.cfg with the present lines and its own, as the guide says.
"""

import asyncio
import contextlib

from barnabas.base.files import Files
from barnabas.base.network import Network
from barnabas.base.randomness import Random
from barnabas.base.settings import properties_text
from barnabas.coordination.client import CoordinationClient
from barnabas.coordination.client.operations import Operation
from barnabas.coordination.core.paths import CONFIG_PATH
from barnabas.coordination.quorum.configuration import parse_dynamic_text
from barnabas.coordination.quorum.configuration_files import read_zoo_cfg
from barnabas.testing.simulation.history import History
from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import GetDataResponse, ReconfigRequest

__all__ = ["ZOO_CFG", "EnsembleOperator", "prepare_zoo_cfg", "server_line"]

ZOO_CFG = "/zoo.cfg"
_EXPECTED = frozenset(
    (
        ErrorCode.CONNECTION_LOSS,
        ErrorCode.SESSION_EXPIRED,
        ErrorCode.NEW_CONFIG_NO_QUORUM,
        ErrorCode.RECONFIG_IN_PROGRESS,
    )
)
_SESSION_TIMEOUT_MS = 4000


def server_line(name: str, role: str) -> str:
    """The value of the server line of a machine."""
    return f"{name}:2888:3888:{role};2181"


def prepare_zoo_cfg(
    files: Files, name: str, settings: dict[str, str], present_lines: dict[str, str], role: str
) -> dict[str, str]:
    """The settings in a server's zoo.cfg, which is written if it is not there or
    does not name the server."""
    own = f"server.{name.rpartition('-')[2]}"
    if files.exists(ZOO_CFG):
        texts = read_zoo_cfg(files.read, ZOO_CFG)
        if own in texts:
            return texts
    texts = {**settings, own: server_line(name, role), **present_lines}
    with contextlib.suppress(OSError):  # the server meets the same disk, and does not start
        files.write_atomically(ZOO_CFG, properties_text(texts).encode())
    return texts


def _operation(request: ReconfigRequest) -> Operation:
    return Operation(
        OpCode.RECONFIG,
        CONFIG_PATH,
        lambda _root: request,
        lambda raw, offset: decode(GetDataResponse, raw, offset),
        writes=True,
    )


class EnsembleOperator:
    """Requests one change after the other."""

    def __init__(self, network: Network, servers: str, names: list[str], rng: Random, history: History) -> None:
        self.client = CoordinationClient(network, servers, rng=rng, session_timeout_ms=_SESSION_TIMEOUT_MS)
        self._names = names
        self._rng = rng
        self._history = history
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect, however long it takes."""
        with contextlib.suppress(KeeperError):
            await self.client.start(60_000)

    def change(self) -> bool:
        """Request a change, unless one is under way."""
        if self._task is not None and not self._task.done():
            return False
        self._task = asyncio.get_running_loop().create_task(self._change())
        return True

    async def close(self) -> None:
        """Give a request up that is under way, and end the session."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self.client.close()

    async def _change(self) -> None:
        try:
            data, _ = await self.client.get(CONFIG_PATH)
            await self.client.run(_operation(self._request((data or b"").decode())))
        except KeeperError as error:
            if error.code not in _EXPECTED:
                self._history.violation(f"operator: {error!r}", error)
        else:
            self._history.count("reconfigurations")

    def _request(self, text: str) -> ReconfigRequest:
        """Remove one server, or add one or change its role, or replace all."""
        present, rng = parse_dynamic_text(text), self._rng
        ids = range(1, len(self._names) + 1)
        choice = rng.random()
        if choice < 0.3 and len(present.voters) > 2:
            return ReconfigRequest(None, str(rng.choice(sorted(present.servers))), None, -1)
        if choice < 0.6:
            role = "participant" if len(present.voters) <= 2 or rng.random() < 0.7 else "observer"
            return ReconfigRequest(self._line(rng.choice(ids), role), None, None, -1)
        chosen = rng.sample(ids, rng.randint(2, len(ids)))
        roles = ["participant", "participant", *(rng.choices(("participant", "observer"), (4, 1), k=len(chosen)))]
        lines = ",".join(map(self._line, chosen, roles))
        return ReconfigRequest(None, None, lines, present.version if rng.random() < 0.5 else -1)

    def _line(self, server_id: int, role: str) -> str:
        return f"server.{server_id}={server_line(self._names[server_id - 1], role)}"
