"""Every metric of every server and client, from the tables of each.

Dashboards, alert rules, ``barnabas metrics list`` and the reference page are made from this list,
so a metric that gets another name gets it everywhere.

In Kafka: the metrics of `Metrics` and `KafkaYammerMetrics` that its documentation lists.
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.base.metric import Metric, metrics_in
from barnabas.broker.groups.group import GroupState
from barnabas.broker.monitoring.metric_names import BrokerMetrics, group_state_metric
from barnabas.client.librdkafka.metric_names import CONSUMER_METRICS, PRODUCER_METRICS, ClientMetric
from barnabas.coordination.core.metric_table import CoordinationMetrics
from barnabas.lag.metric_names import FAMILIES, MetricFamily
from barnabas.mirror.metric_names import MirrorMetrics
from barnabas.net.process_metrics import ProcessMetrics
from barnabas.net.web_figures import WebMetrics
from barnabas.pipelines.progress.metric_names import FlowMetrics

__all__ = ["SERVERS", "TARGET_UP", "MonitoredServer", "known_metrics", "lag_metric"]


class MonitoredServer(NamedTuple):
    """A kind of server that has a metrics page."""

    name: str
    job: str
    """The name of its job in Prometheus' configuration, by which rules know it."""
    setting: str
    """What opens the page."""
    metrics: tuple[Metric, ...]


_PROCESS = metrics_in(ProcessMetrics)


def _of_family(family: MetricFamily) -> Metric:
    return Metric(family.name, family.kind, family.help, family.labels)


def _of_client(metrics: Iterable[ClientMetric]) -> tuple[Metric, ...]:
    return tuple(each.metric for each in metrics)


def lag_metric(name: str) -> Metric:
    """One of the lag exporter's. Raises KeyError for a name that it does not have."""
    return {family.name: _of_family(family) for family in FAMILIES}[name]


SERVERS = (
    MonitoredServer(
        "broker",
        "barnabas-broker",
        "metrics.http.address of server.properties",
        (*metrics_in(BrokerMetrics), *map(group_state_metric, GroupState), *_PROCESS),
    ),
    MonitoredServer(
        "coordination server",
        "barnabas-coordination",
        "metricsProvider.className and metricsProvider.httpPort of zoo.cfg",
        metrics_in(CoordinationMetrics),
    ),
    MonitoredServer(
        "mirror",
        "barnabas-mirror",
        "--metrics.http.address of mirror-maker",
        metrics_in(MirrorMetrics),
    ),
    MonitoredServer("lag exporter", "barnabas-lag", "--metrics-address of lag", tuple(map(_of_family, FAMILIES))),
    MonitoredServer(
        "schema registry",
        "barnabas-registry",
        "metrics.http.address of schema-registry.properties",
        metrics_in(WebMetrics),
    ),
    MonitoredServer(
        "REST proxy",
        "barnabas-rest",
        "metrics.http.address of kafka-rest.properties",
        (WebMetrics.REQUESTS, WebMetrics.REQUEST_TIME),
    ),
    MonitoredServer(
        "producer", "barnabas-client", "metrics.http.address of its properties", _of_client(PRODUCER_METRICS)
    ),
    MonitoredServer(
        "consumer", "barnabas-client", "metrics.http.address of its properties", _of_client(CONSUMER_METRICS)
    ),
    MonitoredServer("flow", "barnabas-flow", "pipeline dashboard", metrics_in(FlowMetrics)),
)
"""By their kinds."""

TARGET_UP = Metric("up", "gauge", "1 while Prometheus can read a page, else 0", ("job", "instance"))
"""Prometheus' own metric of each page."""


def known_metrics() -> dict[str, Metric]:
    """All metrics by their names."""
    return {metric.name: metric for server in SERVERS for metric in server.metrics} | {TARGET_UP.name: TARGET_UP}
