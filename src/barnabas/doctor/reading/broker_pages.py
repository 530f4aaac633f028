"""Reads what brokers show to Prometheus: requests that they refused, and their clocks.

A broker of Barnabas shows them where ``metrics.http.address`` is set. Apache's show such figures by
JMX only, which needs Java.

In Kafka: `RequestMetrics`, `KafkaMetricsGroup`.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from barnabas.base.network import ALL_ADDRESSES
from barnabas.client.errors import ClientError
from barnabas.client.network.metrics_page import read_metrics_page
from barnabas.doctor.evidence.clocks import ClockReading, ClocksPart
from barnabas.doctor.evidence.cluster import BrokersPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart
from barnabas.doctor.evidence.coordination import EnsemblePart, ServerLook
from barnabas.doctor.evidence.part import Absent, EvidencePart, Gap, Why
from barnabas.doctor.evidence.requests import UnservedRequest, UnservedRequestsPart
from barnabas.doctor.reading.registration import ClusterReading, UnreadError, reads
from barnabas.doctor.reading.server_facts import admin_page
from barnabas.net.prometheus_text import MetricsPage

__all__ = ["MetricsPagesPart", "read_clocks", "read_metrics_pages", "read_unserved_requests"]

_PAGE_S = 1.0
_UNSERVED = "barnabas_unserved_requests_total"
_HALF_SECOND_MS = 500
_CLOCK = "barnabas_wall_clock_seconds"


@dataclass(frozen=True, slots=True)
class _TimedPage:
    """A page, with this machine's time before it was asked for and after it was there, in ms."""

    page: MetricsPage
    before_ms: float
    after_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPagesPart(EvidencePart):
    """The pages of the brokers that show one, by their ids."""

    pages: dict[int, _TimedPage]


@reads(right="DescribeConfigs on the cluster")
def read_metrics_pages(reading: ClusterReading) -> MetricsPagesPart:
    """The pages at ``metrics.http.address`` of each broker."""
    configs = reading.require(BrokerConfigsPart)
    views = reading.require(BrokersPart).views
    places, gaps = {}, list(configs.gaps)
    for broker_id, entries in configs.entries.items():
        entry = entries.get("metrics.http.address")
        if entry is None or not entry.value:
            reason = (
                "Apache's brokers show requests and clocks by JMX only, which is not read"
                if entry is None
                else "the broker shows no metrics: metrics.http.address is not set"
            )
            gaps.append(Gap(f"broker {broker_id}", Absent(Why.UNSUPPORTED, reason)))
            continue
        host, _, port = entry.value.rpartition(":")
        if port.isdecimal() and int(port):
            place = views[broker_id].host if host.strip("[]") in ALL_ADDRESSES else host.strip("[]")
            places[broker_id] = (place, int(port))
        else:
            reason = "the port of metrics.http.address is not known"
            gaps.append(Gap(f"broker {broker_id}", Absent(Why.UNSUPPORTED, reason)))
    if not places:
        raise UnreadError(gaps[0].absent.why, gaps[0].absent.reason)
    deadline = reading.deadline(_PAGE_S)

    def ask(place: tuple[str, int]) -> _TimedPage | ClientError:
        before_ms = time.time() * 1000
        try:
            page = read_metrics_page(place, deadline)
        except ClientError as error:
            return error
        return _TimedPage(page, before_ms, time.time() * 1000)

    with ThreadPoolExecutor(len(places)) as pool:
        answers = dict(zip(places, pool.map(ask, places.values()), strict=True))
    pages = {}
    for broker_id, answer in answers.items():
        if isinstance(answer, ClientError):
            gaps.append(Gap(f"broker {broker_id}", Absent(Why.UNREACHABLE, str(answer))))
        else:
            pages[broker_id] = answer
    return MetricsPagesPart(pages=pages, gaps=tuple(gaps))


@reads()
def read_unserved_requests(reading: ClusterReading) -> UnservedRequestsPart:
    """The counters of requests that were refused for their version."""
    found = reading.require(MetricsPagesPart)
    counts: dict[int, dict[UnservedRequest, int]] = {}
    for broker_id, timed in found.pages.items():
        counts[broker_id] = {}
        for sample in timed.page.samples.get(_UNSERVED, ()):
            name, version = sample.label("request"), sample.label("version") or ""
            if name and version.isdecimal():
                counts[broker_id][UnservedRequest(name, int(version))] = round(sample.value)
    return UnservedRequestsPart(counts=counts, gaps=found.gaps)


@reads()
def read_clocks(reading: ClusterReading) -> ClocksPart:
    """The wall clocks of the brokers that show a page, and of the coordination servers whose admin
    server names the date, as Apache's does."""
    pages, ensemble = reading.get(MetricsPagesPart), reading.get(EnsemblePart)
    readings: list[ClockReading] = []
    gaps: list[Gap] = []
    if isinstance(pages, Absent):
        gaps.append(Gap("brokers", pages))
    else:
        readings, gaps = _broker_clocks(pages)
    for server in () if isinstance(ensemble, Absent) else ensemble.servers:
        try:
            readings.append(_server_clock(reading, server))
        except UnreadError as error:
            gaps.append(Gap(f"server {server.address}", error.absent))
    if not readings:
        raise UnreadError(gaps[0].absent.why, gaps[0].absent.reason)
    return ClocksPart(readings=tuple(readings), gaps=tuple(gaps))


def _broker_clocks(pages: MetricsPagesPart) -> tuple[list[ClockReading], list[Gap]]:
    readings: list[ClockReading] = []
    gaps = list(pages.gaps)
    for broker_id, timed in pages.pages.items():
        clock_s = timed.page.value(_CLOCK)
        if clock_s is None:
            gaps.append(Gap(f"broker {broker_id}", Absent(Why.UNSUPPORTED, "its page does not have its clock")))
            continue
        here_ms = (timed.before_ms + timed.after_ms) / 2
        readings.append(
            ClockReading(
                f"broker {broker_id}",
                round(clock_s * 1000 - here_ms),
                round((timed.after_ms - timed.before_ms) / 2) + 1,
                f"{_CLOCK} of its page of metrics",
            )
        )
    return readings, gaps


def _server_clock(reading: ClusterReading, server: ServerLook) -> ClockReading:
    """By whole seconds. Raises `UnreadError`."""
    before_ms = time.time() * 1000
    _, page = admin_page(reading, server, "is_read_only")
    after_ms = time.time() * 1000
    try:
        moment_ms = parsedate_to_datetime(page.date or "").timestamp() * 1000 + _HALF_SECOND_MS
    except ValueError:
        raise UnreadError(Why.UNSUPPORTED, "its admin server does not name the date") from None
    half_ms = (after_ms - before_ms) / 2
    return ClockReading(
        f"coordination server {server.address}",
        round(moment_ms - before_ms - half_ms),
        round(half_ms) + _HALF_SECOND_MS,
        "Date of its admin server",
    )
