"""Faults for servers in processes of their own: each server puts `ServerFaults` before its
network, files and clock.

A `ProcessCluster` with ``faults=True`` has `FaultLinks`. The servers that it starts find their
address in the environment, connect to them before they do anything else (`join_faults`), and give
their name. The answer has what is in force for this server: the ports that are cut off from it,
so that a server that starts again during a partition is on its side from the beginning, and the
coordinators that are to be killed. Each later command is answered when it is in force. A server
without this environment runs as always.

A coordinator that is to be killed stops at that moment and asks the cluster, which kills it, or
lets it go on if another one has been killed meanwhile.

A broker of a cluster with ``record_acls`` sends what it is asked for before it answers, each thing
once, so that a broker that is killed takes nothing with it.
"""

import asyncio
import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.security.needed_acls import NeededAcls
from barnabas.testing.coordinator_kills import CoordinatorKill, CoordinatorKills, Outcome
from barnabas.testing.fault_environment import FAULTS_ENVIRONMENT
from barnabas.testing.faults import ServerFaults

if TYPE_CHECKING:
    from barnabas.broker.server import BrokerServer

__all__ = ["FaultLinks", "RemoteFaults", "join_faults"]

_HOST = "127.0.0.1"
_ANSWER_S = 30.0
_WAITING_SERVERS = 64
_GO_ON = "go on"


class _ServerLink:
    """The connection to one server."""

    __slots__ = ("applied", "connection", "is_open")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.applied = 0
        """The number of the last command that is in force."""
        self.is_open = True


class FaultLinks:
    """The side of the cluster: a connection to each server that runs, and what is in force for
    servers that join."""

    def __init__(self, needed_acls: NeededAcls | None = None) -> None:
        """With ``needed_acls`` brokers allow everything, and what they allow is noted there."""
        self._needed_acls = needed_acls
        self._key = secrets.token_bytes(16)
        self._listener = Listener((_HOST, 0), backlog=_WAITING_SERVERS, authkey=self._key)
        self._links: dict[str, _ServerLink] = {}
        self._cut: dict[str, frozenset[int]] = {}
        self._kills: list[CoordinatorKill] = []
        self._changed = threading.Condition()
        self._number = 0
        self._is_closed = False
        self._closed, self._open = Pipe(duplex=False)
        self._threads = [threading.Thread(target=self._accept, name="barnabas-faults", daemon=True)]
        self._threads[0].start()

    def environment(self) -> dict[str, str]:
        """The environment of a server that joins."""
        _, port = self._listener.address
        return {**os.environ, FAULTS_ENVIRONMENT: f"{port} {self._key.hex()}"}

    def close(self) -> None:
        """Disconnect all servers; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(OSError, EOFError, AuthenticationError):
            Client(self._listener.address, authkey=self._key).close()  # ends the thread's wait
        self._threads[0].join()
        self._listener.close()
        self._open.close()  # ends the wait of the others
        for thread in self._threads:
            thread.join()
        self._closed.close()

    def _accept(self) -> None:
        while not self._is_closed:
            with contextlib.suppress(OSError, EOFError, AuthenticationError):
                link = _ServerLink(self._listener.accept())
                name = link.connection.recv()
                with self._changed:
                    link.connection.send(
                        {
                            "cut": self._cut.get(name, frozenset()),
                            "kills": self._wanted_kills(),
                            "records_acls": self._needed_acls is not None,
                        }
                    )
                    self._links[name] = link
                    self._changed.notify_all()
                reader = threading.Thread(
                    target=self._read, args=(name, link), name=f"barnabas-faults-{name}", daemon=True
                )
                self._threads.append(reader)
                reader.start()

    def _read(self, name: str, link: _ServerLink) -> None:
        """Take what a server sends, until it ends."""
        with contextlib.suppress(OSError, EOFError):
            while self._closed not in wait((link.connection, self._closed)):
                received = link.connection.recv()
                with self._changed:
                    if isinstance(received, int):
                        link.applied = received
                    elif isinstance(received, _Need):
                        received.note(self._needed_acls)
                    elif not self._strikes(name, *received):
                        link.connection.send(_GO_ON)
                    self._changed.notify_all()
        with self._changed:
            link.is_open = False
            link.connection.close()
            self._changed.notify_all()

    def forget(self, name: str) -> None:
        """The server has ended, and all that it sent is noted; the next one of its name joins
        again."""
        with self._changed:
            link = self._links.pop(name, None)
            if link is not None:
                self._changed.wait_for(lambda: not link.is_open, _ANSWER_S)

    def cut(self, name: str, ports: Collection[int], *, waits: bool, is_running: bool = True) -> None:
        """Cut these ports off from a server, also from one that joins later, and no others."""
        with self._changed:
            self._cut[name] = frozenset(ports)
        if is_running:
            self.set(name, {"cut": frozenset(ports)}, waits=waits)

    def set(self, name: str, values: Mapping[str, Any], *, waits: bool = True) -> None:
        """Set faults, and wait until they are in force.

        Without ``waits`` (a paused server) they apply when it resumes.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._links, _ANSWER_S):
                raise BarnabasError(f"server {name} did not ask for its faults within {_ANSWER_S:.0f} s")
            link = self._links[name]
            self._number = number = self._number + 1
            with contextlib.suppress(OSError):  # it is closed, or will be soon
                link.connection.send((number, dict(values)))
            is_answered = not waits or self._changed.wait_for(
                lambda: link.applied >= number or not link.is_open, _ANSWER_S
            )
            if not is_answered:
                raise BarnabasError(f"server {name} did not take its faults within {_ANSWER_S:.0f} s")
            if link.applied < number and not link.is_open:
                raise BarnabasError(f"server {name} ended before its faults were in force")

    @contextlib.contextmanager
    def waiting(self, kill: CoordinatorKill, brokers: Callable[[], Mapping[str, bool]]) -> Iterator[None]:
        """Kill a coordinator in this block. Raises `BarnabasError` at its end if there was none.

        ``brokers`` gives the names of those that run, and whether to wait for each (see `set`)."""
        with self._changed:
            self._kills.append(kill)
        try:
            self._set_kills(brokers())
            yield
        finally:
            with self._changed:
                self._kills.remove(kill)  # a coordinator that asks from now on goes on
            with contextlib.suppress(BarnabasError):
                self._set_kills(brokers())
        kill.check()

    def _set_kills(self, brokers: Mapping[str, bool]) -> None:
        for name, waits in brokers.items():
            self.set(name, {"kills": self._wanted_kills()}, waits=waits)

    def _wanted_kills(self) -> tuple[tuple[str, Outcome], ...]:
        return tuple((kill.transactional_id, kill.during) for kill in self._kills)

    def _strikes(self, name: str, transactional_id: str, during: Outcome) -> bool:
        """Whether a broker that has come to this moment is killed."""
        moment = (transactional_id, during)
        kills = [each for each in self._kills if not each.is_done and (each.transactional_id, each.during) == moment]
        return bool(kills) and kills[0].strike(int(name))


class _Need(NamedTuple):
    """What a broker was asked for."""

    principal: str
    operation: AclOperation
    resource_type: ResourceType
    name: str | None
    """None for a right to any resource of the type."""
    is_listed: bool = False

    def note(self, needed: NeededAcls | None) -> None:
        if needed is None:
            return
        if self.name is None:
            needed.note_any(self.principal, self.operation, self.resource_type)
        else:
            note = needed.note_listed if self.is_listed else needed.note
            note(self.principal, self.operation, self.resource_type, self.name)


class _SentNeeds(NeededAcls):
    """Notes at the cluster; threads may note at the same time."""

    def __init__(self, send: Callable[[object], None]) -> None:
        super().__init__()
        self._send_to_cluster = send
        self._sent: set[_Need] = set()

    def note(self, principal: str, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """An operation on a resource."""
        self._send(_Need(principal, operation, resource_type, name))

    def note_any(self, principal: str, operation: AclOperation, resource_type: ResourceType) -> None:
        """An operation on any resource of a type."""
        self._send(_Need(principal, operation, resource_type, None))

    def note_listed(self, principal: str, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """An operation on a resource that is left out of a list where it is not allowed."""
        self._send(_Need(principal, operation, resource_type, name, is_listed=True))

    def _send(self, need: _Need) -> None:
        if need not in self._sent:
            self._sent.add(need)
            self._send_to_cluster(need)


class RemoteFaults:
    """The side of the server."""

    def __init__(self, link: Connection, values: Mapping[str, Any]) -> None:
        self._link = link
        self._cut: frozenset[int] = frozenset()
        self._kills = CoordinatorKills()
        self._goes_on = threading.Event()
        self._has_cluster = True
        self._loop = asyncio.get_running_loop()
        self.faults = ServerFaults(lambda port: port in self._cut)
        self._sending = threading.Lock()
        self.needed_acls: NeededAcls | None = _SentNeeds(self._send) if values.get("records_acls") else None
        """Where a broker notes what it is asked for; None where nothing is recorded."""
        self._set(values)

    @property
    def parts(self) -> dict[str, Any]:
        """The files, clock and network for a server's constructor."""
        return {"files": self.faults.files, "clock": self.faults.clock, "network": self.faults.network}

    def watch(self, broker: "BrokerServer") -> None:
        """Kill this broker, which has started, at the moments that the cluster asks for."""
        self._kills.watch(broker)

    def listen(self) -> None:
        """Take commands until the cluster has gone."""
        # RuntimeError: the loop is closed because the server ends.
        with contextlib.suppress(OSError, EOFError, RuntimeError):
            while True:
                received = self._link.recv()
                if received == _GO_ON:
                    self._goes_on.set()
                else:
                    self._loop.call_soon_threadsafe(self._apply, *received)
        self._has_cluster = False
        self._goes_on.set()

    def _apply(self, number: int, values: Mapping[str, Any]) -> None:
        self._set(values)
        self._send(number)

    def _send(self, message: object) -> None:
        with self._sending, contextlib.suppress(OSError):
            self._link.send(message)

    def _set(self, values: Mapping[str, Any]) -> None:
        faults = self.faults
        self._cut = values.get("cut", self._cut)
        faults.network.update()
        faults.disk.delay_s = values.get("delay_s", faults.disk.delay_s)
        faults.disk.error = values.get("error", faults.disk.error)
        faults.clock.shift_ms = values.get("shift_ms", faults.clock.shift_ms)
        if "kills" in values:
            self._kills.expect(
                CoordinatorKill(name, during, partial(self._ask, name, during)) for name, during in values["kills"]
            )

    def _ask(self, transactional_id: str, during: Outcome, _: int) -> bool:
        """Block until the cluster kills this process; return False if it does not."""
        self._goes_on.clear()
        self._send((transactional_id, during))
        if self._has_cluster:
            self._goes_on.wait()
        return False


def join_faults(name: str) -> RemoteFaults:
    """The faults of this process's server, on the loop that runs.

    Raises `BarnabasError` when the cluster has gone."""
    port, _, key = os.environ[FAULTS_ENVIRONMENT].partition(" ")
    try:
        link = Client((_HOST, int(port)), authkey=bytes.fromhex(key))
        link.send(name)
        remote = RemoteFaults(link, link.recv())
    except (OSError, EOFError, AuthenticationError) as error:
        raise BarnabasError(f"the cluster that gives this server its faults has gone: {error}") from error
    threading.Thread(target=remote.listen, name="barnabas-faults", daemon=True).start()
    return remote
