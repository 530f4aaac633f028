"""OpenSearch as an output of flows, against the real server from Maven's jars: by
itself, and as a flow's sink."""

import datetime
import json
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.needs import fetching, needs
from support.ports import free_ports

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.base.ids import TopicPartition  # noqa: E402
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint  # noqa: E402
from barnabas.pipelines.flows import declare, fields, foreach_batch, topic  # noqa: E402
from barnabas.pipelines.outputs.declared import OpenSearchSink, OutputError  # noqa: E402
from barnabas.pipelines.outputs.opensearch import OpenSearchIndex  # noqa: E402
from barnabas.pipelines.outputs.table import DELETION_MARK  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from support.key_matrix import (  # noqa: E402
    KEY_TYPES,
    STEPS,
    TRIED_KEYS,
    KeyType,
    Place,
    as_native,
    of_document,
    run_cells,
    types_of,
)

pytestmark = [
    *(pytest.mark.spark, pytest.mark.interop, pytest.mark.java),
    *(pytest.mark.timeout(600), needs("java", "mvn")),
]
_SERVER = Path(__file__).parents[1] / "support" / "opensearch"
_JARS = Path.home() / ".cache" / "reference" / "opensearch-2.19.1"
TYPES = {"id": "bigint", "at": "timestamp", "message": "string", "level": "string"}
AT = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)


class Server:
    """A node of OpenSearch that can be killed and started again on its data."""

    def __init__(self, home: Path) -> None:
        self._home = home
        (home / "config").mkdir()
        self._ports = free_ports(2)
        self.url = f"http://127.0.0.1:{self._ports[0]}"
        self.start()

    def start(self) -> None:
        command = ["java", "-Xmx512m", "-cp", f"{_JARS}/*", str(_SERVER / "OpenSearchNode.java"), str(self._home)]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *map(str, self._ports)], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        assert any("started" in line for line in self._process.stdout), (self._home / "log").read_text()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of one node."""
    with fetching():
        if not (_JARS / "complete").exists():
            command = ["mvn", "-q", "-B", "-f", str(_SERVER / "pom.xml"), "dependency:copy-dependencies"]
            subprocess.run([*command, f"-DoutputDirectory={_JARS}"], check=True, timeout=280)
            (_JARS / "complete").touch()
    running = Server(tmp_path_factory.mktemp("opensearch"))
    yield running
    running.kill()


@pytest.fixture
def url(server: Server) -> str:
    return server.url


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
    marked = rows((1, ""), (9, ""), (4, "new")).append_column(DELETION_MARK, pa.array([True, True, False]))
    for _ in range(2):  # a document that is not there is deleted already
        index.apply(marked, "flow", "query", 3)
        assert [each["id"] for each in ask(url, "events", {"match_all": {}})] == [2, 3, 4]


@pytest.mark.parametrize("name", KEY_TYPES)
@pytest.mark.parametrize("key", TRIED_KEYS, ids="-".join)
def test_rows_of_equal_keys_are_one_document(url: str, name: str, key: tuple[str, ...]) -> None:
    """As in other outputs: tests/unit/test_pipeline_keys.py."""
    place = f"keys-{list(KEY_TYPES).index(name)}-{'-'.join(key)}"

    def read(key: tuple[str, ...]) -> list[tuple[Any, ...]]:
        with urllib.request.urlopen(f"{url}/{place}/_search?size=1000", timeout=30) as response:
            hits = [hit["_source"] for hit in json.load(response)["hits"]["hits"]]
        values = {"k": lambda each: of_document(each, KEY_TYPES[name]), "o": lambda each: each}
        return [(*(values[part](hit[part]) for part in key), hit["v"]) for hit in hits]

    def open_place(kind: KeyType, key: tuple[str, ...]) -> OpenSearchIndex:
        return OpenSearchIndex(OpenSearchSink(url, place, (), key), types_of(kind, key))

    steps = []
    for step, found, expected in run_cells(Place(open_place, read, as_native), KEY_TYPES[name], key):
        assert found == expected, step
        steps.append(step)
    assert tuple(steps) == STEPS


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


def delete(url: str, index: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{url}/{index}", method="DELETE"), timeout=30).close()


def test_a_flow_goes_on_when_its_server_is_killed_and_ends_when_its_index_is_deleted(
    spark: Any, cluster: Any, server: Server, tmp_path: Path
) -> None:
    """While it runs.

    An index that the server makes by itself then is refused at the next start, until
    the flow fills it again."""
    name = cluster.topic(1)
    happenings: dict[int, Callable[[], object]] = {}
    index = {"type": "opensearch", "url": server.url, "index": "logs", "text": ["message"], "key": ["id"]}
    flow = declare(
        name,
        checkpoint=str(tmp_path / "state"),
        source=topic(
            name,
            bootstrap_servers=cluster.bootstrap,
            max_offsets_per_trigger=10,
            format=fields("json", id="bigint", message="string"),
        ),
        sinks=[foreach_batch(lambda _, epoch: happenings.pop(epoch, lambda: None)()), index],
    )

    def produce(first: int, end: int) -> None:
        values = [{"id": n, "message": f"disk {n}"} for n in range(first, end)]
        cluster.produce(name, [(None, json.dumps(each).encode()) for each in values])

    def ids() -> list[int]:
        return [each["id"] for each in ask(server.url, "logs", {"match": {"message": "disk"}})]

    def kill_and_start() -> None:
        server.kill()
        starting.start()

    starting = threading.Thread(target=server.start)
    produce(0, 30)
    happenings[1] = kill_and_start
    run_on(spark, flow)
    starting.join()
    assert (ids(), happenings) == (list(range(30)), {})

    produce(30, 50)
    happenings[4] = lambda: delete(server.url, "logs")
    with pytest.raises(
        BarnabasError, match=r"index logs: it was deleted while the flow ran.*rewind FILE --to earliest"
    ):
        run_on(spark, flow)
    request = urllib.request.Request(f"{server.url}/logs/_doc/1", b"{}", {"Content-Type": "application/json"})
    # Makes the index, as a micro-batch would have.
    urllib.request.urlopen(request, timeout=30).close()
    for _ in range(2):
        with pytest.raises(BarnabasError, match="opensearch table logs holds nothing that this flow wrote"):
            run_on(spark, flow)
    delete(server.url, "logs")
    Checkpoint(flow).rewind([{TopicPartition(name, 0): 0}])
    run_on(spark, flow)
    assert ids() == list(range(50))
