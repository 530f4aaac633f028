"""How fast a cluster moves: what changed between two readings of it.

A partition or a counter that went back has no rate: its topic was made again, or its broker
started again.

In Kafka: the rates of `BrokerTopicMetrics` (``OneMinuteRate``), which brokers have of their own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from barnabas.net.prometheus_text import Histogram
from barnabas.top.values import BrokerFigures, Snapshot

__all__ = ["ApiTimes", "BrokerRates", "Rates", "Seen", "rates_between"]

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class BrokerRates:
    """Of one broker, for each second."""

    bytes_in: float | None = None
    bytes_out: float | None = None
    cpu: float | None = None
    """Seconds of processor time for each second: 1.0 is one core."""


@dataclass(frozen=True, slots=True)
class ApiTimes:
    """The requests of one API that one broker answered since the reading before."""

    broker_id: int
    api: str
    times_ms: Histogram
    per_s: float | None
    """None at the first reading, which has all since the broker's start."""


@dataclass(frozen=True, slots=True)
class Rates:
    """For each second between two readings. What is not there is not known."""

    seconds: float | None = None
    """Between the two; None at the first reading."""
    partitions: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Records that came to a partition."""
    topics: Mapping[str, float | None] = field(default_factory=dict)
    """None where the end of a partition is not known."""
    led: Mapping[int, float | None] = field(default_factory=dict)
    """Records that came to the partitions that a broker leads; None likewise."""
    brokers: Mapping[int, BrokerRates] = field(default_factory=dict)
    requests: tuple[ApiTimes, ...] = ()


class Seen(NamedTuple):
    """A reading, and what changed since the one before."""

    snapshot: Snapshot
    rates: Rates


def rates_between(before: Snapshot | None, now: Snapshot) -> Rates:
    """What changed from ``before`` to ``now``. Without ``before``, or where the clock was set back,
    only the times of requests are there: those since each broker's start."""
    seconds = None if before is None else (now.at_ms - before.at_ms) / 1000
    if before is None or seconds is None or seconds <= 0:
        return Rates(requests=_requests({}, now, None))
    ends = {(topic.name, part.partition): part.end for topic in before.topics for part in topic.partitions}
    partitions: dict[tuple[str, int], float] = {}
    topics: dict[str, float | None] = {}
    led: dict[int, float | None] = {}
    for topic in now.topics:
        for part in topic.partitions:
            key = topic.name, part.partition
            came = _grown(ends.get(key), part.end)
            if came is not None:
                partitions[key] = came / seconds
            elif part.end is not None and ends.get(key, part.end) is not None:
                continue  # made just now, or again
            _add(topics, topic.name, partitions.get(key))
            if part.leader is not None:
                _add(led, part.leader, partitions.get(key))
    known = {broker.id: broker.figures for broker in before.brokers if broker.figures is not None}
    brokers = {
        broker.id: _broker_rates(known[broker.id], broker.figures, seconds)
        for broker in now.brokers
        if broker.figures is not None and broker.id in known
    }
    return Rates(seconds, partitions, topics, led, brokers, _requests(known, now, seconds))


def _broker_rates(before: BrokerFigures, now: BrokerFigures, seconds: float) -> BrokerRates:
    def rate(pick: Callable[[BrokerFigures], float | None]) -> float | None:
        grown = _grown(pick(before), pick(now))
        return None if grown is None else grown / seconds

    return BrokerRates(
        rate(lambda figures: figures.bytes_in),
        rate(lambda figures: figures.bytes_out),
        rate(lambda figures: figures.cpu_s),
    )


def _requests(known: Mapping[int, BrokerFigures], now: Snapshot, seconds: float | None) -> tuple[ApiTimes, ...]:
    found = []
    for broker in now.brokers:
        earlier = known.get(broker.id)
        for api, times in (broker.figures.requests if broker.figures else {}).items():
            since = times.since(earlier.requests.get(api) if earlier else None)
            is_measured = seconds is not None and earlier is not None
            if since.count:
                found.append(
                    ApiTimes(broker.id, api, since, since.count / seconds if is_measured and seconds else None)
                )
    return tuple(found)


def _add(sums: dict[Key, float | None], key: Key, value: float | None) -> None:
    """A sum without one of its parts is not known."""
    before = sums.get(key, 0.0)
    sums[key] = None if before is None or value is None else before + value


def _grown(before: float | None, now: float | None) -> float | None:
    """None where one of the two is not known, and for what went back."""
    return None if before is None or now is None or now < before else now - before
