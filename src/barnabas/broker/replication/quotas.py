"""Replication throttles: how fast replicas that are behind are copied (KIP-73).

Kafka: `ReplicationQuotaManager`.

An operator who moves partitions lists the replicas in motion
(``leader.replication.throttled.replicas`` and ``follower.replication.throttled.replicas`` of the
topic, each a list of partition:broker, or ``*``) and how many bytes a second a broker may send or
take for them (``leader.replication.throttled.rate``, ``follower.replication.throttled.rate`` of the
broker, changed while it runs). All traffic of the listed partitions counts. Above the limit, a
leader sends nothing of them to replicas that are out of sync, and a follower does not fetch those
that are behind. Replicas in sync continue, so a throttle never removes one from the in-sync set.

The rate is measured as in Kafka: bytes fall into samples of
``replication.quota.window.size.seconds``, of which ``replication.quota.window.num`` and the one
before them are kept; the rate is their sum over the time since the oldest began, but at least over
one window. So a pause follows a burst, and the average stays within the limit.
"""

from collections import deque

from barnabas.base.ids import TopicPartition
from barnabas.base.settings import Values

__all__ = ["ALL_REPLICAS", "ReplicationQuota", "ReplicationQuotas", "throttled_partitions"]

ALL_REPLICAS = "*"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
_MS_PER_S = 1000
_UNLIMITED = (1 << 63) - 1


def throttled_partitions(replicas: list[str], broker_id: int) -> frozenset[int] | None:
    """The partitions of ``partition:broker`` texts that a broker holds in.

    None for all of them (``*``)."""
    if replicas == [ALL_REPLICAS]:
        return None
    pairs = (replica.split(":") for replica in replicas if replica)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


class _Sample:
    __slots__ = ("last_ms", "size_bytes", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size_bytes = 0


class ReplicationQuota:
    """One direction of one broker: the throttled partitions, the limit, and the present rate."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[_Sample] = deque()
        self._topics: dict[str, frozenset[int] | None] = {}
        self._bytes_per_s = _UNLIMITED

    def limit(self, bytes_per_s: int) -> None:
        """Set the limit; 2^63 - 1 is none."""
        self._bytes_per_s = bytes_per_s

    def throttle(self, topic: str, partitions: frozenset[int] | None) -> None:
        """Replace a topic's throttled partitions.

        None stands for all, the empty set for no throttle."""
        if partitions is not None and not partitions:
            self._topics.pop(topic, None)
        else:
            self._topics[topic] = partitions

    @property
    def is_limited(self) -> bool:
        """Whether the quota can delay anything."""
        return bool(self._topics) and self._bytes_per_s < _UNLIMITED

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's replica on this broker is in its topic's list."""
        if topic_partition.topic not in self._topics:
            return False
        partitions = self._topics[topic_partition.topic]
        return partitions is None or topic_partition.partition in partitions

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count bytes of throttled partitions that were sent or received."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
            if len(samples) > self._windows + 1:
                samples.popleft()
        samples[-1].size_bytes += size_bytes
        samples[-1].last_ms = now_ms

    def rate(self, now_ms: int) -> float:
        """Bytes a second."""
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= self._windows * self._window_ms:
            samples.popleft()
        if not samples:
            return 0.0
        elapsed_ms = max(now_ms - samples[0].start_ms, self._window_ms)
        return sum(sample.size_bytes for sample in samples) * _MS_PER_S / elapsed_ms

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether the rate is above the limit."""
        return self.is_limited and self.rate(now_ms) > self._bytes_per_s


class ReplicationQuotas:
    """Both directions of one broker, kept to its configuration."""

    def __init__(self, broker_id: int, *, windows: int = 11, window_ms: int = 1000) -> None:
        self._broker_id = broker_id
        self.leader = ReplicationQuota(windows, window_ms)
        self.follower = ReplicationQuota(windows, window_ms)

    def configure_broker(self, settings: Values) -> None:
        """The broker's settings changed."""
        self.leader.limit(settings[LEADER_RATE])
        self.follower.limit(settings[FOLLOWER_RATE])

    def configure_topic(self, topic: str, leader_replicas: list[str], follower_replicas: list[str]) -> None:
        """A topic's lists of throttled replicas changed."""
        self.leader.throttle(topic, throttled_partitions(leader_replicas, self._broker_id))
        self.follower.throttle(topic, throttled_partitions(follower_replicas, self._broker_id))
