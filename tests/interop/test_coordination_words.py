"""The four-letter words and the admin server beside Apache's: the same names for the same things."""

import json
import re
import urllib.request
from pathlib import Path

import pytest

from barnabas.coordination.admin.commands import ADMIN_COMMANDS
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import (
    OPEN_ACL,
    CreateRequest,
    DeleteRequest,
    ExistsRequest,
    GetChildrenRequest,
    GetDataRequest,
    SetDataRequest,
)
from support.coordination import RawClient, coordination_server, four_letter_word
from support.needs import needs_reference
from support.ports import free_ports

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

WORDS = [
    "conf",
    "cons",
    "dirs",
    "dump",
    "envi",
    "gtmk",
    "hash",
    "isro",
    "mntr",
    "ruok",
    "srvr",
    "stat",
    "wchc",
    "wchp",
    "wchs",
    "srst",
    "crst",
]
EQUAL = {
    "znode_count",
    "watch_count",
    "ephemerals_count",
    "approximate_data_size",
    "global_sessions",
    "bytes_received_count",
    "response_bytes",
    "watch_bytes",
    "connection_request_count",
    "commit_count",
    "proposal_count",
    "outstanding_changes_removed",
    "cnt_readlatency",
    "cnt_updatelatency",
    "cnt_propagation_latency",
    "sum_node_created_watch_count",
    "packets_received",
    "sum_node_changed_watch_count",
    "sum_node_children_watch_count",
}


def names(word: str, text: str) -> set[str]:
    """The names in an answer, without values."""
    text = re.sub(r"\{[^}]*\}", "", text)
    if word == "mntr":
        return {line.split("\t")[0] for line in text.splitlines()}
    if word in ("conf", "envi"):
        return {line.split("=")[0] for line in text.splitlines()}
    if word == "cons":
        return {name for line in text.splitlines() if "sid=" in line for name in re.findall(r"(\w+)=", line)}
    return set(re.findall(r"^[A-Za-z_ /]+(?=[:=(\[])", text, re.MULTILINE))


def figures(port: int) -> dict[str, float]:
    """The lines of mntr that depend on the requests alone."""
    lines = (line.split("\t") for line in four_letter_word(port, b"mntr").decode().splitlines())
    return {name: float(value) for name, value in lines if name[3:] in EQUAL or name.endswith("_per_namespace")}


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """By how much: waiting for a server to start is counted, too."""
    return {name: value - before.get(name, 0) for name, value in after.items()}


def use(port: int) -> RawClient:
    """The same requests to each server: enough for hash to have a line."""
    client = RawClient(port)
    client.call(OpCode.CREATE, CreateRequest("/e", b"x", list(OPEN_ACL), 1))
    for number in range(140):
        client.call(OpCode.CREATE, CreateRequest(f"/n{number}", b"x", list(OPEN_ACL), 0))
    for path in ("/gone", "/n1", "/e"):
        client.call(OpCode.EXISTS, ExistsRequest(path, True))
        client.call(OpCode.GET_DATA, GetDataRequest(path, True))
        client.call(OpCode.GET_CHILDREN, GetChildrenRequest(path, True))
    client.call(OpCode.CREATE, CreateRequest("/gone", b"here", list(OPEN_ACL), 0))
    client.call(OpCode.SET_DATA, SetDataRequest("/n1", b"more", -1))
    client.call(OpCode.CREATE, CreateRequest("/n1/below", None, list(OPEN_ACL), 0))
    client.call(OpCode.MULTI, [(OpCode.DELETE, DeleteRequest("/e", -1)), (OpCode.DELETE, DeleteRequest("/n2", -1))])
    client.call(OpCode.MULTI, [(OpCode.DELETE, DeleteRequest("/n3", -1)), (OpCode.DELETE, DeleteRequest("/n2", -1))])
    other = RawClient(port)
    other.call(OpCode.CREATE, CreateRequest("/other", b"", list(OPEN_ACL), 1))
    other.call(OpCode.CLOSE_SESSION)
    other.close()
    client.call(OpCode.EXISTS, ExistsRequest("/watched", True))
    return client


def test_each_word_and_command_has_apaches_names(tmp_path: Path) -> None:
    """Ours may have more. What the same requests make of counters of bytes, nodes and changes is equal."""
    apache_http, our_http = free_ports(2)
    on = {"admin.enableServer": "true"}
    with (
        coordination_server(tmp_path / "a", apache=True, **on, **{"admin.serverPort": apache_http}) as apache,
        coordination_server(tmp_path / "o", **on, **{"admin.serverPort": our_http}) as ours,
    ):
        before = [figures(server.port) for server in (apache, ours)]
        clients = [use(server.port) for server in (apache, ours)]
        theirs, mine = (grown(old, figures(server.port)) for old, server in zip(before, (apache, ours), strict=True))
        assert mine == theirs
        for word in WORDS:
            theirs, mine = (four_letter_word(server.port, word.encode()).decode() for server in (apache, ours))
            missing = names(word, theirs) - names(word, mine)
            if word == "dump":
                missing -= {"Connections Sets "}
            assert not missing, (word, mine)
        hashes = [four_letter_word(server.port, b"hash").decode() for server in (apache, ours)]
        assert [re.match(r"80: -?\d+\n", text) is not None for text in hashes] == [True, True]
        for name in ADMIN_COMMANDS:
            theirs, mine = (json.loads(get(port, name)) for port in (apache_http, our_http))
            if name in ("monitor", "system_properties"):
                continue
            assert theirs.keys() - mine.keys() == set(), name
        for client in clients:
            client.close()


def get(port: int, name: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/commands/{name}", timeout=30) as response:
        return response.read().decode()
