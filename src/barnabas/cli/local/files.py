"""The files and ports of the servers that ``barnabas up`` starts: how the files are written,
and which ports are free."""

import contextlib
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.base.private_files import write_private
from barnabas.base.settings import edited_properties, properties_text, read_properties
from barnabas.coordination.quorum.members import HostAndPort

__all__ = ["ServerFile", "check_ports", "free_ports", "is_free"]

_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class ServerFile:
    """A server's file of settings, and what it is to say."""

    path: Path
    texts: Mapping[str, str]

    def write(self) -> Path:
        """Write it for its owner alone, for it may hold passwords.

        What was edited by hand stays; so does a file that says the same.
        """
        try:
            before = self.path.read_bytes().decode("latin-1")
        except FileNotFoundError:
            before = ""
        held = read_properties(before)
        names = {**held, **self.texts}
        changes = {name: self.texts.get(name) for name in names if held.get(name) != self.texts.get(name)}
        if changes:
            text = edited_properties(before, changes) if before else properties_text(self.texts)
            write_private(self.path, text.encode("latin-1"))
        return self.path


# Ports


def free_ports(host: str, count: int) -> list[int]:
    """Ports of ``host`` that nothing listens on now.

    Raises `BarnabasError` for a host that is not this machine."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(_probe(host)) for _ in range(count)]
        for probe in probes:
            try:
                probe.bind((host, 0))
            except OSError as error:
                raise BarnabasError(
                    f"--host {host}: {error.strerror or error}; it must be an address or a name of this machine"
                ) from None
        return [probe.getsockname()[1] for probe in probes]


def is_free(address: HostAndPort) -> bool:
    """Whether a server could listen there now."""
    return 0 < address.port <= _MAX_PORT and _bind_error(address) is None


def check_ports(addresses: Iterable[HostAndPort]) -> None:
    """Raise `BarnabasError` for a port that cannot be used."""
    for address in addresses:
        host, port = address.host, address.port
        if not 0 < port <= _MAX_PORT:
            raise BarnabasError(
                f"port {port} cannot be used: ports are 1 to {_MAX_PORT}; see --port, --zk-port and --metrics-port"
            )
        if reason := _bind_error(address):
            raise BarnabasError(
                f"port {port} on {host} cannot be used ({reason}): choose others with --port, --zk-port and --metrics-port, or "
                "stop what listens there (barnabas status shows running clusters)"
            )


def _bind_error(address: HostAndPort) -> str | None:
    with _probe(address.host) as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def _probe(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
