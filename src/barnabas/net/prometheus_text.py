"""Reads the text that `barnabas.net.prometheus` writes: the metrics of a server, version 0.0.4 of
Prometheus' exposition format, as the JMX exporter and node_exporter write it too.

    # HELP name text            a line about a metric; skipped
    # TYPE name kind            counter, gauge, summary, histogram or untyped
    name{label="value",...} 1.0 1700000000000

A value is a decimal number, NaN, +Inf or -Inf; the time at the end may be absent, and is not kept.

In Prometheus: the scraper's `textparse`. Kafka has no counterpart.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError

__all__ = ["Histogram", "MetricSample", "MetricsPage", "parse_metrics"]

_NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})?[ \t]+(\S+)(?:[ \t]+-?[0-9]+)?[ \t]*\Z", re.ASCII)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,[ \t]*|\Z)', re.ASCII)
_TYPE = re.compile(rf"#[ \t]*TYPE[ \t]+({_NAME})[ \t]+(\w+)[ \t]*\Z", re.ASCII)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}
_SHOWN = 80


class MetricSample(NamedTuple):
    """A value with its labels, in the order of their names."""

    labels: tuple[tuple[str, str], ...]
    value: float

    def label(self, name: str) -> str | None:
        """The value of a label, None where it has none of this name."""
        return next((value for key, value in self.labels if key == name), None)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations by size. ``counts`` has the number of those in each bucket, from the bound of
    the one before (exclusive) to its own in ``bounds`` (inclusive); the last bound is +Inf."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float
    """The sum of what was observed."""

    @property
    def count(self) -> float:
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """None where nothing was observed."""
        return self.total / self.count if self.count else None

    def since(self, earlier: "Histogram | None") -> "Histogram":
        """What was observed since an earlier page of the same server.

        All of it where the server has started again meanwhile, which its smaller counts show."""
        if earlier is None or earlier.bounds != self.bounds:
            return self
        counts = tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True))
        total = self.total - earlier.total
        if total < 0 or any(count < 0 for count in counts):
            return self
        return Histogram(self.bounds, counts, total)

    def quantile(self, share: float) -> float | None:
        """The value that ``share`` (0 to 1) of the observations do not exceed, linear within its
        bucket, as Prometheus' ``histogram_quantile`` has it.

        The greatest finite bound for what lies above it; None where nothing was observed."""
        rank = share * self.count
        if not self.count:
            return None
        below, start = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count and below + count >= rank:
                return start if math.isinf(bound) else start + (bound - start) * (rank - below) / count
            below += count
            start = start if math.isinf(bound) else bound
        return start


class MetricsPage:
    """The samples of a page by the names of metrics, in the page's order."""

    def __init__(self, samples: Mapping[str, list[MetricSample]], kinds: Mapping[str, str]) -> None:
        self.samples = samples
        self.kinds = kinds
        """What TYPE says of a metric, by its name without ``_bucket`` and the like."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.samples)

    def value(self, name: str, **labels: str) -> float | None:
        """The value with just these labels; None where there is none."""
        wanted = tuple(sorted(labels.items()))
        return next((sample.value for sample in self.samples.get(name, ()) if sample.labels == wanted), None)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """The values by one label; samples without it are left out, and the last of several with
        the same value counts."""
        found = ((sample.label(label), sample.value) for sample in self.samples.get(name, ()))
        return {text: value for text, value in found if text is not None}

    def histograms(self, name: str, label: str) -> dict[str, Histogram]:
        """The histograms of a metric by one label. One whose buckets are not in order, or have no
        last one, is left out."""
        buckets: dict[str, list[tuple[float, float]]] = {}
        for sample in self.samples.get(f"{name}_bucket", ()):
            text, bound = sample.label(label), _number(sample.label("le") or "")
            if text is not None and bound is not None:
                buckets.setdefault(text, []).append((bound, sample.value))
        sums = self.by_label(f"{name}_sum", label)
        found = {text: _histogram(sorted(items), sums.get(text)) for text, items in buckets.items()}
        return {text: histogram for text, histogram in found.items() if histogram is not None}


def parse_metrics(text: str) -> MetricsPage:
    """A page's samples. Raises `CorruptDataError` with the line that breaks the format."""
    samples: dict[str, list[MetricSample]] = {}
    kinds: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip(" \t\r")
        if not stripped:
            continue
        if stripped.startswith("#"):
            if kind := _TYPE.match(stripped):
                kinds[kind[1]] = kind[2]
            continue
        name, sample = _sample(stripped, number)
        samples.setdefault(name, []).append(sample)
    return MetricsPage(samples, kinds)


def _sample(line: str, number: int) -> tuple[str, MetricSample]:
    found = _SAMPLE.match(line)
    value = None if found is None else _number(found[3])
    labels = None if found is None else _labels(found[2] or "")
    if found is None or value is None or labels is None:
        raise CorruptDataError(f"line {number} is not a metric in Prometheus' text form: {line[:_SHOWN]!r}")
    return found[1], MetricSample(labels, value)


def _labels(text: str) -> tuple[tuple[str, str], ...] | None:
    """Sorted by name; None for what is no list of labels."""
    labels = []
    position = 0
    while position < len(text):
        found = _LABEL.match(text, position)
        if found is None:
            return None
        labels.append((found[1], _ESCAPE.sub(lambda each: _ESCAPED.get(each[1], each[0]), found[2])))
        position = found.end()
    return tuple(sorted(labels))


def _number(text: str) -> float | None:
    if "_" in text:  # a number of Python's only
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _histogram(buckets: list[tuple[float, float]], total: float | None) -> Histogram | None:
    """From cumulative buckets, as a page has them."""
    bounds = tuple(bound for bound, _ in buckets)
    cumulative = [0.0, *(count for _, count in buckets)]
    if total is None or bounds[-1] != math.inf or any(then > now for then, now in pairwise(cumulative)):
        return None
    return Histogram(bounds, tuple(now - then for then, now in pairwise(cumulative)), total)
