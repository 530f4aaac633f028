"""Where replicas and leaders should be: the moves that mend a finding.

A move is chosen for one partition after another, by the load of brokers so far. It is good, not
the best: the aim is a plan that a person can read and run.

In Kafka: `AdminUtils.assignReplicasToBrokers`, and what ``kafka-reassign-partitions --generate``
proposes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt

from barnabas.base.ids import TopicPartition

__all__ = [
    "WANTED_FACTOR",
    "BrokerLoad",
    "is_skewed",
    "level_leaders",
    "level_replicas",
    "spread_over_racks",
    "with_replicas",
]

_Moves = dict[TopicPartition, tuple[int, ...]]
WANTED_FACTOR = 3
"""How many replicas a plan gives to a partition that has one."""
_SKEW_SIGMAS = 2.5
_SKEW_RATIO = 1.5


def is_skewed(count: int, mean: float) -> bool:
    """Whether a broker's count is further from the mean than chance explains: by half of it, and
    by 2.5 standard deviations of a random placement (about the root of the mean)."""
    is_far = count > mean * _SKEW_RATIO or count < mean / _SKEW_RATIO
    return is_far and abs(count - mean) > _SKEW_SIGMAS * sqrt(mean)


class BrokerLoad:
    """How many replicas each broker has, and its rack."""

    def __init__(self, racks: Mapping[int, str | None], assigned: Iterable[Sequence[int]]) -> None:
        self.racks = dict(racks)
        self.replicas = Counter(dict.fromkeys(racks, 0))
        for replicas in assigned:
            self.replicas.update(replicas)

    def best_for(self, replicas: Sequence[int]) -> int | None:
        """The broker for one more replica: in another rack, with few replicas.

        None where each broker has one."""
        used = {self.racks.get(each) for each in replicas}
        free = [each for each in self.racks if each not in replicas]
        return min(free, key=lambda each: (self.racks[each] in used, self.replicas[each], each), default=None)

    def take(self, before: Sequence[int], after: Sequence[int]) -> None:
        """Count a partition at its new place."""
        self.replicas.subtract(before)
        self.replicas.update(after)


def with_replicas(load: BrokerLoad, partitions: Mapping[TopicPartition, Sequence[int]], factor: int) -> _Moves:
    """The partitions with as many replicas as ``factor``, or as there are brokers."""
    moves = {}
    for topic_partition, before in partitions.items():
        after = list(before)
        while len(after) < factor and (chosen := load.best_for(after)) is not None:
            after.append(chosen)
        load.take(before, after)
        moves[topic_partition] = tuple(after)
    return moves


def spread_over_racks(load: BrokerLoad, partitions: Mapping[TopicPartition, Sequence[int]]) -> _Moves:
    """The partitions with their replicas in as many racks as possible; the first stays."""
    moves = {}
    for topic_partition, before in partitions.items():
        after: list[int] = []
        for replica in before:
            used = {load.racks.get(each) for each in after}
            if load.racks.get(replica) in used:
                taken = [*after, *(each for each in before if each not in after)]
                chosen = load.best_for(taken)
                is_better = chosen is not None and load.racks[chosen] not in used
                after.append(chosen if chosen is not None and is_better else replica)
            else:
                after.append(replica)
        load.take(before, after)
        moves[topic_partition] = tuple(after)
    return moves


def level_leaders(brokers: Iterable[int], partitions: Mapping[TopicPartition, Sequence[int]]) -> _Moves:
    """The partitions with their replicas in another order, so that preferred leaders are spread.

    No record is copied."""
    leads = Counter(dict.fromkeys(brokers, 0))
    leads.update(replicas[0] for replicas in partitions.values() if replicas)
    moves = {}
    for topic_partition, replicas in partitions.items():
        present = [each for each in replicas if each in leads]
        best = min(present, key=lambda each: (leads[each], each), default=None)
        if best is not None and leads[best] + 1 < leads[replicas[0]]:
            leads[replicas[0]] -= 1
            leads[best] += 1
            moves[topic_partition] = (best, *(each for each in replicas if each != best))
    return moves


def level_replicas(load: BrokerLoad, partitions: Mapping[TopicPartition, Sequence[int]]) -> _Moves:
    """Moves of single replicas from brokers that have many to those that have few.

    No two replicas come into one rack."""
    moves = {}
    for topic_partition, before in partitions.items():
        if not before:
            continue
        fullest = max(before, key=lambda each: (load.replicas[each], each))
        others = {load.racks.get(each) for each in before if each != fullest} - {load.racks.get(fullest)}
        free = [each for each, rack in load.racks.items() if each not in before and rack not in others]
        emptiest = min(free, key=lambda each: (load.replicas[each], each), default=None)
        if emptiest is None or load.replicas[emptiest] + 1 >= load.replicas[fullest]:
            continue
        after = tuple(emptiest if each == fullest else each for each in before)
        load.take(before, after)
        moves[topic_partition] = after
    return moves
