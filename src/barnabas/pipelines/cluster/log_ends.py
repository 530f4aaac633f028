"""Which records a query has seen to be there and cannot read any more, because their
log ends before them now.

A log's end falls back when a leader is elected that lacks records
(``unclean.leader.election.enable``), and when a topic is deleted. A worker finds out what is
missing of a range that is planned; this is about what would be planned later.
"""

from collections.abc import Mapping

from barnabas.base.ids import TopicPartition
from barnabas.pipelines.cluster.offsets import Offsets, Range

__all__ = ["LogEnds"]


class LogEnds:
    """The ends of the logs as a query has seen them last."""

    def __init__(self) -> None:
        self._seen: Offsets = {}

    def fallen(self, begun: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Partitions that end before what was read or seen of them."""
        return [name for name, offset in begun.items() if ends.get(name, -1) < max(offset, self._seen.get(name, 0))]

    def take(self, begun: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[Range]:
        """Remember the ends of today.

        The records that were seen, were not read up to ``begun``, and are gone."""
        gone = [
            Range(name.topic, name.partition, max(begun[name], ends.get(name, 0)), seen)
            for name, seen in sorted(self._seen.items())
            if name in begun and max(begun[name], ends.get(name, 0)) < seen
        ]
        self._seen = dict(ends)
        return gone

    def take_topic(self, topic: str, begun: Mapping[TopicPartition, int]) -> list[Range]:
        """The same of a topic that was deleted."""
        return self.take(begun, {name: offset for name, offset in self._seen.items() if name.topic != topic})
