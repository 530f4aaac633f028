"""The text in which Prometheus reads the metrics of a server, version 0.0.4 of its
exposition format.

In ZooKeeper: TextFormat of the Prometheus client. Kafka's brokers have it from the JMX exporter.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

from barnabas.base.metric import Metric
from barnabas.net.event_loop import LoopBudget
from barnabas.net.http import HttpResponse
from barnabas.net.process_metrics import ProcessMetrics

__all__ = [
    "encode_metrics",
    "figure_lines",
    "label",
    "labels_of",
    "lines_of",
    "metric_lines",
    "slow_place_lines",
]

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def label(name: str, value: str) -> str:
    """``name="value"``, for the braces behind a metric's name."""
    return f'{name}="{value.translate(_ESCAPED)}"'


def metric_lines(name: str, kind: str, help_text: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """The lines of one metric, all of which stand together in a page.

    ``kind`` is counter, gauge, summary, histogram or untyped. A sample is what stands behind the
    name (``_sum``, say, and labels in braces), and the value.
    """
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"
    for suffix, value in samples:
        yield f"{name}{suffix} {'NaN' if math.isnan(value) else float(value)}"


def lines_of(metric: Metric, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """`metric_lines` of a metric of a table."""
    return metric_lines(metric.name, metric.kind, metric.help_text, samples)


def labels_of(metric: Metric, *values: str) -> str:
    """The braces behind the name of a metric, with a value for each of its labels."""
    return "{" + ",".join(map(label, metric.labels, values)) + "}"


def figure_lines(figures: Mapping[str, float]) -> list[str]:
    """The lines of figures whose names say all: those that end in ``_total`` are
    counters, the others gauges."""
    lines: list[str] = []
    for name, value in figures.items():
        lines += metric_lines(name, "counter" if name.endswith("_total") else "gauge", name, [("", value)])
    return lines


def slow_place_lines(budget: LoopBudget) -> list[str]:
    """The lines of what held an event loop for too long, by its place."""
    places = {f"{{{label('place', place)}}}": known for place, known in budget.slow.items()}
    return [
        *lines_of(ProcessMetrics.SLOW_PLACE_CALLBACKS, [(place, known.count) for place, known in places.items()]),
        *lines_of(ProcessMetrics.SLOW_PLACE_SECONDS, [(place, known.total_s) for place, known in places.items()]),
    ]


def encode_metrics(lines: list[str]) -> HttpResponse:
    """The page of these lines."""
    return HttpResponse(200, _CONTENT_TYPE, "\n".join([*lines, ""]).encode())
