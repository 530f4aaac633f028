"""Asks a server for its metrics page, over HTTP, until a deadline.

Kafka has no counterpart: Prometheus is what asks.
"""

from barnabas.base.errors import CorruptDataError
from barnabas.client.errors import ConnectError
from barnabas.client.network.deadline import Deadline
from barnabas.client.network.http_page import read_http_page
from barnabas.net.prometheus_text import MetricsPage, parse_metrics

__all__ = ["read_metrics_page"]


def read_metrics_page(address: tuple[str, int], deadline: Deadline, path: str = "/metrics") -> MetricsPage:
    """What the server shows there.

    Raises `ConnectError` where no server answers, and for an answer that is no page of metrics."""
    page = read_http_page(address, path, deadline, what="metrics")
    try:
        return parse_metrics(page.body.decode())
    except (UnicodeDecodeError, CorruptDataError) as error:
        raise ConnectError(f"{address[0]}:{address[1]}{path} is no page of metrics: {error}") from None
