"""Faults for servers in processes of their own: each server puts `ServerFaults` before its
network, files and clock.

A `ProcessCluster` with ``faults=True`` has `FaultLinks`. The servers that it starts find their
address in the environment, connect to them before they do anything else (`join_faults`), and give
their name. The answer names the ports that are cut off from this server, so a server that starts
again during a partition is on its side from the beginning. Each later command is answered when it
is in force. A server without this environment runs as always.
"""

import asyncio
import contextlib
import os
import secrets
import threading
from collections.abc import Collection, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.testing.fault_environment import FAULTS_ENVIRONMENT
from barnabas.testing.faults import ServerFaults

__all__ = ["FaultLinks", "join_faults"]

_HOST = "127.0.0.1"
_ANSWER_S = 30.0
_WAITING_SERVERS = 64


class FaultLinks:
    """The side of the cluster: a connection to each server that runs, and the ports
    that are cut off from each."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)
        self._listener = Listener((_HOST, 0), backlog=_WAITING_SERVERS, authkey=self._key)
        self._links: dict[str, Connection] = {}
        self._cut: dict[str, frozenset[int]] = {}
        self._changed = threading.Condition()
        self._number = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._accept, name="barnabas-faults", daemon=True)
        self._thread.start()

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
        self._thread.join()
        self._listener.close()
        for link in self._links.values():
            link.close()

    def _accept(self) -> None:
        while not self._is_closed:
            with contextlib.suppress(OSError, EOFError, AuthenticationError):
                link = self._listener.accept()
                name = link.recv()
                with self._changed:
                    link.send(self._cut.get(name, frozenset()))
                    self._links[name] = link
                    self._changed.notify_all()

    def forget(self, name: str) -> None:
        """The server has ended; the next one of its name joins again."""
        with self._changed:
            link = self._links.pop(name, None)
        if link is not None:
            link.close()

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
            self._number += 1
            try:
                link.send((self._number, dict(values)))
                while waits:
                    if not link.poll(_ANSWER_S):
                        raise BarnabasError(f"server {name} did not take its faults within {_ANSWER_S:.0f} s")
                    waits = link.recv() != self._number
            except (OSError, EOFError) as error:
                raise BarnabasError(f"server {name} ended before its faults were in force") from error


class _RemoteFaults:
    """The side of the server."""

    def __init__(self, link: Connection, cut: frozenset[int]) -> None:
        self._link = link
        self._cut = cut
        self._loop = asyncio.get_running_loop()
        self.faults = ServerFaults(lambda port: port in self._cut)

    def listen(self) -> None:
        """Take commands until the cluster has gone."""
        # RuntimeError: the loop is closed because the server ends.
        with contextlib.suppress(OSError, EOFError, RuntimeError):
            while True:
                number, values = self._link.recv()
                self._loop.call_soon_threadsafe(self._apply, number, values)

    def _apply(self, number: int, values: Mapping[str, Any]) -> None:
        faults = self.faults
        self._cut = values.get("cut", self._cut)
        faults.network.update()
        faults.disk.delay_s = values.get("delay_s", faults.disk.delay_s)
        faults.disk.error = values.get("error", faults.disk.error)
        faults.clock.shift_ms = values.get("shift_ms", faults.clock.shift_ms)
        with contextlib.suppress(OSError):
            self._link.send(number)


def join_faults(name: str) -> ServerFaults:
    """The faults of this process's server, on the loop that runs.

    Raises `BarnabasError` when the cluster has gone."""
    port, _, key = os.environ[FAULTS_ENVIRONMENT].partition(" ")
    try:
        link = Client((_HOST, int(port)), authkey=bytes.fromhex(key))
        link.send(name)
        remote = _RemoteFaults(link, link.recv())
    except (OSError, EOFError, AuthenticationError) as error:
        raise BarnabasError(f"the cluster that gives this server its faults has gone: {error}") from error
    threading.Thread(target=remote.listen, name="barnabas-faults", daemon=True).start()
    return remote.faults
