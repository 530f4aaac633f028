"""Rules about replicas and in-sync sets.

In Kafka: ``kafka-topics --under-replicated-partitions`` and its like, `min.insync.replicas`.
"""

from collections.abc import Iterator, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.topics import PartitionDescription
from barnabas.doctor.evidence.cluster import BrokersPart, TopicsPart
from barnabas.doctor.evidence.configs import TopicConfigsPart, setting_number
from barnabas.doctor.finding import Danger, Finding, MendingCommand
from barnabas.doctor.placement import WANTED_FACTOR, BrokerLoad, with_replicas
from barnabas.doctor.rules.mending import change_topics, run_plan
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.rules.single_broker import require_brokers
from barnabas.doctor.words import brokers_named, counted, some

__all__ = [
    "at_min_isr",
    "min_isr_above_factor",
    "min_isr_equals_factor",
    "offline_partitions",
    "replication_factor_1",
    "under_min_isr",
    "under_replicated",
]

_Partitions = Mapping[TopicPartition, PartitionDescription]
_MIN_ISR = "min.insync.replicas"
_SHOWN = 3


@rule("offline-partitions", Danger.UNAVAILABLE, "partitions have no leader, and can be neither read nor written")
def offline_partitions(topics: TopicsPart, brokers: BrokersPart) -> Iterator[Finding]:
    """Partitions without a leader."""
    found = {each: part for each, part in topics.partitions() if part.leader is None}
    if not found:
        return
    away = _away(found, brokers)
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'partition has', 'partitions have')} no leader, so no client can read or write: "
        f"{some(found)}.",
        (*_replica_lines(found), *_away_lines(away)),
        (
            f"Start {brokers_named(away)} again: that loses nothing." if away else "Look into the brokers' logs.",
            MendingCommand.of("topics", "--describe", "--unavailable-partitions"),
        ),
    )


@rule("under-min-isr", Danger.UNAVAILABLE, "partitions have fewer replicas in sync than min.insync.replicas")
def under_min_isr(topics: TopicsPart, brokers: BrokersPart, configs: TopicConfigsPart) -> Iterator[Finding]:
    """Partitions to which no producer with acks=all can write."""
    found = {
        each: part
        for each, part in topics.partitions()
        if part.leader is not None and len(part.isr) < _min_isr(each, configs) <= len(part.replicas)
    }
    if not found:
        return
    away = _away(found, brokers)
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'partition refuses', 'partitions refuse')} producers with acks=all, for fewer replicas "
        f"are in sync than min.insync.replicas: {some(found)}.",
        (*_replica_lines(found, configs), *_away_lines(away)),
        _back_in_sync(away, "--under-min-isr-partitions"),
    )


@rule("at-min-isr", Danger.COMING, "partitions lack replicas, and one more that fails stops producers with acks=all")
def at_min_isr(topics: TopicsPart, brokers: BrokersPart, configs: TopicConfigsPart) -> Iterator[Finding]:
    """Partitions that have lost replicas, and have just enough in sync. With a minimum of 1 it is
    `under-replicated` alone."""
    found = {
        each: part
        for each, part in topics.partitions()
        if part.leader is not None and len(part.replicas) > len(part.isr) == _min_isr(each, configs) > 1
    }
    if not found:
        return
    away = _away(found, brokers)
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'partition has', 'partitions have')} just min.insync.replicas in sync, and will refuse "
        f"producers with acks=all when one more replica fails: {some(found)}.",
        (*_replica_lines(found, configs), *_away_lines(away)),
        _back_in_sync(away, "--at-min-isr-partitions"),
    )


@rule("under-replicated", Danger.DATA_LOSS, "partitions have replicas that are not in sync")
def under_replicated(topics: TopicsPart, brokers: BrokersPart) -> Iterator[Finding]:
    """Partitions with a leader, and with fewer in-sync replicas than replicas."""
    found = {
        each: part
        for each, part in topics.partitions()
        if part.leader is not None and len(part.isr) < len(part.replicas)
    }
    if not found:
        return
    lagging = sorted({replica for part in found.values() for replica in set(part.replicas) - set(part.isr)})
    away = _away(found, brokers)
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'partition is', 'partitions are')} under-replicated, because "
        f"{brokers_named(lagging)} {'is' if len(lagging) == 1 else 'are'} not in sync: {some(found)}.",
        (*_replica_lines(found), *_away_lines(away)),
        _back_in_sync(away, "--under-replicated-partitions"),
    )


@rule("replication-factor-1", Danger.DATA_LOSS, "topics keep each record on one broker only")
def replication_factor_1(topics: TopicsPart, brokers: BrokersPart) -> Iterator[Finding]:
    """Topics of users; the cluster's own have a rule of their own. One copy cannot be mended on
    one broker, so the rule is not applicable there."""
    require_brokers(brokers, 2)
    found = {
        each: part.replicas
        for each, part in topics.partitions()
        if len(part.replicas) == 1 and not topics.by_name[each.topic].is_internal
    }
    if not found:
        return
    names = list(dict.fromkeys(each.topic for each in found))
    load = BrokerLoad(brokers.racks, (part.replicas for _, part in topics.partitions()))
    yield Finding(
        tuple(names),
        f"{counted(len(names), 'topic keeps', 'topics keep')} each record on one broker only, and "
        f"{'loses' if len(names) == 1 else 'lose'} it with that broker's disk: {some(names)}.",
        tuple(f"{each}: replicas {replicas}" for each, replicas in list(found.items())[:_SHOWN]),
        run_plan("replication-factor-1"),
        moves=with_replicas(load, found, WANTED_FACTOR),
    )


@rule("min-isr-equals-factor", Danger.COMING, "topics refuse producers with acks=all whenever one broker is away")
def min_isr_equals_factor(topics: TopicsPart, configs: TopicConfigsPart) -> Iterator[Finding]:
    """Topics of which each replica must be in sync: the restart of one broker stops producers."""
    found = {
        topic.name: factor
        for topic in topics.topics
        if (factor := _factor(topic.partitions)) > 1 and _min_isr_of(topic.name, configs) == factor
    }
    if not found:
        return
    yield Finding(
        tuple(found),
        f"{counted(len(found), 'topic asks', 'topics ask')} for all replicas in sync, so that the restart of one broker "
        f"stops producers with acks=all: {some(found)}.",
        tuple(f"{name}: {factor} replicas, {_MIN_ISR}={factor}" for name, factor in list(found.items())[:_SHOWN]),
        change_topics({name: f"{_MIN_ISR}={factor - 1}" for name, factor in found.items()}),
    )


@rule("min-isr-above-factor", Danger.UNAVAILABLE, "topics ask for more replicas in sync than they have")
def min_isr_above_factor(topics: TopicsPart, configs: TopicConfigsPart) -> Iterator[Finding]:
    """Topics to which no producer with acks=all can ever write."""
    found = {
        topic.name: factor
        for topic in topics.topics
        if 0 < (factor := _factor(topic.partitions)) < _min_isr_of(topic.name, configs)
    }
    if not found:
        return
    yield Finding(
        tuple(found),
        f"{counted(len(found), 'topic refuses', 'topics refuse')} all producers with acks=all, for min.insync.replicas "
        f"is more than its replicas: {some(found)}.",
        tuple(
            f"{name}: {counted(factor, 'replica', 'replicas')}, {_MIN_ISR}={_min_isr_of(name, configs)}"
            for name, factor in list(found.items())[:_SHOWN]
        ),
        change_topics({name: f"{_MIN_ISR}={max(1, factor - 1)}" for name, factor in found.items()}),
    )


def _factor(partitions: list[PartitionDescription]) -> int:
    """The smallest number of replicas of a topic's partitions."""
    return min((len(part.replicas) for part in partitions), default=0)


def _min_isr(topic_partition: TopicPartition, configs: TopicConfigsPart) -> int:
    return _min_isr_of(topic_partition.topic, configs)


def _min_isr_of(topic: str, configs: TopicConfigsPart) -> int:
    """0 where it is not known: no in-sync set is below it."""
    return setting_number(configs.entries.get(topic, {}), _MIN_ISR) or 0


def _replica_lines(found: _Partitions, configs: TopicConfigsPart | None = None) -> Iterator[str]:
    for each, part in list(found.items())[:_SHOWN]:
        wanted = "" if configs is None else f", {_MIN_ISR}={_min_isr(each, configs)}"
        yield f"{each}: replicas {part.replicas}, in sync {part.isr}{wanted}"


def _away(found: _Partitions, brokers: BrokersPart) -> list[int]:
    """The brokers of these partitions that are not there."""
    present = {view.broker_id for view in brokers.alive}
    return sorted({replica for part in found.values() for replica in part.replicas} - present)


def _away_lines(away: list[int]) -> Iterator[str]:
    if away:
        yield f"not there: {brokers_named(away)}"


def _back_in_sync(away: list[int], option: str) -> tuple[MendingCommand | str, ...]:
    what = (
        f"Start {brokers_named(away)} again; its replicas catch up by themselves."
        if away
        else "Look into the logs of the brokers that are not in sync: a full disk, a slow network, a dead fetcher."
    )
    return what, MendingCommand.of("topics", "--describe", option)
