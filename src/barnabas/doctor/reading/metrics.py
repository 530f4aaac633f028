"""Reads brokers' pages of metrics.

Kafka has no counterpart: Prometheus is what asks.
"""

from concurrent.futures import ThreadPoolExecutor

from barnabas.client.errors import ConnectError
from barnabas.client.network.metrics_page import read_metrics_page
from barnabas.doctor.evidence.metrics import BrokerMetricsPart
from barnabas.doctor.evidence.part import Absent, Gap, Why
from barnabas.doctor.reading.registration import ClusterReading, UnreadError, reads
from barnabas.net.prometheus_text import MetricsPage

__all__ = ["read_broker_metrics"]

_ANSWER_S = 2.0


@reads()
def read_broker_metrics(reading: ClusterReading) -> BrokerMetricsPart:
    """The pages of all addresses, asked at the same time."""
    addresses = list(reading.sources.metrics)
    if not addresses:
        raise UnreadError(Why.NOT_ASKED, "brokers' metrics are read where --metrics HOST:PORT names them")
    deadline = reading.deadline(_ANSWER_S)

    def ask(address: tuple[str, int]) -> MetricsPage | ConnectError:
        try:
            return read_metrics_page(address, deadline)
        except ConnectError as error:
            return error

    with ThreadPoolExecutor(len(addresses)) as pool:
        answers = dict(zip((f"{host}:{port}" for host, port in addresses), pool.map(ask, addresses), strict=True))
    pages = {name: each for name, each in answers.items() if not isinstance(each, ConnectError)}
    gaps = [
        Gap(f"metrics at {name}", Absent(Why.UNREACHABLE, str(each)))
        for name, each in answers.items()
        if isinstance(each, ConnectError)
    ]
    if not pages:
        raise UnreadError(Why.UNREACHABLE, gaps[0].absent.reason)
    return BrokerMetricsPart(pages=pages, gaps=tuple(gaps))
