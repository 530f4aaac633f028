"""The four-letter words and the admin server beside those of ZooKeeper 3.9.4: the same
names for the same things."""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from barnabas.coordination.admin.commands import ADMIN_COMMANDS, CHANGING_COMMANDS
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
    """Ours may have more.

    What the same requests make of counters of bytes, nodes and changes is equal. A snapshot of each
    is restored by the other.
    """
    apache_http, our_http = free_ports(2)
    on = {"admin.enableServer": "true", "admin.rateLimiterIntervalInMS": "0"}
    with (
        coordination_server(
            tmp_path / "a", apache=True, release="3.9", **on, **{"admin.serverPort": apache_http}
        ) as apache,
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
            theirs = json.loads(get(apache_http, name))
            mine = json.loads(request(our_http, name, "", b"" if name in CHANGING_COMMANDS else None)[1])
            if name in ("monitor", "system_properties"):
                continue
            assert theirs.keys() - mine.keys() == set(), name
        for client in clients:
            client.close()
        check_snapshots_are_exchanged((apache.port, apache_http), (ours.port, our_http))


def check_snapshots_are_exchanged(*ports: tuple[int, int]) -> None:
    """Each server restores what the other one gives, and goes on from there.

    What proves nothing is refused alike."""
    for port, _ in ports:
        client = RawClient(port)
        client.call(OpCode.CREATE, CreateRequest(f"/of-{port}", b"x" * 1000, list(OPEN_ACL), 0))
        client.close()
    snapshots = [request(http, "snapshot", "digest a:b") for _, http in ports]
    assert [status for status, _ in snapshots] == [200, 200]
    for authorization in ("", "digest", "nonsense x", "x509"):
        refusals = [request(http, "snapshot", authorization)[0] for _, http in ports]
        assert refusals == [401, 401], authorization
    assert [request(http, "restore", "digest a:b", b"none")[0] for _, http in ports] == [500, 500]
    for (port, http), (other, _), (_, snapshot) in zip(ports, reversed(ports), reversed(snapshots), strict=True):
        status, body = request(http, "restore", "digest a:b", snapshot)
        restored = json.loads(body)
        assert (status, restored["error"]) == (200, None)
        client = RawClient(port)
        assert client.call(OpCode.EXISTS, ExistsRequest(f"/of-{other}", False))[1] == 0
        zxid, err, _ = client.call(OpCode.DELETE, DeleteRequest(f"/of-{other}", -1))
        assert (zxid, err) == (restored["last_zxid"] + 2, 0)
        client.close()


def request(port: int, name: str, authorization: str, data: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of a command's answer."""
    headers = {"Authorization": authorization, "Content-Type": "application/octet-stream"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/commands/{name}", data, headers)
    try:
        with urllib.request.urlopen(asked, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def get(port: int, name: str) -> str:
    return request(port, name, "")[1].decode()
