"""Where top looks besides the brokers' own ports, and what a page of metrics is about.

Kafka has no counterpart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.net.prometheus_text import MetricsPage
from barnabas.top.values import FlowSeen

__all__ = ["Address", "PageAddress", "TopSources", "broker_of_page", "flow_of_page", "page_addresses"]

Address = tuple[str, int]
_FLOW_FIGURE = "barnabas_pipeline_"
_BROKER_FIGURES = ("kafka_server_", "kafka_network_")
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class PageAddress:
    """Where a server shows its metrics. ``broker_id`` says whose they are, None where that is found
    by the page and the host."""

    address: Address
    broker_id: int | None = None

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"


@dataclass(frozen=True, slots=True)
class TopSources:
    """The pages of metrics, the coordination servers, and the files of flows."""

    pages: Sequence[PageAddress] = ()
    coordination: Sequence[Address] = ()
    flows: Sequence[str] = ()


def page_addresses(text: str) -> list[PageAddress]:
    """``HOST:PORT`` or ``ID=HOST:PORT``, separated by commas. Raises `ConfigError`."""
    return [_page_address(item.strip()) for item in text.split(",") if item.strip()]


def _page_address(item: str) -> PageAddress:
    broker, equals, place = item.rpartition("=")
    host, _, port = place.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_address = host and port.isascii() and port.isdecimal() and 0 < int(port) <= _MAX_PORT
    if not is_address or (equals and not (broker.isascii() and broker.isdecimal())):
        raise ConfigError(
            f"--metrics {item}: HOST:PORT or ID=HOST:PORT is expected, such as localhost:7071 or 0=localhost:7071"
        )
    return PageAddress((host, int(port)), int(broker) if equals else None)


def broker_of_page(place: PageAddress, page: MetricsPage, hosts: Mapping[int, str]) -> int | None:
    """The broker whose metrics these are: the one that was named, else the only one on that host.

    ``hosts`` has those of the brokers. None for another server's page."""
    if not any(name.startswith(_BROKER_FIGURES) for name in page):
        return None
    if place.broker_id is not None:
        return place.broker_id
    candidates = [broker_id for broker_id, host in hosts.items() if host == place.address[0]]
    return candidates[0] if len(candidates) == 1 else None


def flow_of_page(place: PageAddress, page: MetricsPage) -> list[FlowSeen]:
    """The flows of which a dashboard shows figures."""
    names = {
        flow: None
        for name, samples in page.samples.items()
        if name.startswith(_FLOW_FIGURE)
        for sample in samples
        if (flow := sample.label("flow")) is not None
    }
    return [
        FlowSeen(
            flow,
            "seen",
            page.value(f"{_FLOW_FIGURE}rows", flow=flow),
            page.value(f"{_FLOW_FIGURE}bad_rows", flow=flow),
            page.value(f"{_FLOW_FIGURE}lag", flow=flow),
            page.value(f"{_FLOW_FIGURE}catch_up_seconds", flow=flow),
            str(place),
        )
        for flow in names
    ]
