"""SolrCloud on an ensemble of ours: each of a shard's three replicas has each acknowledged
document, through kills of its leader and of the ensemble's leader."""

import contextlib
import io
import json
import re
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from support.ensemble import HOST, serving_ensemble
from support.maven import QUICK, compiled, jars
from support.needs import ROOT, needs
from support.ports import free_ports
from support.restartable import Restartable, restartable
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs("java", "javac", "mvn"), pytest.mark.timeout(600)]

PROGRAM = ROOT / "tests" / "other_languages" / "java" / "solr"
LIMIT_S = 90
SOLR_XML = """<solr>
  <solrcloud>
    <str name="host">127.0.0.1</str>
    <int name="hostPort">${hostPort:0}</int>
    <str name="hostContext">solr</str>
    <int name="zkClientTimeout">6000</int>
  </solrcloud>
</solr>
"""
CONFIG = {
    "solrconfig.xml": """<config>
  <luceneMatchVersion>9.12</luceneMatchVersion>
  <updateHandler class="solr.DirectUpdateHandler2"><updateLog/></updateHandler>
  <requestHandler name="/select" class="solr.SearchHandler"/>
</config>
""",
    "managed-schema.xml": """<schema name="numbers" version="1.6">
  <fieldType name="string" class="solr.StrField" docValues="true"/>
  <fieldType name="long" class="solr.LongPointField" docValues="true"/>
  <field name="id" type="string" indexed="true" stored="true" required="true"/>
  <field name="_version_" type="long" indexed="false" stored="false"/>
  <uniqueKey>id</uniqueKey>
</schema>
""",
}


class Node:
    """A node of SolrCloud, asked over HTTP."""

    def __init__(self, program: Restartable, port: int) -> None:
        self.program = program
        self.name = f"{HOST}:{port}_solr"
        self.url = f"http://{HOST}:{port}/solr"

    def ask(self, path: str, body: bytes | None = None, kind: str = "application/json", **query: object) -> Any:
        """The answer; None while it is not done."""
        address = f"{self.url}/{path}?{urllib.parse.urlencode({'wt': 'json', **query})}"
        request = urllib.request.Request(address, body, {"Content-Type": kind})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except OSError:
            return None

    def add(self, numbers: range) -> None:
        """Documents of these numbers, until they are acknowledged.

        One that is sent again replaces itself."""
        documents = json.dumps([{"id": str(number)} for number in numbers]).encode()
        eventually(lambda: self.ask("numbers/update", documents), timeout_s=LIMIT_S, what=f"{numbers} are added")


class Collection:
    """Three replicas of one shard, as the ensemble has their state."""

    def __init__(self, client: KazooClient, nodes: dict[str, Node]) -> None:
        self._client = client
        self._nodes = nodes

    def replicas(self) -> list[dict[str, str]]:
        """Those of running nodes, with their state."""
        state = json.loads(self._client.get("/collections/numbers/state.json")[0])
        (shard,) = state["numbers"]["shards"].values()
        live = set(self._client.get_children("/live_nodes"))
        found = [each for each in shard["replicas"].values() if each["node_name"] in live]
        changes = self._client.get_children("/collections/numbers/state.json")  # one node for a change of state
        latest = {
            name.split(":")[0]: name.split(":") for name in sorted(changes, key=lambda name: int(name.split(":")[1]))
        }
        names = {id(each): key for key, each in shard["replicas"].items()}
        for each in found:
            change = latest.get(names[id(each)])
            if change is not None:
                each["state"] = {"A": "active", "D": "down", "R": "recovering", "F": "recovery_failed"}[change[2]]
                each["leader"] = "true" if change[3:] == ["L"] else "false"
        return found

    def leader(self) -> Node | None:
        """The node whose replica leads, if it is active, and alone."""
        leaders = [each for each in self.replicas() if each.get("leader") == "true" and each["state"] == "active"]
        return self._nodes[leaders[0]["node_name"]] if len(leaders) == 1 else None

    def until_active(self, count: int) -> Node:
        """Wait until so many replicas are active, one of them as leader; its node."""

        def active() -> Node | None:
            states = [each["state"] for each in self.replicas()]
            return self.leader() if states == ["active"] * count else None

        return eventually(active, timeout_s=LIMIT_S, what=f"{count} active replicas with a leader")

    def counts(self) -> list[int]:
        """How many documents each replica of a running node has."""
        found = []
        for each in self.replicas():
            node = self._nodes[each["node_name"]]
            node.ask(f"{each['core']}/update", b"{}", commit="true", distrib="false")
            answer = node.ask(f"{each['core']}/select", q="*:*", rows=0, distrib="false")
            found.append(answer["response"]["numFound"] if answer else -1)
        return found


@contextlib.contextmanager
def running(directory: Path, addresses: str, count: int = 3) -> Iterator[dict[str, Node]]:
    """Nodes by name."""
    folder = jars("solr-9.10.1", PROGRAM)
    java: list[object] = ["java", *QUICK, "-Xmx256M", f"-DzkHost={addresses}", "-Dsolr.log.muteconsole=true"]
    java += ["-cp", compiled(PROGRAM / "Node.java", folder, directory), "Node"]
    with contextlib.ExitStack() as stack:
        nodes = {}
        for port in free_ports(count):
            home = directory / f"node-{port}"
            home.mkdir()
            (home / "solr.xml").write_text(SOLR_XML)
            node = Node(stack.enter_context(restartable([*java, home, port], home)), port)
            nodes[node.name] = node
        yield nodes


def zipped(files: dict[str, str]) -> bytes:
    """A configset as it is uploaded."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()


def overseer(client: KazooClient) -> str:
    """The name of the node that carries out changes of the cluster."""
    found = re.search(r'"id":"\d+-(.+_solr)-n_', client.get("/overseer_elect/leader")[0].decode())
    assert found is not None
    return found[1]


def test_each_replica_has_each_document_after_kills_of_three_leaders(tmp_path: Path) -> None:
    """Documents are added while the ensemble's leader dies; then the leader of the shard dies with
    the ensemble's, and comes back with what it missed."""
    with (
        serving_ensemble(tmp_path) as members,
        running(tmp_path, members.addresses) as nodes,
        members.client() as client,
    ):
        any_node = next(iter(nodes.values()))
        eventually(
            lambda: (
                any_node.ask("admin/collections", action="CLUSTERSTATUS")
                and len(client.get_children("/live_nodes")) == len(nodes)
            ),
            timeout_s=LIMIT_S,
            what="all nodes live",
        )
        assert any_node.ask(
            "admin/configs", zipped(CONFIG), "application/octet-stream", action="UPLOAD", name="numbers"
        )
        wanted = {"name": "numbers", "collection.configName": "numbers", "numShards": 1, "replicationFactor": 3}
        assert any_node.ask("admin/collections", action="CREATE", **wanted)
        collection = Collection(client, nodes)
        first = collection.until_active(3)
        first.add(range(100))
        dead = members.kill_leader()
        first.add(range(100, 200))
        dead.start()
        assert collection.until_active(3) is first

        first.program.kill()
        members.kill_leader()
        second = collection.until_active(2)
        assert second is not first
        second.add(range(200, 300))
        first.program.start()
        assert collection.until_active(3) is second
        second.add(range(300, 400))
        eventually(lambda: collection.counts() == [400] * 3, timeout_s=LIMIT_S, what="each document in each replica")
        assert nodes[overseer(client)].program.process is not None
