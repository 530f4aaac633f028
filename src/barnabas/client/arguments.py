"""What callers give to clients, where librdkafka would take nonsense in silence or
for something else.

In Kafka: `SubscriptionState` and `ProducerRecord`, whose methods check the same.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import confluent_kafka

from barnabas.base.ids import TopicPartition
from barnabas.base.numbers import LARGEST_INT64
from barnabas.client.errors import ConfigurationError

__all__ = [
    "check_assigned",
    "check_offsets",
    "check_partitions",
    "check_start",
    "check_subscription",
    "check_times",
    "check_timestamp",
]

_STARTS = (
    confluent_kafka.OFFSET_BEGINNING,
    confluent_kafka.OFFSET_END,
    confluent_kafka.OFFSET_STORED,
    confluent_kafka.OFFSET_INVALID,
)


def check_subscription(topics: Sequence[str]) -> None:
    """The names of a subscription. A text would be a list of its letters."""
    if isinstance(topics, str):
        raise ConfigurationError(f"subscribe takes a list of topics: [{topics!r}]")
    for topic in topics:
        if not isinstance(topic, str):
            raise ConfigurationError(f"cannot subscribe to {topic!r}: the name of a topic is expected")


def check_partitions(partitions: Iterable[TopicPartition]) -> None:
    """Partitions that can exist."""
    for topic, number in partitions:
        if number < 0:
            raise ConfigurationError(f"{topic}-{number}: partitions are numbered from 0")


def check_start(topic: str, partition: int, offset: int) -> None:
    """Where reading begins: an offset, or one of the names for both ends."""
    if not 0 <= offset <= LARGEST_INT64 and offset not in _STARTS:
        raise ConfigurationError(
            f"{topic}-{partition} cannot be read from offset {offset}: an offset is expected, -2 for the first record or -1 "
            "for the end"
        )


def check_assigned(places: Iterable[tuple[str, int]], assigned: Collection[tuple[str, int]]) -> None:
    """Partitions of this consumer."""
    for place in places:
        if place not in assigned:
            raise ConfigurationError(f"{place[0]}-{place[1]} is not assigned to this consumer")


def check_offsets(offsets: Mapping[TopicPartition, int]) -> None:
    """Offsets to commit."""
    for (topic, number), offset in offsets.items():
        if not 0 <= offset <= LARGEST_INT64:
            raise ConfigurationError(f"{topic}-{number}: {offset} cannot be committed; offsets begin with 0")


def check_times(times_ms: Mapping[TopicPartition, int]) -> None:
    """Times to look up."""
    for (topic, number), time_ms in times_ms.items():
        if not 0 <= time_ms <= LARGEST_INT64:
            raise ConfigurationError(f"{topic}-{number}: {time_ms} is no time in milliseconds since 1970")


def check_timestamp(timestamp_ms: int) -> None:
    """The time of a record. librdkafka replaces a timestamp of 0 by the current time."""
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or not 0 < timestamp_ms <= LARGEST_INT64:
        raise ConfigurationError(
            f"timestamp_ms={timestamp_ms}: a whole number of milliseconds since 1970 is expected, 1 at least and of 64 bits; without it a record gets "
            "the current time"
        )
