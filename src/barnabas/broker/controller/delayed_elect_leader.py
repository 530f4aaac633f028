"""The wait of ElectLeaders until this broker knows the new leaders (KIP-460).

In Kafka: `DelayedElectLeader`.

The controller has elected them already. The response waits until its UpdateMetadata has reached
this broker, so that a client that asks this broker next finds the new leaders.
"""

from collections.abc import Callable, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.requests.purgatory import DelayedOperation, Purgatory
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["wait_for_leaders"]

Results = Mapping[TopicPartition, KafkaError | None]


def wait_for_leaders(
    metadata: MetadataCache,
    purgatory: Purgatory,
    elected: Mapping[TopicPartition, int],
    respond: Callable[[Results], None],
    timeout_ms: int,
) -> DelayedOperation | None:
    """Call ``respond`` when the leaders in ``elected`` are known here, or at the timeout with
    REQUEST_TIMED_OUT for the rest.

    Returns the wait, or None if there is nothing to wait for.
    """
    waiting = dict(elected)
    results: dict[TopicPartition, KafkaError | None] = {}

    def are_known() -> bool:
        for topic_partition, leader in tuple(waiting.items()):
            known = metadata.partition(topic_partition)
            if known is not None and known.leader == leader:
                del waiting[topic_partition]
                results[topic_partition] = None
        return not waiting

    def on_expiration() -> None:
        are_known()
        results.update(dict.fromkeys(waiting, KafkaError(ErrorCode.REQUEST_TIMED_OUT)))
        respond(results)

    def try_complete(_key: object) -> bool:
        if not are_known():
            return False
        respond(results)
        return True

    if are_known() or timeout_ms == 0:
        on_expiration()
        return None
    keys = tuple(("topic", topic) for topic in dict.fromkeys(each.topic for each in waiting))
    return purgatory.watch(keys, try_complete, on_expiration, timeout_ms, "ElectLeader")
