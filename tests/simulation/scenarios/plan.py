"""What a seed decides before its run: the cluster, its topics and clients, how long,
which faults."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from barnabas.base.randomness import Random
from simulation.scenarios.producers import ProducerKind

__all__ = ["RunPlan", "TopicPlan"]

_MOST_UNDER_WAY = 5
_CALM_EVERY = 4
_JOINING_EVERY = 3
_MOST_FAULTS = 6
_ENSEMBLE_SHARE = 0.2
_SMALL_SEGMENTS = {"segment.bytes": "4096"}
_KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "two in sync": {"min.insync.replicas": "2"},
    "retention": {"retention.bytes": "8192", "file.delete.delay.ms": "1000", **_SMALL_SEGMENTS},
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        "file.delete.delay.ms": "1000",
        **_SMALL_SEGMENTS,
    },
    "unclean": {"unclean.leader.election.enable": "true"},
}


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic."""

    partitions: int
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"

    @property
    def is_unclean(self) -> bool:
        return self.configs.get("unclean.leader.election.enable") == "true"


@dataclass(slots=True)
class RunPlan:
    """A run."""

    brokers: int
    topics: dict[str, TopicPlan]
    producers: tuple[ProducerKind, ...]
    users: int
    members: int
    duration_s: float
    faults: tuple[str, ...]
    mean_fault_gap_s: float
    replication: int = 3
    has_administrator: bool = False
    mean_produce_pause_s: float = 0.2
    mean_stay_s: float | None = None
    """How long members stay in their group; None: until the end."""
    coordination_servers: int = 1
    broker_settings: dict[str, str] = field(default_factory=dict)
    """Over those of `barnabas.testing.simulation.simulation`."""

    @classmethod
    def of(cls, seed: int, rng: Random, fault_names: Sequence[str]) -> "RunPlan":
        """The plan of a seed: most clusters are small and most runs short, so that
        many fit into a minute."""
        names = sorted(fault_names)
        faults: tuple[str, ...] = ()
        if seed % _CALM_EVERY:
            faults = tuple(sorted(rng.sample(names, rng.randint(1, _MOST_FAULTS))))
        brokers = rng.choices((1, 2, 3, 4, 5), (1, 1, 13, 3, 2))[0]
        kinds = rng.choices(("plain", "two in sync", "retention", "compacted", "unclean"), (6, 6, 2, 2, 1), k=2)
        topics = {
            f"topic{n}": TopicPlan(rng.randint(1, 2), _KINDS[kind])
            for n, kind in enumerate(kinds[: rng.choices((1, 2), (2, 1))[0]])
        }
        others = (
            ProducerKind(-1, False),
            ProducerKind(1, False, most_under_way=_MOST_UNDER_WAY),
            ProducerKind(0, False, most_under_way=_MOST_UNDER_WAY),
        )
        settings = {"log.flush.interval.messages": "1"} if rng.random() < 0.2 else {}
        if brokers == 1:  # no other replica could be in sync, or elected uncleanly
            topics = {name: TopicPlan(topic.partitions) for name, topic in topics.items()}
        return cls(
            brokers=brokers,
            topics=topics,
            producers=(
                ProducerKind(
                    most_under_way=_MOST_UNDER_WAY if seed % 2 else 1, joins_partitions=not seed % _JOINING_EVERY
                ),
                *rng.sample(others, rng.choice((0, 0, 1))),
            ),
            users=rng.choice((0, 0, 1, 2)),
            members=rng.choice((0, 1, 2, 3)),
            duration_s=rng.choices((10.0, 15.0, 25.0, 40.0), (4, 4, 2, 1))[0],
            faults=faults,
            mean_fault_gap_s=rng.choice((1.0, 2.5, 5.0)),
            replication=min(3, brokers),
            has_administrator=rng.random() < 0.3,
            broker_settings=settings,
            coordination_servers=3 if rng.random() < _ENSEMBLE_SHARE else 1,
        )
