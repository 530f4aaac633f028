"""OpenSearch's bulk protocol when the server is overloaded, away, or wants a password.

A small server plays these parts. The real server is in tests/spark/test_spark_opensearch.py.
"""

import base64
import threading
from collections.abc import Iterator

import pytest

from support.opensearch_stand_in import Server, running_stand_in

pa = pytest.importorskip("pyarrow")

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.pipelines.outputs.declared import OpenSearchSink, OutputError  # noqa: E402
from barnabas.pipelines.outputs.opensearch import OpenSearchIndex  # noqa: E402
from barnabas.pipelines.outputs.table import DELETION_MARK  # noqa: E402


@pytest.fixture
def server() -> Iterator[Server]:
    with running_stand_in() as running:
        yield running


def open_index(url: str, pauses: list[float]) -> OpenSearchIndex:
    return OpenSearchIndex(OpenSearchSink(url, "i", (), ("id",)), {"id": "bigint"}, wait=pauses.append)


def test_an_overloaded_server_gets_only_what_it_did_not_take(server: Server) -> None:
    """First it refuses the request, then one document of it."""
    pauses: list[float] = []
    server.troubles = [429, 503]
    server.refused_once = {"[2]"}
    open_index(server.url, pauses).apply(pa.table({"id": [1, 2, 3]}), "flow", "query", 0)
    assert server.documents == {"[1]": {"id": 1}, "[2]": {"id": 2}, "[3]": {"id": 3}}
    assert len(pauses) == 3


def test_a_server_that_stays_overloaded_is_an_error(server: Server) -> None:
    """The flow ends, and goes on from this batch when it is started again."""
    server.troubles = [429] * 100
    with pytest.raises(OutputError, match="1 documents were not taken: the server is overloaded"):
        open_index(server.url, []).apply(pa.table({"id": [1]}), "flow", "query", 0)


def test_a_refusal_is_final_and_gives_the_reason(server: Server) -> None:
    """No second attempt changes a 403."""
    pauses: list[float] = []
    server.troubles = [403]
    with pytest.raises(OutputError, match="HTTP 403: not now"):
        open_index(server.url, pauses).apply(pa.table({"id": [1]}), "flow", "query", 0)
    assert pauses == []


def test_user_and_password_of_the_url_go_into_a_header_and_not_into_messages(server: Server) -> None:
    """Basic authentication, with characters that the URL escapes."""
    open_index(server.url, []).apply(pa.table({"id": [1]}), "flow", "query", 0)
    assert server.authorizations == {"Basic " + base64.b64encode(b"user:p@ss").decode()}
    server.troubles = [400]
    with pytest.raises(OutputError) as raised:
        open_index(server.url, []).apply(pa.table({"id": [1]}), "flow", "query", 0)
    assert "p%40ss" not in str(raised.value)


def test_a_redirect_to_another_server_is_an_error_and_gets_no_password(server: Server) -> None:
    """Nor does the redirect count as an index that is there."""
    other = Server()
    thread = threading.Thread(target=other.serve_forever)
    thread.start()
    try:
        server.redirects_to = f"http://127.0.0.1:{other.server_address[1]}/i"
        with pytest.raises(OutputError, match=f"HTTP 302: it redirects to {server.redirects_to}"):
            open_index(server.url, [])
    finally:
        other.shutdown()
        thread.join()
        other.server_close()
    assert other.authorizations == set()


def test_a_server_that_is_away_is_an_error_that_names_it() -> None:
    """After some attempts."""
    pauses: list[float] = []
    with pytest.raises(OutputError, match=r"at http://127.0.0.1:1: Connection refused. Is the address"):
        open_index("http://127.0.0.1:1", pauses)
    assert 15 < sum(pauses) < 25
    assert max(pauses) == 5


def test_an_index_that_is_not_the_one_that_a_flow_filled_ends_it(server: Server) -> None:
    """A server makes what is missing when documents come: another index of the name,
    without the note of the flow."""
    server.meta = {"mine": 1}
    index = open_index(server.url, [])
    assert index.last_epoch("flow", "query") == -1
    index.apply(pa.table({"id": [1]}), "flow", "query", 0)
    index.apply(pa.table({"id": [2]}), "other", "theirs", 0)
    assert server.meta == {"mine": 1, "barnabas": {"flow": "query", "other": "theirs"}}
    assert index.last_epoch("flow", "query") is None
    server.uuid, server.meta = "second", {}
    with pytest.raises(OutputError, match=r"index i: it was deleted while.*rewind FILE --to earliest --yes"):
        index.apply(pa.table({"id": [3]}), "flow", "query", 1)
    assert open_index(server.url, []).last_epoch("flow", "query") == -1
    assert "[3]" not in server.documents


def test_a_time_that_python_cannot_hold_is_an_error_that_names_its_column(server: Server) -> None:
    """Spark's times end later than those of outputs."""
    index = OpenSearchIndex(OpenSearchSink(server.url, "i", (), ("id",)), {"id": "bigint", "at": "timestamp"})
    at = pa.array([10**18], pa.int64()).cast(pa.timestamp("us", "UTC"))
    with pytest.raises(BarnabasError, match="column at has a time beyond the years 1 to 9999"):
        index.apply(pa.table({"id": [1], "at": at}), "flow", "query", 0)
    assert index.apply(
        pa.table({"id": [1], "m": pa.array([[("a", 2)]], pa.map_(pa.string(), pa.int64()))}), "f", "q", 0
    )
    assert server.documents["[1]"]["m"] == {"a": 2}


def test_documents_of_rows_that_are_marked_are_deleted(server: Server) -> None:
    """One that is not there is deleted already: the batch came before."""
    index = open_index(server.url, [])
    index.apply(pa.table({"id": [1, 2]}), "flow", "query", 0)
    batch = pa.table({"id": [1, 3, 4], DELETION_MARK: [True, True, False]})
    for _ in range(2):
        index.apply(batch, "flow", "query", 1)
        assert server.documents == {"[2]": {"id": 2}, "[4]": {"id": 4}}
