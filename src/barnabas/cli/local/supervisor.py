"""The servers of ``barnabas up`` as child processes: started, watched, stopped.

Nothing is started again by itself. Children are forked from this process with the servers' modules
already loaded, which saves each of them the imports; where there is no fork they are spawned. A
child that cannot start sends the reason through its pipe, so that the reason arrives even where a
full disk keeps it out of the log.
"""

import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.private_files import make_private_dirs
from barnabas.cli.commands import command_main
from barnabas.cli.machine.server_names import COORDINATION_NAME, SERVICES, log_of, server_title
from barnabas.cli.output.colours import print_error
from barnabas.cli.output.exit_codes import exit_code_of
from barnabas.cli.output.terminal import print

__all__ = ["ServerPlan", "Supervisor"]

_READY_TIMEOUT_S = 60
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOP_TIMEOUT_S = 20
_TAIL_LINES = 10
_FULL_BYTES = 1024 * 1024


class ServerPlan(NamedTuple):
    """A server's name ("zookeeper", "0", "1" ...), its command, and the file and the options that
    the command takes."""

    name: str
    command: str
    config: Path
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """What follows the command."""
        return [str(self.config), *self.options]


class Supervisor:
    """The children by name, what each was started with, and their end."""

    def __init__(
        self,
        directory: Path,
        plans: Sequence[ServerPlan],
        bootstrap: str,
        brokers: int,
        *,
        keeps_files: bool = True,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Without ``keeps_files`` the directory goes when a start fails, so that
        messages name no file in it.

        ``properties`` are those with which brokers are asked whether they are ready.
        """
        self._properties = dict(properties or {})
        self._keeps_files = keeps_files
        self._logs = directory / "logs"
        self._plans = {plan.name: plan for plan in plans}
        self._bootstrap = bootstrap
        self._brokers = brokers
        self._children: dict[str, BaseProcess] = {}
        self._pipes: dict[str, Connection] = {}
        self._wake, self._woken = multiprocessing.Pipe(duplex=False)
        self._signals = 0
        self.exit_code = 0
        """What a shell expects after the signal that asked for the end."""
        self.has_failed = False
        """Whether a server ended by itself, with an error."""

    @property
    def pids(self) -> dict[str, int]:
        """Each server's process."""
        return {name: child.pid or 0 for name, child in self._children.items()}

    @property
    def is_stopping(self) -> bool:
        """Whether a signal asked for the end."""
        return self._signals > 0

    def start_coordination(self) -> None:
        """Start the coordination servers; signals ask for the end from here on."""
        for number in _SIGNALS:
            signal.signal(number, self._signalled)
        make_private_dirs(self._logs)
        _import_servers()
        self._start([plan for name, plan in self._plans.items() if name.startswith(COORDINATION_NAME)])

    def start_brokers(self) -> None:
        """Start the brokers."""
        self._start([plan for name, plan in self._plans.items() if name not in {*self._children, *SERVICES}])

    def start_services(self, addresses: Iterable[tuple[str, int]]) -> bool:
        """Start the servers beside the cluster; whether they listen, rather than a signal or a
        death first."""
        self._start([plan for name, plan in self._plans.items() if name in SERVICES])
        end = time.monotonic() + _READY_TIMEOUT_S
        for address in addresses:
            while not _listens(address):
                if self.report_ended() or self._wake.poll(0.05):
                    return False
                if time.monotonic() > end:
                    self.has_failed = True
                    _say(f"nothing listens at {address[0]}:{address[1]} after {_READY_TIMEOUT_S} s; see {self._logs}")
                    return False
        return True

    def _start(self, plans: Sequence[ServerPlan]) -> None:
        can_fork = "fork" in multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("fork") if can_fork else multiprocessing.get_context("spawn")
        for plan in plans:
            theirs, ours = context.Pipe()
            inherited = [ours, *self._pipes.values()]
            child = context.Process(
                target=_serve,
                args=(plan.command, plan.arguments, str(log_of(self._logs, plan.name)), theirs, inherited),
                name=f"barnabas {plan.name}",
            )
            with _blocked_signals():
                child.start()
            theirs.close()
            self._pipes[plan.name] = ours
            self._children[plan.name] = child

    def _signalled(self, number: int, _: object) -> None:
        self._signals += 1
        self.exit_code = exit_code_of(number)
        if self._signals == 1:
            self._woken.send_bytes(b"stop")
        else:  # a second Ctrl-C: at once
            for child in self._children.values():
                child.kill()

    def wait_until_ready(self) -> bool:
        """Whether every broker knows all brokers and the controller, rather than a
        signal or a death first.

        Updates from the controller reach brokers one by one, and a client may ask any of them.
        """
        from barnabas.client.admin.groups import prepare_groups

        unready = self._bootstrap.split(",")
        end = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < end:
            if self.report_ended():
                return False
            if self._wake.poll(0.01):
                return False
            while unready and self._knows_all(unready[0]):
                del unready[0]
            if not unready:
                self._keeps_files = True  # while the cluster runs, in any case
                threading.Thread(target=prepare_groups, args=(self._bootstrap, self._properties), daemon=True).start()
                return True
        self.has_failed = True
        _say(f"the cluster did not come up within {_READY_TIMEOUT_S} s; its logs are in {self._logs}")
        return False

    def report_ended(self) -> bool:
        """Whether a server has ended; say which ones and why."""
        ended = [name for name, child in self._children.items() if child.exitcode is not None]
        for name in ended:
            self._report(name)
        return bool(ended)

    def _knows_all(self, server: str) -> bool:
        from barnabas.client.cluster.admin_connection import AdminConnection

        try:
            with AdminConnection(server, self._properties) as admin:
                cluster = admin.describe_cluster()
        except (BarnabasError, OSError):
            return False
        # With --zookeeper the cluster may have other brokers, too.
        return len(cluster.brokers) >= self._brokers and cluster.controller_id >= 0

    def watch(self) -> None:
        """Until a signal: say which child ended and why, and leave it so (a lab
        stops brokers on purpose)."""
        alive = dict(self._children)
        while True:
            ready = wait([self._wake, *(child.sentinel for child in alive.values())])
            if self._wake in ready:
                return
            for name, child in list(alive.items()):
                if child.sentinel in ready:
                    child.join()
                    del alive[name]
                    self._report(name)

    def _report(self, name: str) -> None:
        """Say how a child ended; with an error also why, as far as the child or its log says it."""
        child, log = self._children[name], log_of(self._logs, name)
        code = child.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        _say(f"{server_title(name)} (pid {child.pid}) {how}")
        if code > 0:
            self.has_failed = True
            self._explain(name, log)
        if code and self._keeps_files:
            plan = self._plans[name]
            again = " ".join(map(quote, ("barnabas", plan.command, *plan.arguments)))
            _say(f"  its log is {log}; start it again with: {again}")

    def _explain(self, name: str, log: Path) -> None:
        reason = ""
        with contextlib.suppress(EOFError, OSError):
            if self._pipes[name].poll(0):
                reason = self._pipes[name].recv_bytes().decode()
        for line in reason.splitlines():
            _say(f"  {line}")
        with contextlib.suppress(OSError):
            free_bytes = shutil.disk_usage(self._logs).free
            if free_bytes < _FULL_BYTES:
                _say(f"  the disk of {self._logs} is full ({free_bytes} bytes are free)")
        lines = [] if reason else _last_lines(log)
        for line in lines:
            _say(f"  {line}")

    def stop(self) -> None:
        """What stands on the brokers first, then these together, so that each can close its
        session."""
        children = self._children
        services = [child for name, child in children.items() if name in SERVICES]
        coordination = [child for name, child in children.items() if name.startswith(COORDINATION_NAME)]
        brokers = [child for child in children.values() if child not in services and child not in coordination]
        for group in (services, brokers, coordination):
            for child in group:
                if child.exitcode is None:
                    child.terminate()
            end = time.monotonic() + _STOP_TIMEOUT_S
            for child in group:
                child.join(max(0.0, end - time.monotonic()))
                if child.exitcode is None:
                    child.kill()
                    child.join()


def _listens(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=1):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block SIGINT and SIGTERM while a child starts: it inherits the parent's handlers,
    which would swallow one."""
    # On Windows children are spawned and inherit no mask.
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _last_lines(log: Path) -> list[str]:
    """The errors at a log's end, or its last lines where there are none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    errors = [line for line in lines[-200:] if " ERROR " in line or " CRITICAL " in line or line.startswith("Error")]
    return (errors or lines)[-_TAIL_LINES:]


def _import_servers() -> None:
    """Load what every child needs before the fork."""
    import asyncio  # noqa: F401

    import barnabas.broker.server
    import barnabas.client.cluster.admin_connection
    import barnabas.coordination.server.server  # noqa: F401


def _serve(command: str, arguments: list[str], log: str, pipe: Connection, inherited: list[Connection]) -> None:
    """In the child: run one server's command; stop cleanly when the supervisor is
    gone, however it went."""
    for other in inherited:
        other.close()
    if hasattr(os, "setsid"):
        os.setsid()  # a terminal's Ctrl-C goes to the supervisor, which stops the children in order
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for standard in (1, 2):
            os.dup2(descriptor, standard)
        os.close(descriptor)
        threading.Thread(target=_terminate_at_end_of, args=(pipe,), daemon=True).start()
        code = command_main(command)(arguments)
    except (BarnabasError, OSError) as error:
        with contextlib.suppress(OSError):
            pipe.send_bytes(f"Error: {error}".encode())
        with contextlib.suppress(OSError):
            print_error(f"Error: {error}")
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _terminate_at_end_of(pipe: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)
