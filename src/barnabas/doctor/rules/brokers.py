"""Rules about brokers and the controller.

In Kafka: `ActiveControllerCount`, ``kafka-broker-api-versions``,
`offsets.topic.replication.factor`.
"""

from collections import defaultdict
from collections.abc import Iterator

from barnabas.base.ids import TopicPartition
from barnabas.doctor.evidence.cluster import BrokersPart, TopicsPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart, setting_number
from barnabas.doctor.finding import Danger, Finding, MendingCommand, NotApplicableError
from barnabas.doctor.placement import WANTED_FACTOR, BrokerLoad, with_replicas
from barnabas.doctor.rules.mending import run_plan
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.rules.single_broker import brokers_with_replicas, require_brokers
from barnabas.doctor.words import brokers_named, counted, some
from barnabas.wire.kafka.api import ApiKey

__all__ = [
    "broker_away",
    "broker_unreachable",
    "brokers_disagree",
    "brokers_of_different_versions",
    "controllers_disagree",
    "internal_topic_factor",
    "internal_topic_settings",
    "no_controller",
]

_INTERNAL = ("__consumer_offsets", "__transaction_state")
_FACTOR_SETTINGS = {
    "offsets.topic.replication.factor": "__consumer_offsets",
    "transaction.state.log.replication.factor": "__transaction_state",
}
_SHOWN = 3


@rule("no-controller", Danger.UNAVAILABLE, "there is no controller: nothing can be created, changed or elected")
def no_controller(brokers: BrokersPart) -> Iterator[Finding]:
    """No broker knows a controller, or the one that they know does not answer. A KRaft cluster's
    brokers name one of themselves, whatever its quorum does, so that the rule sees little there."""
    present = {view.broker_id for view in brokers.alive}
    if not present or any(view.controller_id in present for view in brokers.alive):
        return
    yield Finding(
        ("controller",),
        "The cluster has no controller: no topic can be created or changed, and no leader elected.",
        tuple(
            f"broker {view.broker_id} names {'none' if view.controller_id < 0 else f'broker {view.controller_id}, which is away'}"
            for view in brokers.alive[:_SHOWN]
        ),
        (
            "Look whether the coordination service (KRaft: the quorum of controllers) serves: barnabas "
            "zookeeper-status HOST:PORT,...; then into the brokers' logs.",
        ),
    )


@rule("controllers-disagree", Danger.UNAVAILABLE, "brokers name different controllers")
def controllers_disagree(brokers: BrokersPart) -> Iterator[Finding]:
    """More than one broker is taken for the controller. Brokers of a KRaft cluster name any broker
    (KIP-590), so it is not applicable there."""
    if brokers.is_kraft:
        raise NotApplicableError("brokers of a KRaft cluster name any broker as the controller (KIP-590)")
    claims: dict[int, list[int]] = defaultdict(list)
    for view in brokers.alive:
        claims[view.controller_id].append(view.broker_id)
    named = [controller for controller in claims if controller >= 0]
    if len(named) < 2:
        return
    yield Finding(
        tuple(f"broker {controller}" for controller in sorted(named)),
        f"{len(named)} controllers are claimed: brokers that follow an old one do not learn of changes.",
        tuple(f"{brokers_named(by, 'Broker')}: the controller is {controller}" for controller, by in claims.items()),
        (
            "Ask again in a minute. If it stays, restart the brokers that name the controller which /controller in "
            "the coordination service does not name.",
        ),
    )


@rule("brokers-disagree", Danger.COMING, "brokers know different members of the cluster")
def brokers_disagree(brokers: BrokersPart) -> Iterator[Finding]:
    """Brokers whose metadata lacks others: they are cut off, or their metadata is old."""
    everyone = frozenset().union(*(view.knows for view in brokers.alive))
    lacking = {view.broker_id: sorted(everyone - view.knows) for view in brokers.alive if everyone - view.knows}
    if not lacking:
        return
    yield Finding(
        tuple(f"broker {broker_id}" for broker_id in lacking),
        f"{brokers_named(list(lacking), 'Broker')} {'has' if len(lacking) == 1 else 'have'} other metadata than the "
        "rest: clients that ask there see another cluster.",
        tuple(
            f"broker {broker_id} does not know {brokers_named(unknown)}"
            for broker_id, unknown in list(lacking.items())[:_SHOWN]
        ),
        ("Ask again in a minute, for a broker may be starting. If it stays, look into these brokers' logs.",),
    )


@rule("broker-away", Danger.DATA_LOSS, "partitions have replicas on brokers that are not in the cluster")
def broker_away(topics: TopicsPart, brokers: BrokersPart) -> Iterator[Finding]:
    """Brokers that have replicas, and are not registered."""
    away: dict[int, int] = defaultdict(int)
    for _, part in topics.partitions():
        for replica in part.replicas:
            if replica not in brokers.views:
                away[replica] += 1
    if not away:
        return
    numbers = sorted(away)
    moves = _replaced(topics, brokers)
    wanted = {each: len(part.replicas) for each, part in topics.partitions()}
    fewer = sum(len(replicas) < wanted[each] for each, replicas in moves.items())
    yield Finding(
        tuple(f"broker {broker_id}" for broker_id in numbers),
        f"{brokers_named(numbers, 'Broker')} {'is' if len(away) == 1 else 'are'} not in the cluster, and should keep "
        "replicas.",
        tuple(
            f"broker {each} has replicas of {counted(away[each], 'partition', 'partitions')}" for each in numbers[:6]
        ),
        (
            f"Start {brokers_named(numbers)} again. {_without(fewer)}",
            *run_plan("broker-away"),
        ),
        moves=moves,
    )


def _without(fewer: int) -> str:
    """What the plan is for, and what it costs where no other broker can take the replicas."""
    if not fewer:
        return "If one will not come back, move its replicas to others:"
    return (
        "If one will not come back, start another broker with its id, whose replicas are copied. Without one, there is "
        f"no broker for replicas of {counted(fewer, 'partition, which has', 'partitions, which have')} fewer by this "
        "plan:"
    )


@rule("broker-unreachable", Danger.UNAVAILABLE, "a registered broker does not answer from here")
def broker_unreachable(brokers: BrokersPart) -> Iterator[Finding]:
    """Brokers that the cluster knows, and that did not answer within the deadline."""
    silent = [view for view in brokers.views.values() if view.error is not None]
    if not silent:
        return
    yield Finding(
        tuple(f"broker {view.broker_id}" for view in silent),
        f"{brokers_named([view.broker_id for view in silent], 'Broker')} {'is' if len(silent) == 1 else 'are'} "
        f"registered and {'does' if len(silent) == 1 else 'do'} not answer from here: it is stopped, frozen or cut off, "
        "or its advertised address is wrong.",
        tuple(f"broker {view.broker_id} at {view.address}: {view.error}" for view in silent[:6]),
        (
            "Try its address from this machine; look at advertised.listeners in its server.properties; then restart it.",
            MendingCommand.of("cluster", "list-endpoints"),
        ),
    )


@rule("brokers-of-different-versions", Danger.COMING, "brokers offer different versions of APIs")
def brokers_of_different_versions(brokers: BrokersPart) -> Iterator[Finding]:
    """Brokers whose ApiVersions differ: an upgrade that has not ended, or a broker left behind."""
    groups: dict[tuple[tuple[int, int, int], ...], list[int]] = defaultdict(list)
    for view in brokers.alive:
        groups[view.api_versions].append(view.broker_id)
    if len(groups) < 2:
        return
    first, *others = sorted(groups.items(), key=lambda each: -len(each[1]))
    yield Finding(
        tuple(f"broker {broker_id}" for _, ids in others for broker_id in ids),
        f"Brokers are of {len(groups)} different versions: clients get the features of the oldest, and an upgrade has "
        "not ended.",
        tuple(
            f"{brokers_named(ids, 'Broker')} and {brokers_named(first[1])}: {_difference(versions, first[0])}"
            for versions, ids in others
        ),
        (
            "Upgrade the brokers that are behind, one after another.",
            MendingCommand.of("broker-api-versions"),
        ),
    )


@rule("internal-topic-factor", Danger.DATA_LOSS, "the cluster's own topics keep each record on one broker only")
def internal_topic_factor(topics: TopicsPart, brokers: BrokersPart) -> Iterator[Finding]:
    """Groups' offsets or the state of transactions with one copy."""
    require_brokers(brokers, 2)
    found = {
        each: part.replicas for each, part in topics.partitions() if each.topic in _INTERNAL and len(part.replicas) == 1
    }
    if not found:
        return
    names = list(dict.fromkeys(each.topic for each in found))
    load = BrokerLoad(brokers.racks, (part.replicas for _, part in topics.partitions()))
    yield Finding(
        tuple(names),
        f"{some(names)} {'keeps' if len(names) == 1 else 'keep'} each record on one broker only: with it groups lose "
        "their offsets, or transactions their state, and meanwhile they stand still.",
        tuple(f"{each}: replicas {replicas}" for each, replicas in list(found.items())[:_SHOWN]),
        run_plan("internal-topic-factor"),
        moves=with_replicas(load, found, WANTED_FACTOR),
    )


@rule("internal-topic-settings", Danger.COMING, "the cluster's own topics will be created with one copy")
def internal_topic_settings(topics: TopicsPart, brokers: BrokersPart, configs: BrokerConfigsPart) -> Iterator[Finding]:
    """Topics that do not exist yet: the first group or transaction creates them."""
    require_brokers(brokers, 2)
    found = {
        name: sorted(broker_id for broker_id, entries in configs.entries.items() if setting_number(entries, name) == 1)
        for name, topic in _FACTOR_SETTINGS.items()
        if topic not in topics.by_name
    }
    found = {name: ids for name, ids in found.items() if ids}
    if not found:
        return
    factor = min(WANTED_FACTOR, len(brokers.views.keys() | brokers_with_replicas(topics)))
    yield Finding(
        tuple(found),
        f"{some(_FACTOR_SETTINGS[name] for name in found)} will be created with one copy of each record.",
        tuple(f"{name}=1 at {brokers_named(ids)}" for name, ids in found.items()),
        tuple(
            f"Set {name}={factor} in server.properties, and restart the brokers one after another." for name in found
        ),
    )


def _replaced(topics: TopicsPart, brokers: BrokersPart) -> dict[TopicPartition, tuple[int, ...]]:
    """The partitions of brokers that are away, with others in their place where there are some."""
    load = BrokerLoad(brokers.racks, (part.replicas for _, part in topics.partitions()))
    moves: dict[TopicPartition, tuple[int, ...]] = {}
    for each, part in topics.partitions():
        left = [replica for replica in part.replicas if replica in brokers.views]
        if left and len(left) < len(part.replicas):
            moves |= with_replicas(load, {each: left}, len(part.replicas))
    return moves


def _difference(ours: tuple[tuple[int, int, int], ...], theirs: tuple[tuple[int, int, int], ...]) -> str:
    """The first API whose versions differ."""
    left, right = ({key: (first, last) for key, first, last in each} for each in (ours, theirs))
    for key in sorted(left.keys() | right.keys()):
        if left.get(key) != right.get(key):
            return f"{_api_name(key)} {_versions(left.get(key))} and {_versions(right.get(key))}"
    return "the same versions"


def _api_name(key: int) -> str:
    return ApiKey(key).name if key in ApiKey._value2member_map_ else f"API {key}"


def _versions(found: tuple[int, int] | None) -> str:
    return "none" if found is None else f"{found[0]}-{found[1]}"
