"""Rules about leaders, the spread of replicas, racks, and moves.

In Kafka: `auto.leader.rebalance.enable`, ``kafka-leader-election``, `broker.rack`,
``kafka-reassign-partitions --list``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.configurations import ConfigSource
from barnabas.client.admin.log_dirs import LogDirContents
from barnabas.doctor.amounts import duration
from barnabas.doctor.evidence.cluster import BrokersPart, TopicsPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart, TopicConfigsPart, setting_number
from barnabas.doctor.evidence.part import Absent
from barnabas.doctor.evidence.storage import EarlierStoragePart, LogDirsPart, ReassignmentsPart
from barnabas.doctor.finding import Danger, Finding, MendingCommand
from barnabas.doctor.placement import BrokerLoad, is_skewed, level_leaders, level_replicas, spread_over_racks
from barnabas.doctor.rules.mending import PLAN_FILE, reset_topics, run_plan
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.rules.single_broker import require_brokers
from barnabas.doctor.words import brokers_named, counted, some

__all__ = [
    "preferred_leader_not_leading",
    "racks_ignored",
    "racks_on_some_brokers",
    "reassignment_stands_still",
    "skewed_leaders",
    "skewed_replicas",
    "unclean_leader_election",
]

_UNCLEAN = "unclean.leader.election.enable"
_SHOWN = 3


@rule("unclean-leader-election", Danger.DATA_LOSS, "replicas that are not in sync may lead, and lose records")
def unclean_leader_election(topics: TopicsPart, configs: TopicConfigsPart) -> Iterator[Finding]:
    """Topics with the setting, their own or from the brokers. A topic of one replica has no other
    that could lead."""
    found = {
        topic.name: configs.entries[topic.name][_UNCLEAN]
        for topic in topics.topics
        if any(len(part.replicas) > 1 for part in topic.partitions)
        and (entry := configs.entries.get(topic.name, {}).get(_UNCLEAN)) is not None
        and entry.value == "true"
    }
    if not found:
        return
    own = [name for name, entry in found.items() if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG]
    inherited = [name for name in found if name not in own]
    mends = [*reset_topics(dict.fromkeys(own, _UNCLEAN))]
    if inherited:
        mends.append(
            MendingCommand.of(
                "configs",
                "--alter",
                "--entity-type",
                "brokers",
                "--entity-default",
                "--add-config",
                f"{_UNCLEAN}=false",
            )
        )
    yield Finding(
        tuple(found),
        f"{counted(len(found), 'topic lets', 'topics let')} a replica lead that is not in sync, which loses "
        f"acknowledged records: {some(found)}.",
        tuple(
            f"{name}: {_UNCLEAN}=true, {'set for the topic' if name in own else 'from the brokers'}"
            for name in list(found)[:_SHOWN]
        ),
        tuple(mends),
    )


@rule("preferred-leader-not-leading", Danger.UNTIDY, "partitions are led by another than their preferred replica")
def preferred_leader_not_leading(
    topics: TopicsPart, brokers: BrokersPart, configs: BrokerConfigsPart | Absent
) -> Iterator[Finding]:
    """Partitions whose first replica is in sync, there, and does not lead. So it is after each
    restart of a broker, until the controller's next check."""
    present = brokers.racks
    found = {
        each: part
        for each, part in topics.partitions()
        if part.leader is not None and part.leader != part.replicas[0] in part.isr and part.replicas[0] in present
    }
    if not found:
        return
    idle = Counter(part.replicas[0] for part in found.values())
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'partition is', 'partitions are')} not led by the preferred replica, which is in sync: "
        f"{some(found)}.",
        (
            *(f"{each}: replicas {part.replicas}, leader {part.leader}" for each, part in list(found.items())[:_SHOWN]),
            *(f"broker {broker_id} should lead {count} more" for broker_id, count in sorted(idle.items())),
        ),
        (
            *_by_the_controller(configs),
            MendingCommand.of("leader-election", "--election-type", "preferred", "--all-topic-partitions"),
        ),
    )


def _by_the_controller(configs: BrokerConfigsPart | Absent) -> tuple[str, ...]:
    """Whether waiting is enough, where the brokers show it."""
    entries = [] if isinstance(configs, Absent) else list(configs.entries.values())
    settings = [entry.value for each in entries if (entry := each.get("auto.leader.rebalance.enable")) is not None]
    if not settings or any(value != "true" for value in settings):
        return ()
    seconds = max(setting_number(each, "leader.imbalance.check.interval.seconds") or 0 for each in entries)
    percent = max(setting_number(each, "leader.imbalance.per.broker.percentage") or 0 for each in entries)
    return (
        f"After a restart the controller does it by itself, every {duration(seconds * 1000)}, for a broker that does not "
        f"lead more than {percent}% of its partitions. At once:",
    )


@rule("skewed-leaders", Danger.UNTIDY, "some brokers lead far more partitions than others")
def skewed_leaders(topics: TopicsPart, brokers: BrokersPart) -> Iterator[Finding]:
    """Brokers that are preferred leaders of far more or fewer partitions than the mean. Leaders
    that are not preferred have a rule of their own; they come back by an election."""
    require_brokers(brokers, 2)
    preferred = {each: part.replicas for each, part in topics.partitions() if part.replicas}
    counts = _counts(brokers.racks, (replicas[0] for replicas in preferred.values()))
    moves = level_leaders(brokers.racks, preferred)
    mean = sum(counts.values()) / len(counts)
    skewed = [broker_id for broker_id, count in counts.items() if is_skewed(count, mean)]
    if not skewed or not moves:
        return
    yield Finding(
        tuple(f"broker {broker_id}" for broker_id in skewed),
        f"Leaders are skewed: {_share(counts, 'leads')}.",
        (f"{len(preferred)} partitions, {mean:.1f} for each broker on average",),
        (
            *run_plan("skewed-leaders"),
            MendingCommand.of("leader-election", "--election-type", "preferred", "--all-topic-partitions"),
        ),
        moves=moves,
    )


@rule("skewed-replicas", Danger.UNTIDY, "some brokers keep far more replicas than others")
def skewed_replicas(topics: TopicsPart, brokers: BrokersPart) -> Iterator[Finding]:
    """Brokers with far more or fewer replicas than the mean: a broker that was added gets none
    of the replicas that were there."""
    require_brokers(brokers, 2)
    placed = {each: part.replicas for each, part in topics.partitions()}
    counts = _counts(brokers.racks, (replica for replicas in placed.values() for replica in replicas))
    mean = sum(counts.values()) / len(counts)
    skewed = [broker_id for broker_id, count in counts.items() if is_skewed(count, mean)]
    moves = level_replicas(BrokerLoad(brokers.racks, placed.values()), placed)
    if not skewed or not moves:
        return
    yield Finding(
        tuple(f"broker {broker_id}" for broker_id in skewed),
        f"Replicas are skewed: {_share(counts, 'keeps')}.",
        (f"{sum(counts.values())} replicas, {mean:.1f} for each broker on average",),
        run_plan("skewed-replicas"),
        moves=moves,
    )


@rule("racks-ignored", Danger.DATA_LOSS, "partitions have replicas in fewer racks than they could")
def racks_ignored(topics: TopicsPart, brokers: BrokersPart) -> Iterator[Finding]:
    """Partitions with two replicas in one rack while another rack has none."""
    racks = {broker_id: rack for broker_id, rack in brokers.racks.items() if rack is not None}
    names = set(racks.values())
    if len(names) < 2:
        return
    found = {
        each: part.replicas
        for each, part in topics.partitions()
        if all(replica in racks for replica in part.replicas)
        and len({racks[replica] for replica in part.replicas}) < min(len(part.replicas), len(names))
    }
    if not found:
        return
    load = BrokerLoad(racks, (part.replicas for _, part in topics.partitions()))
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'partition has', 'partitions have')} two replicas in one rack while another has none, so "
        f"that the loss of one rack takes both: {some(found)}.",
        tuple(
            f"{each}: {', '.join(f'broker {replica} in rack {racks[replica]}' for replica in replicas)}"
            for each, replicas in list(found.items())[:_SHOWN]
        ),
        run_plan("racks-ignored"),
        moves=spread_over_racks(load, found),
    )


@rule("racks-on-some-brokers", Danger.COMING, "some brokers have a rack and others none, so that topics are refused")
def racks_on_some_brokers(brokers: BrokersPart) -> Iterator[Finding]:
    """Brokers without a rack beside such with one."""
    without = [view.broker_id for view in brokers.views.values() if view.rack is None]
    if not without or len(without) == len(brokers.views):
        return
    yield Finding(
        tuple(f"broker {broker_id}" for broker_id in without),
        f"{brokers_named(without, 'Broker')} {'has' if len(without) == 1 else 'have'} no rack while others have one: "
        "replicas cannot be placed by racks, and tools refuse to place them.",
        tuple(f"broker {view.broker_id}: rack {view.rack or 'none'}" for view in list(brokers.views.values())[:6]),
        (f"Set broker.rack in server.properties of {brokers_named(without)}, and restart.",),
    )


@rule("reassignment-stands-still", Danger.COMING, "replicas are being moved, and make no progress")
def reassignment_stands_still(
    reassignments: ReassignmentsPart,
    brokers: BrokersPart,
    log_dirs: LogDirsPart,
    earlier: EarlierStoragePart | Absent,
) -> Iterator[Finding]:
    """Moves to a broker that is not there; after two readings also those whose new replicas have
    not grown between them."""
    present = brokers.racks
    found: dict[TopicPartition, str] = {}
    for each, move in reassignments.moves.items():
        away = [broker_id for broker_id in move.adding if broker_id not in present]
        if away:
            found[each] = f"it moves to {brokers_named(away)}, which {'is' if len(away) == 1 else 'are'} not there"
        elif isinstance(earlier, EarlierStoragePart) and each in earlier.moves:
            before, now = _size(earlier.dirs, each, move.adding), _size(log_dirs.dirs, each, move.adding)
            if before == now:
                found[each] = f"{now} bytes were copied {earlier.before_ms / 1000:.0f} s ago, and are now"
    if not found:
        return
    yield Finding(
        tuple(map(str, found)),
        f"{counted(len(found), 'move of a partition stands', 'moves of partitions stand')} still: {some(found)}.",
        tuple(f"{each}: {why}" for each, why in list(found.items())[:_SHOWN]),
        (
            "Start the brokers to which replicas move; or raise the throttle; or cancel the moves:",
            MendingCommand.of("doctor", "--only", "reassignment-stands-still", "--plan", PLAN_FILE),
            MendingCommand.of("reassign-partitions", "--reassignment-json-file", PLAN_FILE, "--cancel"),
        ),
        moves={each: tuple(reassignments.moves[each].replicas) for each in found},
    )


def _size(dirs: Mapping[int, Iterable[LogDirContents]], each: TopicPartition, adding: list[int]) -> int:
    """The bytes of the new replicas."""
    return sum(
        found.size_bytes
        for broker_id in adding
        for log_dir in dirs.get(broker_id, ())
        if (found := log_dir.replicas.get(each)) is not None
    )


def _counts(present: Iterable[int], places: Iterable[int]) -> Counter[int]:
    counts = Counter(dict.fromkeys(present, 0))
    counts.update(place for place in places if place in counts)
    return counts


def _share(counts: Counter[int], verb: str) -> str:
    return some((f"broker {broker_id} {verb} {count}" for broker_id, count in counts.most_common()), 6)
