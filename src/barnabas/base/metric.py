"""A metric that a server or a client shows: each has a class that lists its own.

Pages, dashboards, alert rules and the documentation take the names from these classes.

In Kafka: `MetricName`.
"""

from typing import NamedTuple

__all__ = ["Metric", "metrics_in"]


class Metric(NamedTuple):
    """Its name, kind and labels. As a text it is its name."""

    name: str
    """As a page shows it, without the ``_bucket``, ``_sum`` and ``_count`` of histograms and
    summaries."""
    kind: str
    """counter, gauge, summary or histogram"""
    help_text: str
    labels: tuple[str, ...] = ()
    """Their names, but for ``le`` and ``quantile``."""

    def __str__(self) -> str:
        return self.name


def metrics_in(table: type) -> tuple[Metric, ...]:
    """The metrics that a class lists, in its order."""
    return tuple(each for each in table.__dict__.values() if isinstance(each, Metric))
