"""The text of Prometheus: read as its own client reads it, and histograms between two pages."""

import contextlib
import math
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from barnabas.base.errors import CorruptDataError
from barnabas.client.errors import ConnectError
from barnabas.client.network.deadline import Deadline
from barnabas.client.network.metrics_page import read_metrics_page
from barnabas.net.prometheus import label, metric_lines
from barnabas.net.prometheus_text import Histogram, parse_metrics

INF = math.inf
label_values = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=8
)
values = st.one_of(st.floats(allow_nan=False, width=32), st.just(math.nan))
observations = st.lists(st.integers(0, 5000), max_size=30)


@given(st.lists(st.tuples(label_values, values), unique_by=lambda pair: pair[0], max_size=5))
def test_what_our_servers_write_is_read_as_prometheus_client_reads_it(samples: list[tuple[str, float]]) -> None:
    """Any text in a label, and any value, come back as they were."""
    lines = list(
        metric_lines("a_total", "counter", "Help", [(f"{{{label('x', text)}}}", value) for text, value in samples])
    )
    text = "\n".join([*lines, ""])
    page = parse_metrics(text)
    expected = {
        sample.labels["x"]: sample.value for family in text_string_to_metric_families(text) for sample in family.samples
    }
    found = page.by_label("a_total", "x")
    assert found.keys() == expected.keys() == {text for text, _ in samples}
    assert all(found[key] == expected[key] or math.isnan(found[key]) == math.isnan(expected[key]) for key in found)
    assert page.kinds == {"a_total": "counter"}


def test_a_page_of_another_exporter_is_read() -> None:
    """Comments, blanks, times behind values and a comma after the last label are allowed."""
    page = parse_metrics('# a comment\n\n\tup{ job = "x" , } 1 1700000000000\r\nb +Inf\nc NaN\nd{} 2\n')
    assert page.value("up", job="x") == 1
    assert page.value("b") == INF
    assert math.isnan(page.value("c") or 0)
    assert page.value("d") == 2
    assert page.value("d", job="x") is None
    assert page.value("e") is None


@pytest.mark.parametrize(
    "line",
    ["1a 1", "a", "a b", "a{x=1} 1", 'a{x="1} 1', 'a{x="1" y="2"} 1', "a 1 2 3", "a 1_000", "<html>", 'a{"b"} 1'],
)
def test_a_line_that_is_no_metric_is_named(line: str) -> None:
    """The error has its number and its text."""
    with pytest.raises(CorruptDataError, match="line 2 is not a metric"):
        parse_metrics(f"ok 1\n{line}\n")


@given(st.text())
def test_any_text_is_a_page_or_an_error(text: str) -> None:
    """There is no other exception."""
    with contextlib.suppress(CorruptDataError):
        parse_metrics(text)


def _histogram(observed: list[int]) -> Histogram:
    bounds = (*(float((1 << digits) - 1) for digits in range(10)), INF)
    edges = (-1.0, *bounds)
    counts = tuple(
        float(sum(low < each <= high for each in observed)) for low, high in zip(edges, bounds, strict=False)
    )
    return Histogram(bounds, counts, float(sum(observed)))


@given(observations, observations)
def test_what_came_between_two_pages_is_their_difference(first: list[int], second: list[int]) -> None:
    """Mean and count are exact, and each quantile is within the bucket of the exact one."""
    between = _histogram(first + second).since(_histogram(first))
    assert between == _histogram(second)
    if not second:
        assert between.mean is between.quantile(0.5) is None
        return
    assert between.mean == sum(second) / len(second)
    for share in (0.5, 0.99):
        exact = sorted(second)[math.ceil(share * len(second)) - 1]
        found = between.quantile(share)
        assert found is not None
        assert found <= exact * 2 + 1
        assert found >= min((exact - 1) // 2, 511)


def test_a_server_that_has_started_again_counts_from_zero() -> None:
    """Smaller counts than before are its own since the start."""
    assert _histogram([1]).since(_histogram([1, 2])) == _histogram([1])
    assert _histogram([1]).since(None) == _histogram([1])


def test_histograms_are_taken_from_buckets_by_a_label() -> None:
    """One without the last bucket, without a sum, or with falling counts is left out."""
    text = "\n".join(
        [
            'h_bucket{r="a",le="1.0"} 2', 'h_bucket{r="a",le="+Inf"} 3', 'h_sum{r="a"} 9',
            'h_bucket{r="b",le="1.0"} 2', 'h_sum{r="b"} 9',
            'h_bucket{r="c",le="1.0"} 2', 'h_bucket{r="c",le="+Inf"} 1', 'h_sum{r="c"} 9',
            'h_bucket{r="d",le="+Inf"} 1',
        ]
    )  # fmt: skip
    assert parse_metrics(text).histograms("h", "r") == {"a": Histogram((1.0, INF), (2.0, 1.0), 9.0)}


@pytest.fixture
def one_answer() -> Iterator[tuple[int, list[bytes]]]:
    """A port where one connection gets the bytes in the list."""
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            asked, _ = listening.accept()
            with asked:
                asked.recv(65536)
                asked.sendall(answers[0])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1], answers
        thread.join(10)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n0\r\n\r\n", None),
        (b"HTTP/1.0 200 OK\r\n\r\na 1\n", None),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na 1\n", "does not answer as a server of HTTP"),
        (b"\x00\x00\x00\x04abcd", "does not answer as a server of HTTP"),
        (b"", "does not answer as a server of HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff", "is no page of metrics"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "is no page of metrics: line 1"),
    ],
)
def test_a_page_comes_over_http_or_with_an_error(
    answer: bytes, error: str | None, one_answer: tuple[int, list[bytes]]
) -> None:
    """Whatever a server answers, there are metrics or one error that says what is wrong."""
    port, answers = one_answer
    answers.append(answer)
    if error is None:
        assert read_metrics_page(("127.0.0.1", port), Deadline(10)).value("a") == 1
    else:
        with pytest.raises(ConnectError, match=error):
            read_metrics_page(("127.0.0.1", port), Deadline(10))
