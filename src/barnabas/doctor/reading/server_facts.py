"""Reads what coordination servers show of themselves beyond `srvr`: by the words `mntr`, `conf`,
`cons` and `dump`, which a server answers where ``4lw.commands.whitelist`` has them, and by the
admin server (``admin.serverPort``, 8080).

An admin server that answers at a host's port may belong to another server there: it counts only
where its ``clientPort`` is that of the server.

In ZooKeeper: `MonitorCommand`, `ConfCommand`, `ConsCommand`, `DumpCommand`; `Commands`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.client.errors import ConnectError
from barnabas.client.network.http_page import HttpPage, read_http_page
from barnabas.client.network.server_status import ask_word
from barnabas.doctor.evidence.coordination import (
    EnsemblePart,
    ServerClientsPart,
    ServerFiguresPart,
    ServerLook,
    ServerSessionsPart,
    ServerSettingsPart,
    ServerSnapshotsPart,
    SnapshotView,
)
from barnabas.doctor.evidence.part import Absent, Gap, Why
from barnabas.doctor.reading.ensemble import SERVER_ANSWER_S
from barnabas.doctor.reading.registration import ClusterReading, UnreadError, reads

__all__ = [
    "admin_page",
    "read_server_clients",
    "read_server_figures",
    "read_server_sessions",
    "read_server_settings",
    "read_server_snapshots",
]

_ADMIN_PORT = 8080
_NUMBER = re.compile(r"-?[0-9]{1,19}(?:\.[0-9]{1,19})?(?:[eE]-?[0-9]{1,3})?")
_SESSION = re.compile(r"0x[0-9a-fA-F]{1,16}")
_CLIENT = re.compile(r"^\s*/?(\S{1,200}):[0-9]{1,5}\[", re.MULTILINE)
T = TypeVar("T")


def _word(reading: ClusterReading, server: ServerLook, word: str) -> str:
    """The answer to a word. Raises `UnreadError`, with the setting that allows it."""
    try:
        text = ask_word(_place(server.address), word.encode(), reading.deadline(SERVER_ANSWER_S))
    except (OSError, BarnabasError) as error:
        raise UnreadError(Why.UNREACHABLE, f"{server.address} does not answer {word}: {error}") from None
    if "is not executed because it is not in the whitelist" in text:
        reason = f"the servers do not answer {word}: add it to 4lw.commands.whitelist in zoo.cfg"
        raise UnreadError(Why.UNSUPPORTED, reason)
    if "not currently serving" in text:
        raise UnreadError(Why.UNREACHABLE, f"{server.address} serves no client")
    return text


def admin_page(reading: ClusterReading, server: ServerLook, command: str) -> tuple[dict[str, Any], HttpPage]:
    """The answer of the server's admin server to a command, and its page. Raises `UnreadError`."""
    host, port = _place(server.address)
    given = [each for each in reading.sources.admin_servers if each[0] == host]
    for address in given or [(host, _ADMIN_PORT)]:
        try:
            configuration, _ = _command(reading, address, "configuration")
            if configuration.get("client_port") == port:
                return _command(reading, address, command)
        except ConnectError:
            continue
    reason = (
        "none of --admin-servers is the admin server of a server: correct them, or set admin.enableServer=true"
        if given
        else f"the servers' admin servers are not at port {_ADMIN_PORT}: name them with --admin-servers, or set "
        "admin.enableServer=true"
    )
    raise UnreadError(Why.UNSUPPORTED, reason)


def _command(reading: ClusterReading, address: tuple[str, int], command: str) -> tuple[dict[str, Any], HttpPage]:
    page = read_http_page(
        address, f"/commands/{command}", reading.deadline(SERVER_ANSWER_S), what="state", accept="application/json"
    )
    try:
        found = json.loads(page.body)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("error"):
        raise ConnectError(f"{address[0]}:{address[1]} does not answer {command}")
    return found, page


def _of_each(reading: ClusterReading, ask: Callable[[ServerLook], T]) -> tuple[dict[str, T], tuple[Gap, ...]]:
    """What each server that serves answers, all asked at once.

    Raises `UnreadError` where none answers."""
    servers = [each for each in reading.require(EnsemblePart).servers if each.is_serving is not False]
    if not servers:
        raise UnreadError(Why.UNREACHABLE, "no coordination server serves clients")

    def attempt(server: ServerLook) -> T | Absent:
        try:
            return ask(server)
        except UnreadError as error:
            return error.absent

    with ThreadPoolExecutor(len(servers)) as pool:
        answers = dict(zip((each.address for each in servers), pool.map(attempt, servers), strict=True))
    found = {address: each for address, each in answers.items() if not isinstance(each, Absent)}
    gaps = [Gap(f"server {address}", each) for address, each in answers.items() if isinstance(each, Absent)]
    if not found:
        raise UnreadError(gaps[0].absent.why, gaps[0].absent.reason)
    return found, tuple(gaps)


@reads()
def read_server_figures(reading: ClusterReading) -> ServerFiguresPart:
    """The figures of `mntr`, or of the admin server's ``monitor``."""

    def ask(server: ServerLook) -> dict[str, float]:
        try:
            pairs = [line.split("\t", 1) for line in _word(reading, server, "mntr").splitlines() if "\t" in line]
            named: Mapping[str, Any] = {name.removeprefix("zk_"): value for name, value in pairs}
        except UnreadError as error:
            try:
                named, _ = admin_page(reading, server, "monitor")
            except UnreadError:
                raise error from None
        return {name: float(value) for name, value in named.items() if _NUMBER.fullmatch(str(value))}

    found, gaps = _of_each(reading, ask)
    return ServerFiguresPart(figures=found, gaps=gaps)


@reads()
def read_server_settings(reading: ClusterReading) -> ServerSettingsPart:
    """The properties of the admin server's ``initial_configuration``."""

    def ask(server: ServerLook) -> dict[str, str]:
        text = str(admin_page(reading, server, "initial_configuration")[0].get("initial_configuration", ""))
        pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
        return {name.strip(): value.strip() for name, _, value in pairs if value}

    found, gaps = _of_each(reading, ask)
    return ServerSettingsPart(settings=found, gaps=gaps)


@reads()
def read_server_snapshots(reading: ClusterReading) -> ServerSnapshotsPart:
    """The admin server's ``last_snapshot``."""

    def ask(server: ServerLook) -> SnapshotView:
        found, _ = admin_page(reading, server, "last_snapshot")
        try:
            zxid = str(found["zxid"])
            return SnapshotView(int(zxid.removeprefix("0x"), 16), float(found["timestamp"]))
        except (KeyError, TypeError, ValueError):
            raise UnreadError(Why.UNSUPPORTED, "the servers do not show their last snapshot") from None

    found, gaps = _of_each(reading, ask)
    return ServerSnapshotsPart(snapshots=found, gaps=gaps)


@reads()
def read_server_clients(reading: ClusterReading) -> ServerClientsPart:
    """The connections of `cons` by address, and ``maxClientCnxns`` of `conf`."""

    def ask(server: ServerLook) -> tuple[dict[str, int], int]:
        limit = re.search(r"^maxClientCnxns=(\d{1,9})$", _word(reading, server, "conf"), re.MULTILINE)
        return dict(Counter(_CLIENT.findall(_word(reading, server, "cons")))), int(limit[1]) if limit else 0

    found, gaps = _of_each(reading, ask)
    return ServerClientsPart(
        connections={address: each[0] for address, each in found.items()},
        limits={address: each[1] for address, each in found.items()},
        gaps=gaps,
    )


@reads()
def read_server_sessions(reading: ClusterReading) -> ServerSessionsPart:
    """The sessions that the leader, or the server alone, shows in `dump`."""
    for server in reading.require(EnsemblePart).servers:
        if server.mode in ("leader", "standalone"):
            sessions, _, _ = _word(reading, server, "dump").partition("ephemeral nodes dump:")
            return ServerSessionsPart(sessions=frozenset(int(each, 16) for each in _SESSION.findall(sessions)))
    raise UnreadError(Why.UNREACHABLE, "no coordination server says that it leads")


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
