"""How much is produced to the topics of a broker, fetched and copied, since its start.

The counters of a topic are those of all its partitions here: an append adds to one object, and the
sum over all topics is made when a metrics page is wanted. A topic that leaves the broker takes its
counters with it; the sums keep them.

In Kafka: `BrokerTopicStats` and `BrokerTopicMetrics`.
"""

from operator import add
from typing import NamedTuple

from barnabas.base.tasks import Task, one_by_one

__all__ = ["BrokerTopicStats", "TopicCounters", "TopicTotals"]

_A_STEP = 32
"""Topics between two places where others may have their turn."""


class TopicTotals(NamedTuple):
    """The counters of a topic, or of all, at one moment."""

    messages_in: int
    """Records that clients and the broker itself have appended to partitions that it leads."""
    bytes_in: int
    bytes_out: int
    """What consumers got."""
    replication_bytes_in: int
    """What this broker has copied from leaders."""
    replication_bytes_out: int
    total_produce_requests: int
    """One for each partition that a request names, and for each append of the group
    coordinator, as in Kafka."""
    total_fetch_requests: int
    failed_produce_requests: int
    failed_fetch_requests: int


class TopicCounters:
    """The counters of one topic. Who has something to count adds to them; see `TopicTotals`."""

    __slots__ = TopicTotals._fields

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.total_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0

    def totals(self) -> TopicTotals:
        return TopicTotals(
            self.messages_in,
            self.bytes_in,
            self.bytes_out,
            self.replication_bytes_in,
            self.replication_bytes_out,
            self.total_produce_requests,
            self.total_fetch_requests,
            self.failed_produce_requests,
            self.failed_fetch_requests,
        )


class BrokerTopicStats:
    """The counters of all topics."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicCounters] = {}
        """Topics of which the broker has partitions, in the order in which they
        came. For reading."""
        self.elsewhere = TopicCounters()
        """What concerned topics of which it has none; for adding to."""
        self._removed = TopicTotals(*[0] * len(TopicTotals._fields))

    def of(self, topic: str) -> TopicCounters:
        """The counters of a topic of which the broker has a partition."""
        counters = self.by_topic.get(topic)
        if counters is None:
            counters = self.by_topic[topic] = TopicCounters()
        return counters

    def find(self, topic: str | None) -> TopicCounters:
        """Where to count what concerns a topic, whether it exists or not."""
        return self.elsewhere if topic is None else self.by_topic.get(topic, self.elsewhere)

    def remove(self, topic: str) -> None:
        """The broker has no partition of the topic any more."""
        counters = self.by_topic.pop(topic, None)
        if counters is not None:
            self._removed = _add(self._removed, counters.totals())

    def totals(self, most_topics: int) -> Task[tuple[TopicTotals, dict[str, TopicTotals]]]:
        """The sums over all topics since the start, and the totals of the first
        ``most_topics`` topics.

        The sums never fall: what a topic has counted that is deleted between two
        slices is in them once.
        """
        shown: dict[str, TopicTotals] = {}
        sums = _add(self._removed, self.elsewhere.totals())
        # The topics that exist when the sums begin.
        for number, (topic, counters) in enumerate(one_by_one(self.by_topic.items())):
            totals = counters.totals()
            sums = _add(sums, totals)
            if len(shown) < most_topics:
                shown[topic] = totals
            if not number % _A_STEP:
                yield None
        return sums, shown


def _add(one: TopicTotals, other: TopicTotals) -> TopicTotals:
    """The sum of each counter."""
    return TopicTotals(*map(add, one, other))
