"""Rules about replicas and in-sync sets.

In Kafka: ``kafka-topics --under-replicated-partitions`` and its like, `min.insync.replicas`.
"""

from collections.abc import Iterator

from barnabas.doctor.evidence.cluster import BrokersPart, TopicsPart
from barnabas.doctor.finding import Danger, Finding, MendingCommand
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.words import brokers_named, counted, some

__all__ = ["offline_partitions", "under_replicated"]


@rule("offline-partitions", Danger.UNAVAILABLE, "partitions have no leader: they can be neither read nor written")
def offline_partitions(topics: TopicsPart, brokers: BrokersPart) -> Iterator[Finding]:
    """Partitions without a leader."""
    found = {each: part for each, part in topics.partitions() if part.leader is None}
    if not found:
        return
    away = sorted({replica for part in found.values() for replica in part.replicas} - _present(brokers))
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'partition has', 'partitions have')} no leader: no client can read or write "
        f"{some(found)}.",
        tuple(f"{each}: replicas {part.replicas}, in sync {part.isr}" for each, part in list(found.items())[:3]),
        (
            f"start {brokers_named(away)} again: that loses nothing" if away else "start its brokers again",
            MendingCommand.of("topics", "--describe", "--unavailable-partitions"),
        ),
    )


@rule("under-replicated", Danger.DATA_LOSS, "partitions have replicas that are not in sync")
def under_replicated(topics: TopicsPart, brokers: BrokersPart) -> Iterator[Finding]:
    """Partitions with fewer in-sync replicas than replicas, and a leader."""
    found = {
        each: part
        for each, part in topics.partitions()
        if part.leader is not None and len(part.isr) < len(part.replicas)
    }
    if not found:
        return
    lagging = sorted({replica for part in found.values() for replica in set(part.replicas) - set(part.isr)})
    away = [broker_id for broker_id in lagging if broker_id not in _present(brokers)]
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'partition is', 'partitions are')} under-replicated: {some(found)}. "
        f"{brokers_named(lagging, 'Broker')} {'is' if len(lagging) == 1 else 'are'} not in sync.",
        tuple(f"{each}: replicas {part.replicas}, in sync {part.isr}" for each, part in list(found.items())[:3]),
        (
            f"start {brokers_named(away)} again" if away else "look into the lagging brokers' logs",
            MendingCommand.of("topics", "--describe", "--under-replicated-partitions"),
        ),
    )


def _present(brokers: BrokersPart) -> set[int]:
    return {view.broker_id for view in brokers.alive}
