"""What a web server answers, for its metrics page: requests by method and status, and their time.

In Confluent's servers: the ``jersey-metrics`` of ``rest-utils``.
"""

from collections import Counter

from barnabas.base.metric import Metric
from barnabas.net.prometheus import label, labels_of, lines_of

__all__ = ["WebFigures", "WebMetrics"]

_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset(("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"))


class WebMetrics:
    """Of the schema registry and of the REST proxy."""

    REQUESTS = Metric("barnabas_http_requests_total", "counter", "Requests that were answered", ("method", "code"))
    REQUEST_TIME = Metric(
        "barnabas_http_request_seconds", "histogram", "Time from a request's head to its answer", ("method",)
    )
    SCHEMAS = Metric("kafka_schema_registry_registered_count", "gauge", "Schemas of the registry, by their ids")
    LEADS = Metric("kafka_schema_registry_master_slave_role", "gauge", "1 on the instance that writes, 0 on the others")


class WebFigures:
    """Counts answers. Clients choose methods: those of HTTP alone are named."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._sums_s: dict[str, float] = {}

    def answered(self, method: str, status: int, took_s: float) -> None:
        """A request was answered."""
        method = method if method in _METHODS else "other"
        self._counts[method, status] += 1
        buckets = self._buckets.setdefault(method, [0] * (len(_BOUNDS_S) + 1))
        buckets[next((number for number, bound in enumerate(_BOUNDS_S) if took_s <= bound), len(_BOUNDS_S))] += 1
        self._sums_s[method] = self._sums_s.get(method, 0.0) + took_s

    def lines(self) -> list[str]:
        """Their metrics."""
        times: list[tuple[str, float]] = []
        for method, buckets in self._buckets.items():
            of_method, count = label("method", method), 0
            for bound, more in zip((*map(str, _BOUNDS_S), "+Inf"), buckets, strict=True):
                count += more
                times.append((f'_bucket{{{of_method},le="{bound}"}}', count))
            times += [(f"_count{{{of_method}}}", count), (f"_sum{{{of_method}}}", self._sums_s[method])]
        counts = [(labels_of(WebMetrics.REQUESTS, method, str(code)), n) for (method, code), n in self._counts.items()]
        return [*lines_of(WebMetrics.REQUESTS, counts), *lines_of(WebMetrics.REQUEST_TIME, times)]
