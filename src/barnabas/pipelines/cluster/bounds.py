"""Whether offsets that options name fit what a cluster has: a position that does not is
refused, never passed over.

Kafka: Spark's connector, whose KafkaOffsetReader raises "The resolved start offset 99 is greater
than the resolved end offset 5".
"""

from collections.abc import Sequence

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster
from barnabas.pipelines.cluster.offsets import LATEST, Offsets, require_known
from barnabas.pipelines.cluster.options import Start

__all__ = ["checked_offsets", "require_order"]


def checked_offsets(cluster: KafkaCluster, names: Sequence[TopicPartition], option: str, bound: Start) -> Offsets:
    """The offsets of the partitions for a bound.

    Raises `ConfigError` for a partition that is not read, and for an offset beyond
    the end of its log.
    """
    option = f"{option}ByTimestamp" if bound.times_ms else option
    try:
        require_known([*bound.offsets, *bound.times_ms], names, "the query")
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from error
    named = [name for name, offset in sorted(bound.offsets.items()) if offset >= 0]
    # Records of open transactions lie beyond the end that may be read: a query may begin behind
    # them, but not end there.
    ends = cluster.log_ends(named) if option.startswith("starting") else cluster.at_marks(dict.fromkeys(named, LATEST))
    for name in named:
        if bound.offsets[name] > ends[name]:
            raise ConfigError(
                f"{option}: {name} ends at offset {ends[name]}, and {bound.offsets[name]} lies beyond it: was the topic "
                "deleted and made again?"
            )
    return cluster.resolve(names, bound)


def require_order(start: Start, end: Start) -> None:
    """Raise `ConfigError` where a query would end before it begins."""
    for name, offset in sorted(start.offsets.items()):
        if 0 <= end.offsets.get(name, -1) < offset:
            raise ConfigError(
                f"startingOffsets: {name} begins at offset {offset}, and endingOffsets ends it at {end.offsets[name]}"
            )
