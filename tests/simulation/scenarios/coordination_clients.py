"""Clients of the simulated coordination service, and what they know must hold.

- Counters are raised by compare-and-set: an acknowledged version is that of one writer, and a
  node's data is its version, so versions have neither gaps nor repeats.
- Sequential nodes get numbers that are never given twice.
- A session's zxids never decrease, reconnections included.
- A watch fires before its session reads anything newer than what the watch was set on.
- An ephemeral node is there exactly as long as its session.
"""

import asyncio
from typing import Any

from barnabas.coordination.client import CoordinationClient, SessionEvent
from barnabas.coordination.client.operations import WatchEvent
from barnabas.testing.simulation.simulation import Simulation
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import CreateMode

__all__ = ["COUNTERS", "CoordinationFacts", "CoordinationUser"]

COUNTERS = ("/sim-a", "/sim-b")
SEQUENTIAL = "/sim-sequence"
EPHEMERALS = "/sim-ephemerals"
_SESSION_TIMEOUT_MS = 4000


class CoordinationFacts:
    """All answers that the users of a run got together."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], int] = {}
        self.names: dict[str, int] = {}
        self.deleted: set[str] = set()


def _check_zxids(client: CoordinationClient, simulation: Simulation, name: str) -> None:
    """Look at the zxids of all replies before the production session does."""
    session = client._session
    receive = session.receive

    def checked(frame: bytes, now_ms: int) -> None:
        zxid = int.from_bytes(frame[4:12], "big", signed=True)
        if session.is_connected and 0 < zxid < session.last_zxid:
            simulation.history.violation(f"{name}: zxid 0x{zxid:x} came after 0x{session.last_zxid:x}")
        receive(frame, now_ms)

    session.receive = checked  # type: ignore[method-assign]  # a probe at the seam between frames and the session


class CoordinationUser:
    """One client process with a session."""

    def __init__(self, simulation: Simulation, number: int, facts: CoordinationFacts) -> None:
        self._simulation = simulation
        self._number = number
        self._facts = facts
        self.machine = simulation.machine(f"user-{number}")
        self.process = self.machine.boot()
        self._rng = self.process.rng
        self.is_stopping = False
        self._session_changes = 0
        self._session_id = 0
        self.client = self._new_client()
        run = self._run()
        self.task = self.process.context.run(simulation.loop.create_task, run)

    def _new_client(self) -> CoordinationClient:
        client = CoordinationClient(
            self.machine.network(),
            self._simulation.layout.connect_string,
            rng=self._rng,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
        )
        _check_zxids(client, self._simulation, self.machine.name)
        client.on_session(self._session_event)
        return client

    def _session_event(self, event: SessionEvent) -> None:
        if event in (SessionEvent.EXPIRED, SessionEvent.CREATED):
            self._session_changes += 1
        if event is SessionEvent.CREATED:
            self._session_id = self.client.session_id
        elif event is SessionEvent.EXPIRED and self._simulation.layout.is_ensemble:
            servers = [machine.server for machine in self._simulation.coordination if machine.server is not None]
            self._simulation.ensemble.check_expired(self.machine.name, self._session_id, servers)

    async def _run(self) -> None:
        while True:
            try:
                await self.client.start(1000)
                break
            except KeeperError:
                continue
        await self._until_done(lambda: self.client.ensure_path(SEQUENTIAL))
        await self._until_done(lambda: self.client.ensure_path(EPHEMERALS))
        for path in COUNTERS:
            await self._until_done(lambda path=path: self._make_counter(path))
        steps = (self._raise_counter, self._raise_counter, self._make_sequential, self._hold_ephemeral, self._watch)
        while not self.is_stopping:
            try:
                await self._rng.choice(steps)()
            except KeeperError as error:
                if error.code not in (ErrorCode.CONNECTION_LOSS, ErrorCode.SESSION_EXPIRED):
                    self._simulation.history.violation(f"{self.machine.name}: {error!r}", error)
                await asyncio.sleep(0.1)
            await asyncio.sleep(self._rng.expovariate(1 / 0.1))

    async def _until_done(self, step: Any) -> None:
        while True:
            try:
                await step()
                return
            except KeeperError as error:
                if error.code not in (ErrorCode.CONNECTION_LOSS, ErrorCode.SESSION_EXPIRED):
                    self._simulation.history.violation(f"{self.machine.name}: {error!r}", error)
                    return

    async def _make_counter(self, path: str) -> None:
        try:
            await self.client.create(path, b"0")
        except KeeperError as error:
            if error.code is not ErrorCode.NODE_EXISTS:
                raise

    async def _raise_counter(self) -> None:
        history = self._simulation.history
        path = self._rng.choice(COUNTERS)
        data, stat = await self.client.get(path)
        if int(data or b"-1") != stat.version:
            history.violation(f"{path}: data {data!r} at version {stat.version}")
        known = max((version for at, version in self._facts.versions if at == path), default=0)
        asked_at = known
        try:
            written = await self.client.set_data(path, str(stat.version + 1).encode(), stat.version)
        except KeeperError as error:
            if error.code is ErrorCode.BAD_VERSION:
                return
            raise
        if written.version != stat.version + 1 or (path, written.version) in self._facts.versions:
            history.violation(f"{path}: version {written.version} was written from {stat.version}, or twice")
        if stat.version < asked_at:
            history.violation(f"{path}: version {stat.version} was changed, {asked_at} was acknowledged before")
        self._facts.versions[path, written.version] = self._number
        history.count("coordination writes")

    async def _make_sequential(self) -> None:
        history = self._simulation.history
        path, _ = await self.client.create(f"{SEQUENTIAL}/n-", b"", CreateMode.PERSISTENT_SEQUENTIAL)
        if path in self._facts.names:
            history.violation(f"{path} was given to two clients")
        self._facts.names[path] = self._number
        history.count("coordination writes")
        if self._rng.random() < 0.3:
            self._facts.deleted.add(path)
            await self.client.delete(path)

    async def _hold_ephemeral(self) -> None:
        history, client = self._simulation.history, self.client
        changes = self._session_changes
        path = f"{EPHEMERALS}/u-{self._number}"
        try:
            await client.create_own_ephemeral(path, b"mine")
        except KeeperError as error:
            if error.code is ErrorCode.NODE_EXISTS:
                # Of a session that this process ended, which the server does not know yet.
                await asyncio.sleep(_SESSION_TIMEOUT_MS / 1000)
                return
            raise
        await asyncio.sleep(self._rng.random() * 2)
        stat = await client.exists(path)
        if self._session_changes == changes:
            if stat is None or stat.ephemeral_owner != client.session_id:
                history.violation(f"{path} is {stat}, while session 0x{client.session_id:x} lives")
            history.count("ephemerals held")
            if self._rng.random() < 0.3:
                await client.close()
                self.client = self._new_client()
                await self._until_done(lambda: self.client.start(1000))
                self._session_changes += 1
            else:
                await client.delete(path)

    async def _watch(self) -> None:
        history, client = self._simulation.history, self.client
        path = self._rng.choice(COUNTERS)
        fired: list[WatchEvent] = []
        changes = self._session_changes
        _, before = await client.get(path, fired.append)
        for _ in range(self._rng.randrange(1, 20)):
            _, now = await client.get(path)
            if now.mzxid < before.mzxid:
                history.violation(f"{path}: zxid 0x{now.mzxid:x} was read after 0x{before.mzxid:x}")
            if now.mzxid > before.mzxid:
                if not fired and self._session_changes == changes:
                    history.violation(f"{path}: version {now.version} was read before its watch fired")
                history.count("watches fired")
                if len(fired) > 1:
                    history.violation(f"{path}: a watch fired {len(fired)} times")
                return
            await asyncio.sleep(0.05)
