"""A cluster whose servers are processes of their own, so that a single one can be killed,
paused and started again.

`Cluster` is quicker and simpler where that is not needed. This one runs ``barnabas up`` as a child;
a broker that is started again is a child too, run by ``barnabas server-start`` on the properties
file that ``up`` wrote, as one would by hand.
"""

import contextlib
import errno
import re
import shlex
import signal
import socket
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Self, Unpack

from barnabas.base.errors import BarnabasError
from barnabas.base.private_files import make_private_dirs, write_private
from barnabas.base.settings import properties_text, read_properties
from barnabas.client.admin.acl_options import acl_commands
from barnabas.client.admin.acls import Acl
from barnabas.coordination.quorum.members import QuorumServer
from barnabas.security.needed_acls import NeededAcls
from barnabas.testing.coordinator_kills import CoordinatorKill, Outcome, killer
from barnabas.testing.process_faults import FaultLinks
from barnabas.testing.security import Access, ClusterSecurity, suggestions
from barnabas.testing.server_names import is_broker, title_of, zookeeper_name
from barnabas.testing.server_processes import COMMAND, ServerProcesses, wait_until

__all__ = ["ProcessCluster"]

_READY = re.compile(r"ready (?P<bootstrap>\S+) zk=(?P<zookeeper>\S+) pids=(?P<pids>\S+)\n")
_USUAL_PORT = 9092
_USUAL_ZK_PORT = 2181


class ProcessCluster:
    """Brokers 0 to N-1 and their coordination server, or an ensemble of ``zk_servers``.

    A context manager. ``settings``, ``data_dir``, ``racks``, ``security``, ``users``, ``acls`` and
    ``record_acls`` are as for `Cluster`. ``port`` is the first broker's, the others follow; 0 takes
    any that are free, and so does ``zk_port``; `usual_ports` gives both. Needs POSIX signals.

    With ``faults``, `ServerFaults` wraps each server's network, files and clock, as in `Cluster`,
    and `partition`, `slow_disk`, `full_disk`, `fail_disk`, `clock` and `killing_coordinator` are
    possible. Without it the servers are what users run.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        racks: int = 0,
        port: int = 0,
        zk_port: int = 0,
        zk_servers: int = 1,
        faults: bool = False,
        **access: Unpack[Access],
    ) -> None:
        self._security = ClusterSecurity.of(**access)
        self._needed_acls = NeededAcls() if access.get("record_acls") else None
        self._has_faults = faults
        self._fault_links: FaultLinks | None = None
        self._ports: dict[str, frozenset[int]] = {}
        self._temporary = (
            None if data_dir else tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True)
        )
        self.data_dir = Path(data_dir or self._temporary.name)  # type: ignore[union-attr]  # one of the two is there
        options = [("--brokers", brokers), ("--racks", racks), ("--port", port), ("--zk-port", zk_port)]
        options.append(("--zk-servers", zk_servers))
        # The passwords: other users of the machine see the arguments of barnabas up.
        self._users_file = self.data_dir / "security" / "users.properties"
        self._command = [*COMMAND, "up", "--data-dir", str(self.data_dir)]
        self._command += [text for name, value in options for text in (name, str(value))]
        for name, value in (settings or {}).items():
            self._command += ["--override", f"{name}={value}"]
        self._command += ["--security", "PLAINTEXT" if self._security is None else self._security.protocol]
        if self._security is not None:
            self._security.directory = self.data_dir / "security"
            if self._security.has_sasl:
                self._command += ["--users-file", str(self._users_file)]
            if self._security.acls is not None:
                texts = [shlex.join(words[1:]) for words in acl_commands(self._security.acls)]
                self._command += [text for each in texts or [""] for text in ("--acl", each)]
                self._command += ["--secure"] if self._security.admins else []
        self._zk_servers = zk_servers
        self._up: subprocess.Popen[bytes] | None = None
        self._processes = ServerProcesses()
        self.bootstrap_servers = ""
        """``host:port,host:port`` of all brokers, those that are stopped included."""
        self.zookeeper_connect = ""
        """``host:port`` of the coordination server; of all in an ensemble."""
        self.pids = self._processes.pids
        """The process of each server: "zookeeper" (in an ensemble "zookeeper1" and
        so on), "0", "1" ..."""

    def client_properties(
        self, user: str | None = None, mechanism: str = "SCRAM-SHA-256", *, java: bool = False
    ) -> dict[str, str]:
        """Like `Cluster.client_properties`."""
        properties = {} if self._security is None else self._security.client_properties(user, mechanism, java=java)
        return {"bootstrap.servers": self.bootstrap_servers, **properties}

    def suggested_acls(self, *, fold_prefixes: bool = False) -> list[Acl]:
        """Like `Cluster.suggested_acls`, with what brokers were asked for that have ended."""
        if self._needed_acls is not None and self._fault_links is not None:
            for name in filter(is_broker, self.pids):
                if self._processes.runs(name):  # after its answer all that it sent before is noted
                    self._fault_links.set(name, {}, waits=name not in self._processes.paused)
        return suggestions(self._needed_acls, fold_prefixes=fold_prefixes)

    @staticmethod
    def usual_ports(brokers: int) -> tuple[int, int]:
        """``port`` and ``zk_port`` as the documentation has them, 9092 and 2181, or 0 and 0
        unless all of them are free."""
        wanted = (*range(_USUAL_PORT, _USUAL_PORT + brokers), _USUAL_ZK_PORT)
        return (_USUAL_PORT, _USUAL_ZK_PORT) if all(map(_is_free, wanted)) else (0, 0)

    # Life

    def start(self) -> Self:
        """Start everything; clients can work when this returns. Raises `BarnabasError`."""
        make_private_dirs(self.data_dir)
        if self._security is not None and self._security.has_sasl:
            make_private_dirs(self._users_file.parent)
            write_private(self._users_file, properties_text(self._security.users).encode())
        if self._has_faults or self._needed_acls is not None:
            self._fault_links = self._processes.fault_links = FaultLinks(self._needed_acls)
        output, errors = self.data_dir / "up.out", self.data_dir / "up.err"
        try:
            with output.open("wb") as out, errors.open("wb") as err:
                self._up = self._processes.spawn(self._command, out, err)
            up = self._up
            wait_until(lambda: up.poll() is not None or b"\n" in output.read_bytes(), "the cluster")
            ready = _READY.match(output.read_text(encoding="utf-8"))
            if ready is None:
                raise BarnabasError(
                    f"barnabas up ended: {output.read_text(encoding='utf-8')}{errors.read_text(encoding='utf-8')}".rstrip()
                )
        except BaseException:
            self.stop()
            raise
        self.bootstrap_servers, self.zookeeper_connect = ready["bootstrap"], ready["zookeeper"]
        pids = [each.partition(":") for each in ready["pids"].split(",")]
        self._processes.note({name: int(pid) for name, _, pid in pids})
        coordination = {n: zookeeper_name(n, self._zk_servers) for n in range(1, self._zk_servers + 1)}
        self._ports = _ports_of_servers(self.bootstrap_servers, self.zookeeper_connect, coordination, self.data_dir)
        return self

    def stop(self) -> None:
        """Stop everything, cleanly; a second call does nothing."""
        self._processes.stop_all(self._up)
        self._up = None
        if self._fault_links is not None:
            self._fault_links.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Faults, by the names that `Cluster` has

    def kill(self, server: int | str) -> None:
        """SIGKILL to a broker, by its id, or to a coordination server ("zookeeper",
        "zookeeper1" ...)."""
        self._processes.end(_server_of(self.pids, server), signal.SIGKILL)

    @contextlib.contextmanager
    def killing_coordinator(
        self, transactional_id: str, during: Outcome = "commit", *, restart: bool = False
    ) -> Iterator[CoordinatorKill]:
        """`kill` a producer's coordinator in the middle of a commit (or ``during="abort"``) in this
        block: see `Cluster.killing_coordinator`. It needs ``faults``."""
        links = _required(self._fault_links, is_wanted=self._has_faults)
        brokers = [name for name in self.pids if is_broker(name)]

        def strike(broker_id: int) -> bool:
            kill_later(broker_id)
            return True

        def armed() -> dict[str, bool]:
            return {name: name not in self._processes.paused for name in brokers if self._processes.runs(name)}

        kill = CoordinatorKill(transactional_id, during, strike)
        with killer(self, len(brokers), restart=restart) as kill_later, links.waiting(kill, armed):
            yield kill

    def pause(self, server: int | str) -> None:
        """SIGSTOP: it stands still. Its kernel keeps its connections and accepts new ones."""
        self._processes.pause(_server_of(self.pids, server))

    def resume(self, server: int | str) -> None:
        """SIGCONT: it continues."""
        self._processes.resume(_server_of(self.pids, server))

    def partition(self, *groups: Collection[int | str]) -> None:
        """Cut the network between groups of servers, as `Cluster.partition` does.

        `heal` ends it."""
        sides: dict[str, int] = {}
        for number, group in enumerate(groups):
            for server in group:
                name = _server_of(self.pids, server)
                if name in sides:
                    raise BarnabasError(f"{title_of(name)} is in two groups")
                sides[name] = number
        links = _required(self._fault_links, is_wanted=self._has_faults)
        for name in self.pids:
            others = [other for other in sides if name in sides and sides[other] != sides[name]]
            ports = {port for other in others for port in self._ports[other]}
            links.cut(name, ports, waits=name not in self._processes.paused, is_running=self._processes.runs(name))

    def slow_disk(self, server: int | str, delay_s: float) -> None:
        """Every call to the server's disk takes ``delay_s`` longer; 0 ends it."""
        self._set(server, delay_s=delay_s)

    def full_disk(self, server: int | str) -> None:
        """Whatever would change the server's disk fails, as with no space left
        (ENOSPC), until `heal`."""
        self._set(server, error=errno.ENOSPC)

    def fail_disk(self, server: int | str) -> None:
        """Every call to the server's disk fails (EIO), until `heal`.

        A broker gives the log dir up, as a real one does."""
        self._set(server, error=errno.EIO)

    def clock(self, server: int | str, shift_s: float) -> None:
        """The server's wall clock is wrong by this much; 0 ends it."""
        self._set(server, shift_ms=round(shift_s * 1000))

    def heal(self) -> None:
        """End all faults of servers that run: pauses, partitions, disks, clocks.

        What was killed stays so."""
        for name in tuple(self._processes.paused):
            self._processes.resume(name)
        if self._has_faults and self._fault_links is not None:
            self.partition()
            for name in self.pids:
                if self._processes.runs(name):
                    self._fault_links.set(name, {"delay_s": 0.0, "error": 0, "shift_ms": 0})

    def _set(self, server: int | str, **values: float) -> None:
        name = _server_of(self.pids, server)
        links = _required(self._fault_links, is_wanted=self._has_faults)
        if not self._processes.runs(name):
            raise BarnabasError(f"{title_of(name)} is not running")
        links.set(name, values, waits=name not in self._processes.paused)

    # One broker

    def stop_broker(self, broker_id: int) -> None:
        """SIGTERM: it hands its partitions over and ends.

        Its port and its data stay for `start_broker`."""
        self._processes.end(str(broker_id), signal.SIGTERM)

    def kill_broker(self, broker_id: int) -> None:
        """`kill` of a broker: it ends in the middle of whatever it does."""
        self.kill(broker_id)

    def pause_broker(self, broker_id: int) -> None:
        """`pause` of a broker."""
        self.pause(broker_id)

    def resume_broker(self, broker_id: int) -> None:
        """`resume` of a broker."""
        self.resume(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker again, at the same port.

        Returns when its process runs, which is before it serves."""
        command = ["server-start", str(self.properties_file(broker_id))]
        self._processes.start_again(str(broker_id), command, self.broker_log(broker_id))

    def is_running(self, broker_id: int) -> bool:
        """Whether the broker's process is there, paused or not."""
        return self._processes.runs(str(broker_id))

    # One coordination server; they are numbered from 1

    def stop_zookeeper(self, server_id: int = 1) -> None:
        """SIGTERM. Its port and its data stay for `start_zookeeper`."""
        self._processes.end(zookeeper_name(server_id, self._zk_servers), signal.SIGTERM)

    def kill_zookeeper(self, server_id: int = 1) -> None:
        """SIGKILL: it ends in the middle of whatever it does."""
        self._processes.end(zookeeper_name(server_id, self._zk_servers), signal.SIGKILL)

    def start_zookeeper(self, server_id: int = 1) -> None:
        """Start a stopped coordination server again.

        Returns when its process runs, which is before it serves."""
        name = zookeeper_name(server_id, self._zk_servers)
        config = self.data_dir / _coordination_config(name)
        self._processes.start_again(name, ["zookeeper-server-start", str(config)], self.zookeeper_log(server_id))

    def zookeeper_log(self, server_id: int = 1) -> Path:
        """What the coordination server says."""
        return self.data_dir / "logs" / f"{zookeeper_name(server_id, self._zk_servers)}.log"

    # Its files

    def log_dir(self, broker_id: int) -> Path:
        """Where the broker keeps its partitions."""
        return self.data_dir / f"kafka-logs{broker_id or ''}"

    def properties_file(self, broker_id: int) -> Path:
        """What the broker is started with."""
        return self.data_dir / f"server{broker_id or ''}.properties"

    def broker_log(self, broker_id: int) -> Path:
        """What the broker says."""
        return self.data_dir / "logs" / f"broker-{broker_id}.log"


def _required(links: FaultLinks | None, *, is_wanted: bool) -> FaultLinks:
    """The links through which servers get faults. Raises `BarnabasError` without ``faults``."""
    if links is None or not is_wanted:
        raise BarnabasError(
            "these servers are processes as users run them: start them with ProcessCluster(..., faults=True), or use "
            "barnabas.testing.Cluster or simulate, to give them faults of network, disk and clock"
        )
    return links


def _server_of(pids: Mapping[str, int], server: int | str) -> str:
    if str(server) not in pids:
        raise BarnabasError(f"there is no server {server!r}: they are {', '.join(pids)}")
    return str(server)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _ports_of_servers(
    bootstrap: str, zookeeper_connect: str, coordination: Mapping[int, str], directory: Path
) -> dict[str, frozenset[int]]:
    """The ports on which other servers reach each server.

    ``coordination`` has the names of the coordination servers."""
    ports = {str(number): frozenset((_port(address),)) for number, address in enumerate(bootstrap.split(","))}
    for number, address in enumerate(zookeeper_connect.split(","), 1):
        name = coordination[number]
        lines = read_properties((directory / _coordination_config(name)).read_text(encoding="utf-8"))
        members = [QuorumServer.parse(number, text) for key, text in lines.items() if key == f"server.{number}"]
        ports[name] = frozenset(
            (_port(address), *(port for each in members for port in (each.quorum_port, each.election_port)))
        )
    return ports


def _coordination_config(name: str) -> str:
    """The file of a coordination server as ``barnabas up`` names it."""
    return f"zoo{name.removeprefix('zookeeper')}.cfg"


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
