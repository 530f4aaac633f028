"""OpenSearch as an output of flows, against the real server from Maven's jars."""

import datetime
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.needs import fetching, needs
from support.ports import free_ports

pa = pytest.importorskip("pyarrow")

from barnabas.pipelines.outputs.declared import OpenSearchSink, OutputError  # noqa: E402
from barnabas.pipelines.outputs.opensearch import OpenSearchIndex  # noqa: E402

pytestmark = [pytest.mark.interop, pytest.mark.java, needs("java", "mvn")]
_SERVER = Path(__file__).parents[1] / "support" / "opensearch"
_JARS = Path.home() / ".cache" / "reference" / "opensearch-2.19.1"
TYPES = {"id": "bigint", "at": "timestamp", "message": "string", "level": "string"}
AT = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of one node."""
    with fetching():
        if not (_JARS / "complete").exists():
            command = ["mvn", "-q", "-B", "-f", str(_SERVER / "pom.xml"), "dependency:copy-dependencies"]
            subprocess.run([*command, f"-DoutputDirectory={_JARS}"], check=True, timeout=280)
            (_JARS / "complete").touch()
    home = tmp_path_factory.mktemp("opensearch")
    (home / "config").mkdir()
    port, transport = free_ports(2)
    command = ["java", "-Xmx512m", "-cp", f"{_JARS}/*", str(_SERVER / "OpenSearchNode.java"), str(home), str(port)]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen([*command, str(transport)], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        assert any("started" in line for line in process.stdout), (home / "log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()


def rows(*messages: tuple[int, str]) -> Any:
    values = [{"id": number, "at": AT, "message": text, "level": "warn"} for number, text in messages]
    schema = pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("message", pa.string()), ("level", pa.string())]
    )
    return pa.Table.from_pylist(values, schema=schema)


def ask(url: str, index: str, query: dict[str, Any]) -> list[dict[str, Any]]:
    body = json.dumps({"query": query, "size": 100, "sort": ["id"]}).encode()
    request = urllib.request.Request(f"{url}/{index}/_search", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return [hit["_source"] for hit in json.load(response)["hits"]["hits"]]


def test_documents_are_found_at_once_and_replaced_by_key(url: str) -> None:
    """A batch that comes again changes nothing; words are found in texts, and times by ranges."""
    sink = OpenSearchSink(url, "events", ("message",), ("id",))
    index = OpenSearchIndex(sink, TYPES)
    index.apply(rows((1, "disk failure"), (2, "all is well")), "flow", "query", 0)
    index.apply(rows((1, "disk failure"), (2, "all is well")), "flow", "query", 0)
    index.apply(rows((2, "the disk is back")), "flow", "query", 1)
    found = ask(url, "events", {"match": {"message": "disk"}})
    assert [(each["id"], each["message"]) for each in found] == [(1, "disk failure"), (2, "the disk is back")]
    assert found[0]["at"] == "2013-01-01T05:00:00.000000Z"
    assert (
        len(ask(url, "events", {"range": {"at": {"gte": "2013-01-01T05:00:00Z", "lt": "2013-01-01T05:00:01Z"}}})) == 2
    )
    assert ask(url, "events", {"term": {"level": "warn"}}) == found
    OpenSearchIndex(sink, TYPES).apply(rows((3, "again")), "flow", "query", 2)
    assert len(ask(url, "events", {"match_all": {}})) == 3


def test_a_document_that_does_not_fit_the_index_is_an_error_with_the_reason(url: str) -> None:
    """As where another program made the index with other types."""
    mapping = {"mappings": {"properties": {"message": {"type": "date"}}}}
    request = urllib.request.Request(
        f"{url}/dates", json.dumps(mapping).encode(), {"Content-Type": "application/json"}, method="PUT"
    )
    urllib.request.urlopen(request, timeout=30).close()
    index = OpenSearchIndex(OpenSearchSink(url, "dates", ("message",), ("id",)), TYPES)
    with pytest.raises(OutputError, match=r"index dates: HTTP 400: failed to parse field \[message\] of type \[date\]"):
        index.apply(rows((1, "no date")), "flow", "query", 0)
