"""The metrics page for Prometheus: every figure of ``mntr``, in Prometheus' text format.

In ZooKeeper: PrometheusMetricsProvider.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from barnabas.coordination.core.statistics import Distribution, Summary
from barnabas.coordination.server.metric_names import COUNTER_NAMES, PERCENTILE_NAMES, SUMMARY_NAMES
from barnabas.coordination.server.view import ServerView
from barnabas.net.http import HttpResponse
from barnabas.net.prometheus import encode_metrics, figure_lines, label, metric_lines

__all__ = ["metrics_page"]

_QUANTILES = (0.5, 0.9, 0.99)
_OF_A_SERVER = re.compile(r"(\d+)_(.+)")
"""``mntr`` puts the id of a learner before the name; for Prometheus it is the label ``key``."""
_OF_A_QUEUE = re.compile(r"(avg|min|max|cnt|sum|p\d+)_(\d+)_(learner_handler_qp_.+)")

_Family = dict[str | None, Summary | Distribution]
"""The summaries of one name by their label ``key``; None where there is no label."""


def metrics_page(view: ServerView, lines_of_places: Iterable[str] = ()) -> HttpResponse:
    """All figures in the text format of Prometheus, by Apache ZooKeeper's names, and
    lines about the event loop."""
    lines = [*lines_of_places]

    def add(name: str, kind: str, samples: Mapping[str, float]) -> None:
        lines.extend(metric_lines(name, kind, name, samples.items()))

    families = _families(view)
    member: dict[str, int] = {}
    for name, value in view.state.member.items():
        if found := _OF_A_QUEUE.fullmatch(name):
            empty = Distribution() if found[3].endswith("_ms") else Summary()
            # What a learner must get is sent at once.
            families.setdefault(found[3], {})[found[2]] = empty
        elif isinstance(value, int):
            member[name] = value
    lines += figure_lines({**view.gauges(), **member, **view.state.process()})
    for name, value in {**dict.fromkeys(COUNTER_NAMES, 0), **view.counters()}.items():
        add(name, "counter", {"": value})
    for name, family in families.items():
        add(name, "summary", {suffix: value for key, each in family.items() for suffix, value in _samples(key, each)})
    return encode_metrics(lines)


def _families(view: ServerView) -> dict[str, _Family]:
    """The summaries by name.

    Those that are not measured here are there as well, without a measurement."""
    families: dict[str, _Family] = {name: {None: Summary()} for name in SUMMARY_NAMES}
    families |= {name: {None: Distribution()} for name in PERCENTILE_NAMES}
    for name, summary in view.summaries().items():
        if found := _OF_A_SERVER.fullmatch(name):
            families.setdefault(found[2], {})[found[1]] = summary
        else:
            families[name] = {None: summary}
    for name, by_namespace in view.processor.metrics.by_namespace().items():
        families[name] = {namespace: each for namespace, each in by_namespace.items()}  # noqa: C416 - other types
    return families


def _samples(key: str | None, summary: Summary | Distribution) -> Iterator[tuple[str, float]]:
    """Quantiles, count and sum. A `Summary` knows no median, and nothing measured has none: NaN."""
    labels = [] if key is None else [label("key", key)]  # a namespace is what a client chose
    for part in _QUANTILES if isinstance(summary, Distribution) else _QUANTILES[:1]:
        value = summary.percentile(part) if isinstance(summary, Distribution) and summary.count else math.nan
        yield "{" + ",".join([*labels, label("quantile", str(part))]) + "}", value
    suffix = "{" + labels[0] + "}" if labels else ""
    yield f"_count{suffix}", summary.count
    yield f"_sum{suffix}", summary.total
