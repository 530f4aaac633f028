"""Brokers' pages of metrics for Prometheus.

In Kafka: its MBeans, under the names that the JMX exporter of Prometheus makes of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.doctor.evidence.part import EvidencePart
from barnabas.net.prometheus_text import MetricsPage

__all__ = ["BrokerMetricsPart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetricsPart(EvidencePart):
    """The page of each address that the user named: ``host:port``."""

    pages: Mapping[str, MetricsPage]
