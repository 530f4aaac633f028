"""Kafka's metrics of producers and consumers, from librdkafka's statistics.

librdkafka reports them as JSON every ``statistics.interval.ms``, to a callback that a poll, a flush
or a read calls. One `Producer` may have several producers of librdkafka, whose figures are added.
A report costs time for each broker and each partition that the client knows: see the reference.

In Kafka: `Metrics` and `MetricName`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.errors import ConfigurationError
from barnabas.client.librdkafka.metric_names import (
    CONSUMER_METRICS,
    PRODUCER_METRICS,
    ClientMetric,
    consumer_metric,
    producer_metric,
)

if TYPE_CHECKING:
    from barnabas.net.metrics_thread import MetricsThread

__all__ = ["ClientStatistics", "MetricName"]

_INTERVAL = "statistics.interval.ms"
_USUAL_MS = 5000
_UP = "UP"
_TOTALS = (
    *("tx", "tx_bytes", "rx_bytes", "txmsgs", "txmsg_bytes", "rxmsgs", "rxmsg_bytes", "msg_size", "msg_size_max"),
)


class MetricName(NamedTuple):
    """Which figure it is, as in Kafka's ``metrics()``."""

    name: str
    """Such as records-lag-max."""
    group: str
    """Such as consumer-fetch-manager-metrics."""
    tags: tuple[tuple[str, str], ...]
    """client-id, and for some topic and partition."""


class ClientStatistics:
    """The last reports of one client, as Kafka's metrics. For reading in any thread."""

    def __init__(self, kind: str, settings: dict[str, Any]) -> None:
        """``kind`` is producer or consumer.

        In the ``settings`` of librdkafka it takes the place of a ``stats_cb``, which it calls."""
        self._kind = kind
        self._also: Callable[[str], object] | None = settings.pop("stats_cb", None)
        self._is_on = str(settings.get(_INTERVAL, "0")) != "0"
        self._page: MetricsThread | None = None
        if self._is_on:
            settings["stats_cb"] = self
        self._last: dict[str, dict[str, Any]] = {}
        self._before: dict[str, dict[str, Any]] = {}
        """The reports by librdkafka's name of the client, and those before them."""

    def __call__(self, text: str) -> None:
        """librdkafka's statistics callback."""
        report = json.loads(text)
        name = str(report["name"])
        if name in self._last:
            self._before = {**self._before, name: self._last[name]}
        self._last = {**self._last, name: report}
        if self._also is not None:
            self._also(text)

    def serve(self, address: tuple[str, int] | None) -> int | None:
        """Open the metrics page, if there is an address; returns its port.

        Raises `BarnabasError`."""
        if address is None:
            return None
        from barnabas.net.metrics_thread import MetricsThread

        self._page = MetricsThread(self.lines, *address)
        return self._page.port

    def close(self) -> None:
        """Close the page."""
        page, self._page = self._page, None
        if page is not None:
            page.close()

    def metrics(self) -> dict[MetricName, float]:
        """The figures; none before the first report.

        Raises `ConfigurationError` where the client was made without reports."""
        if not self._is_on:
            raise ConfigurationError(f"{_INTERVAL} is 0: nothing is measured", remedy=f"set it, such as to {_USUAL_MS}")
        found = {}
        for metric, tags, value in self._values():
            client_id, *others = tags
            named = (("client-id", client_id), *zip(metric.tags, others, strict=True))
            found[MetricName(metric.name, metric.group, named)] = value
        return found

    def lines(self) -> list[str]:
        """The same for Prometheus."""
        from barnabas.net.prometheus import labels_of, lines_of  # it brings asyncio, which few programs need

        samples: dict[ClientMetric, list[tuple[str, float]]] = {}
        for metric, tags, value in self._values():
            samples.setdefault(metric, []).append((labels_of(metric.metric, *tags), value))
        known = PRODUCER_METRICS if self._kind == "producer" else CONSUMER_METRICS
        return [line for metric in known if metric in samples for line in lines_of(metric.metric, samples[metric])]

    def _values(self) -> list[tuple[ClientMetric, tuple[str, ...], float]]:
        reports, before = list(self._last.values()), self._before
        if not reports:
            return []
        client_id = str(reports[0]["client_id"])
        earlier = [before[name] for name in self._last if name in before]
        if self._kind == "producer":
            return [(metric, (client_id, *tags), value) for metric, tags, value in _of_producer(reports, earlier)]
        return [(metric, (client_id, *tags), value) for metric, tags, value in _of_consumer(reports[0], earlier)]


_Value = tuple[ClientMetric, tuple[str, ...], float]


def _of_producer(reports: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> Iterable[_Value]:
    totals, brokers = _totals(reports), _brokers(reports)
    topics = [topic for report in reports for topic in report.get("topics", {}).values()]
    for name, value in _of_connections(totals, brokers, reports, earlier).items():
        yield producer_metric(name), (), value
    yield producer_metric("record-send-total"), (), totals["txmsgs"]
    if earlier:
        yield producer_metric("record-send-rate"), (), _rate(reports, earlier, "txmsgs")
    if totals["txmsgs"]:
        yield producer_metric("record-size-avg"), (), totals["txmsg_bytes"] / totals["txmsgs"]
    yield from _windows(
        [
            (producer_metric("record-queue-time-avg"), "avg", brokers, "int_latency", 1000),
            (producer_metric("record-queue-time-max"), "max", brokers, "int_latency", 1000),
            (producer_metric("produce-throttle-time-avg"), "avg", brokers, "throttle", 1),
            (producer_metric("batch-size-avg"), "avg", topics, "batchsize", 1),
            (producer_metric("records-per-request-avg"), "avg", topics, "batchcnt", 1),
        ]
    )
    yield producer_metric("buffer-available-bytes"), (), max(0.0, totals["msg_size_max"] - totals["msg_size"])
    by_topic: dict[str, list[Mapping[str, Any]]] = {}
    for topic in topics:
        by_topic.setdefault(str(topic["topic"]), []).extend(topic.get("partitions", {}).values())
    for name, partitions in by_topic.items():
        yield producer_metric("record-send-total", "topic"), (name,), _sum(partitions, "txmsgs")
        yield producer_metric("byte-total", "topic"), (name,), _sum(partitions, "txbytes")


def _of_consumer(report: dict[str, Any], earlier: list[dict[str, Any]]) -> Iterable[_Value]:
    totals, brokers = _totals([report]), _brokers([report])
    for name, value in _of_connections(totals, brokers, [report], earlier).items():
        yield consumer_metric(name), (), value
    yield consumer_metric("records-consumed-total"), (), totals["rxmsgs"]
    yield consumer_metric("bytes-consumed-total"), (), totals["rxmsg_bytes"]
    if earlier:
        yield consumer_metric("records-consumed-rate"), (), _rate([report], earlier, "rxmsgs")
        yield consumer_metric("bytes-consumed-rate"), (), _rate([report], earlier, "rxmsg_bytes")
    yield consumer_metric("fetch-total"), (), sum(float(each.get("req", {}).get("Fetch", 0)) for each in brokers)
    lags = {
        (str(topic["topic"]), str(number)): float(partition["consumer_lag"])
        for topic in report.get("topics", {}).values()
        for number, partition in topic.get("partitions", {}).items()
        if int(number) >= 0 and partition.get("consumer_lag", -1) >= 0  # -1 is not known
    }
    if lags:
        yield consumer_metric("records-lag-max"), (), max(lags.values())
    for place, lag in lags.items():
        yield consumer_metric("records-lag", "topic", "partition"), place, lag
    if group := report.get("cgrp"):
        yield consumer_metric("assigned-partitions"), (), float(group["assignment_size"])
        yield consumer_metric("rebalance-total"), (), float(group["rebalance_cnt"])
        yield consumer_metric("last-rebalance-seconds-ago"), (), group["rebalance_age"] / 1000


def _of_connections(
    totals: Mapping[str, float],
    brokers: list[Mapping[str, Any]],
    reports: list[dict[str, Any]],
    earlier: list[dict[str, Any]],
) -> dict[str, float]:
    """What both kinds of clients have, by its name."""
    found = {
        "request-total": totals["tx"],
        "requests-in-flight": _sum(brokers, "waitresp_cnt"),
        "outgoing-byte-total": totals["tx_bytes"],
        "incoming-byte-total": totals["rx_bytes"],
        "connection-count": float(sum(each.get("state") == _UP for each in brokers)),
    }
    if earlier:
        found["request-rate"] = _rate(reports, earlier, "tx")
    average, longest = _window(brokers, "rtt")
    if average is not None:
        found["request-latency-avg"], found["request-latency-max"] = average / 1000, longest / 1000
    return found


def _totals(reports: list[dict[str, Any]]) -> dict[str, float]:
    return {name: _sum(reports, name) for name in _TOTALS}


def _brokers(reports: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    return [broker for report in reports for broker in report.get("brokers", {}).values()]


def _sum(parts: Iterable[Mapping[str, Any]], name: str) -> float:
    return float(sum(part.get(name, 0) for part in parts))


def _rate(reports: list[dict[str, Any]], earlier: list[dict[str, Any]], name: str) -> float:
    """How much was added a second, between the last two reports of each."""
    then = {each["name"]: each for each in earlier}
    rate = 0.0
    for report in reports:
        if (before := then.get(report["name"])) is not None and report["ts"] > before["ts"]:
            rate += (report.get(name, 0) - before.get(name, 0)) / ((report["ts"] - before["ts"]) / 1e6)
    return rate


def _window(parts: Iterable[Mapping[str, Any]], name: str) -> tuple[float | None, float]:
    """Average and greatest of what parts measured in the last interval; None where nothing was."""
    measured = [part[name] for part in parts if part.get(name, {}).get("cnt")]
    count = sum(each["cnt"] for each in measured)
    if not count:
        return None, 0.0
    return sum(each["sum"] for each in measured) / count, float(max(each["max"] for each in measured))


def _windows(wanted: list[tuple[ClientMetric, str, list[Mapping[str, Any]], str, float]]) -> Iterable[_Value]:
    for metric, which, parts, name, divisor in wanted:
        average, longest = _window(parts, name)
        if average is not None:
            yield metric, (), (average if which == "avg" else longest) / divisor
