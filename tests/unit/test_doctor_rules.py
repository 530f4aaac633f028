"""The rules of `barnabas doctor` on made evidence: their boundaries, what they leave alone, and the
report."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.admin.configurations import ConfigEntry, ConfigSource
from barnabas.client.admin.log_dirs import LogDirContents, StoredReplica
from barnabas.client.admin.offsets import FoundOffset
from barnabas.client.admin.topics import PartitionDescription, TopicDescription
from barnabas.doctor.diagnosis import Diagnosis, RuleOutcome, diagnose
from barnabas.doctor.evidence.cluster import BrokersPart, BrokerView, MomentPart, TopicsPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart, TopicConfigsPart
from barnabas.doctor.evidence.part import Absent, Evidence, EvidencePart, Gap, Why
from barnabas.doctor.evidence.records import RecordTimesPart
from barnabas.doctor.evidence.storage import EarlierStoragePart, LogDirsPart, ReassignmentsPart
from barnabas.doctor.finding import Danger, MendingCommand
from barnabas.doctor.placement import BrokerLoad, is_skewed, level_leaders, level_replicas, spread_over_racks
from barnabas.doctor.reading.registration import READERS
from barnabas.doctor.report import diagnosis_document, report_lines
from barnabas.doctor.rules import ALL_RULES
from barnabas.wire.kafka.errors import ErrorCode

ADDRESS = ["--bootstrap-server", "broker-1.example.com:9092"]
GB = 1 << 30


def topic(name: str, *partitions: tuple[list[int], list[int]], leader: int | None = -1) -> TopicDescription:
    """A topic of (replicas, in-sync replicas); the first in sync leads unless another is named."""
    return TopicDescription(
        name,
        Uuid(bytes(16)),
        name.startswith("__"),
        [
            PartitionDescription(number, (isr or [None])[0] if leader == -1 else leader, 1, replicas, isr, [])
            for number, (replicas, isr) in enumerate(partitions)
        ],
    )


def topics(*found: TopicDescription) -> TopicsPart:
    return TopicsPart(topics=found)


def brokers(*ids: int, silent: Sequence[int] = (), racks: Mapping[int, str] | None = None) -> BrokersPart:
    views = {
        each: BrokerView(
            *(each, "h", 9092, (racks or {}).get(each)),
            error="no answer" if each in silent else None,
            controller_id=ids[0],
            knows=frozenset(ids),
        )
        for each in ids
    }
    return BrokersPart(cluster_id="c", controller_id=ids[0], views=views, is_kraft=False, features={})


def configs(**by_topic: Mapping[str, object]) -> TopicConfigsPart:
    return TopicConfigsPart(entries={name: entries(values) for name, values in by_topic.items()})


def entries(values: Mapping[str, object]) -> dict[str, ConfigEntry]:
    return {
        name: ConfigEntry(name, str(value), ConfigSource.DYNAMIC_TOPIC_CONFIG, False, False, [])
        for name, value in values.items()
    }


def apply(rule: str, *parts: EvidencePart, absent: Mapping[type[EvidencePart], Absent] | None = None) -> Diagnosis:
    """The diagnosis of one rule."""
    return diagnose(Evidence(parts, absent), [each for each in ALL_RULES if each.name == rule])


def subjects(rule: str, *parts: EvidencePart) -> list[str]:
    found = apply(rule, *parts)
    assert found.checks[0].outcome in (RuleOutcome.PASSED, RuleOutcome.FOUND), found
    return [each for finding in found.findings for each in finding.subjects]


@pytest.mark.parametrize(
    ("isr", "found"),
    [
        ([1, 2, 3], {}),
        ([1, 2], {"under-replicated", "at-min-isr"}),
        ([1], {"under-replicated", "under-min-isr"}),
        ([], {"offline-partitions"}),
    ],
)
def test_each_state_of_an_in_sync_set_is_found_by_its_rules_only(isr: list[int], found: set[str]) -> None:
    """A partition of three replicas, of which two must be in sync."""
    parts = topics(topic("t", ([1, 2, 3], isr))), brokers(1, 2, 3), configs(t={"min.insync.replicas": 2})
    rules = ("offline-partitions", "under-min-isr", "at-min-isr", "under-replicated", "min-isr-equals-factor")
    assert {rule for rule in rules if subjects(rule, *parts)} == set(found)


@pytest.mark.parametrize(
    ("factor", "least", "found"),
    [
        (3, 1, None),
        (3, 2, None),
        (3, 3, "min-isr-equals-factor"),
        (3, 4, "min-isr-above-factor"),
        (1, 1, None),
        (1, 2, "min-isr-above-factor"),
    ],
)
def test_the_minimum_in_sync_is_compared_with_the_factor(factor: int, least: int, found: str | None) -> None:
    """One replica of one is the usual setting of a topic without copies."""
    replicas = list(range(factor))
    parts = topics(topic("t", (replicas, replicas))), configs(t={"min.insync.replicas": least})
    assert [rule for rule in ("min-isr-equals-factor", "min-isr-above-factor") if subjects(rule, *parts)] == (
        [found] if found else []
    )


def test_one_finding_has_all_partitions_and_names_a_few() -> None:
    """500 partitions with one fault are one sentence."""
    found = apply("under-replicated", topics(topic("t", *[([1, 2], [1])] * 500)), brokers(1, 2)).findings
    assert len(found) == 1
    assert len(found[0].subjects) == 500
    assert found[0].sentence == (
        "500 partitions are under-replicated, because broker 2 is not in sync: t-0, t-1, t-2 and 497 more."
    )
    assert len(found[0].evidence) == 3


@pytest.mark.parametrize("rule", ["replication-factor-1", "internal-topic-factor", "skewed-leaders", "skewed-replicas"])
def test_one_broker_cannot_have_copies(rule: str) -> None:
    """The rule does not apply, and says so; it has not passed."""
    parts = topics(topic("t", ([1], [1])), topic("__consumer_offsets", ([1], [1]))), brokers(1)
    (check,) = apply(rule, *parts).checks
    assert (check.outcome, check.is_incomplete) == (RuleOutcome.NOT_APPLICABLE, False)
    assert check.reason == "the cluster has one broker, so each record has one copy"


def test_an_unclean_election_needs_a_second_replica() -> None:
    """With one there is no other that could lead."""
    setting = {"unclean.leader.election.enable": "true"}
    both = configs(one=setting, two=setting)
    assert subjects("unclean-leader-election", topics(topic("one", ([1], [1])), topic("two", ([1, 2], [1]))), both) == [
        "two"
    ]


def test_a_preferred_leader_that_is_not_in_sync_is_not_missed() -> None:
    """An election would not make it the leader."""
    lagging, ready = topic("a", ([1, 2], [2]), leader=2), topic("b", ([1, 2], [2, 1]), leader=2)
    assert subjects("preferred-leader-not-leading", topics(lagging, ready), brokers(1, 2)) == ["b-0"]
    assert subjects("preferred-leader-not-leading", topics(ready), brokers(1, 2, silent=[1])) == []


@pytest.mark.parametrize(
    ("racks", "replicas", "found"),
    [
        ({1: "a", 2: "a", 3: "b"}, [1, 2], True),
        ({1: "a", 2: "a", 3: "b"}, [1, 3], False),
        ({1: "a", 2: "a", 3: "b"}, [1, 2, 3], False),
        ({1: "a", 2: "a", 3: "a"}, [1, 2], False),
        ({}, [1, 2], False),
    ],
)
def test_racks_count_where_there_are_several(racks: dict[int, str], replicas: list[int], found: bool) -> None:
    """Three replicas in two racks are as good as it gets."""
    parts = topics(topic("t", (replicas, replicas))), brokers(1, 2, 3, racks=racks)
    assert subjects("racks-ignored", *parts) == (["t-0"] if found else [])


@pytest.mark.parametrize(
    ("usable", "before", "found"),
    [
        (16 * GB, None, None),
        (14 * GB, None, "log-dir-fills-up"),
        (5 * GB, None, "log-dir-fills-up"),
        (4 * GB, None, "log-dir-full"),
        (50 * GB, 50 * GB, None),
        (50 * GB, 51 * GB, "log-dir-fills-up"),
        (50 * GB, 49 * GB, None),
    ],
)
def test_a_log_dir_is_judged_by_what_is_left_and_how_it_grows(
    usable: int, before: int | None, found: str | None
) -> None:
    """Two readings are ten minutes apart: a GB in that time fills 50 GB in nine hours."""
    now = LogDirsPart(dirs={1: (LogDirContents("/d", ErrorCode.NONE, {}, 100 * GB, usable),)})
    earlier: list[EvidencePart] = []
    if before is not None:
        dirs = {1: (LogDirContents("/d", ErrorCode.NONE, {}, 100 * GB, before),)}
        earlier.append(EarlierStoragePart(before_ms=600_000, dirs=dirs, moves={}))
    rules = [rule for rule in ("log-dir-full", "log-dir-fills-up") if subjects(rule, now, *earlier)]
    assert rules == ([found] if found else [])


def test_a_log_dir_of_unknown_size_is_not_judged() -> None:
    """Brokers before 3.3 do not say it."""
    parts = LogDirsPart(dirs={1: (LogDirContents("/d", ErrorCode.NONE, {}, None, None),)})
    assert subjects("log-dir-full", parts) == []


def test_kafkas_own_defaults_are_no_contradiction() -> None:
    """max.message.bytes is 12 bytes above replica.fetch.max.bytes."""
    limits = BrokerConfigsPart(entries={1: entries({"replica.fetch.max.bytes": 1_048_576})})
    found = configs(usual={"max.message.bytes": 1_048_588}, large={"max.message.bytes": 1_048_589})
    parts = topics(topic("usual", ([1], [1])), topic("large", ([1], [1])))
    assert subjects("batches-above-fetch", parts, found, limits) == ["large"]


def test_a_topic_is_lowered_only_below_what_brokers_receive() -> None:
    """Batches above replica.fetch.max.bytes do arrive: the brokers' limit is what should change."""
    limits = BrokerConfigsPart(
        entries={1: entries({"replica.fetch.max.bytes": 1_048_576, "socket.request.max.bytes": 104_857_600})}
    )
    found = configs(large={"max.message.bytes": 5_000_000}, huge={"max.message.bytes": 200_000_000})
    parts = topics(topic("large", ([1], [1])), topic("huge", ([1], [1])))
    (finding,) = apply("batches-above-fetch", parts, found, limits).findings
    command, advice = finding.mends
    assert isinstance(command, MendingCommand)
    assert command.arguments[-4:] == ("--entity-name", "huge", "--add-config", "max.message.bytes=104792064")
    assert "replica.fetch.max.bytes=5000000 in server.properties" in str(advice)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_leaders_that_the_controller_brings_back_may_be_waited_for(enabled: str) -> None:
    """After a restart nothing has to be done where auto.leader.rebalance.enable is true."""
    settings = {"auto.leader.rebalance.enable": enabled, "leader.imbalance.check.interval.seconds": 300}
    found = BrokerConfigsPart(entries={1: entries(settings | {"leader.imbalance.per.broker.percentage": 10})})
    parts = topics(topic("t", ([1, 2], [2, 1]), leader=2))
    (finding,) = apply("preferred-leader-not-leading", parts, brokers(1, 2), found).findings
    words = [each for each in finding.mends if isinstance(each, str)]
    assert (len(words) == 1 and "every 5 minutes" in words[0]) is (enabled == "true")


@pytest.mark.parametrize(("present", "advice"), [((1, 2), "start broker 3 again"), ((1, 2, 3), "start more brokers")])
def test_a_broker_that_is_away_is_no_reason_for_fewer_copies(present: tuple[int, ...], advice: str) -> None:
    """It has replicas of other topics, so that it is known."""
    limits = BrokerConfigsPart(entries={1: entries({"transaction.state.log.replication.factor": 4})})
    parts = topics(topic("t", ([1, 2, 3], [1, 2])))
    (finding,) = apply("internal-topics", parts, brokers(*present), limits).findings
    assert str(finding.mends[0]).startswith(advice)


@pytest.mark.parametrize(("logs_bytes", "is_by_others"), [(1, True), (90 * GB, False)])
def test_a_log_dir_that_other_files_fill_is_not_mended_by_retention(logs_bytes: int, is_by_others: bool) -> None:
    """The logs take less than half of what is used."""
    replica = StoredReplica(logs_bytes, 0, is_future=False)
    now = LogDirsPart(
        dirs={1: (LogDirContents("/d", ErrorCode.NONE, {TopicPartition("t", 0): replica}, 100 * GB, GB),)}
    )
    (finding,) = apply("log-dir-full", now).findings
    assert ("other files" in str(finding.mends[0])) is is_by_others


@pytest.mark.parametrize(("ids", "factor"), [((1, 2), 2), ((1, 2, 3, 4), 3)])
def test_internal_topics_get_no_more_copies_than_there_are_brokers(ids: tuple[int, ...], factor: int) -> None:
    """With a higher factor the brokers could not create them."""
    limits = BrokerConfigsPart(entries={1: entries({"offsets.topic.replication.factor": 1})})
    (finding,) = apply("internal-topic-settings", topics(), brokers(*ids), limits).findings
    assert f"offsets.topic.replication.factor={factor} " in str(finding.mends[0])


@pytest.mark.parametrize(("ids", "is_fewer"), [((1, 2), True), ((1, 2, 4), False)])
def test_a_plan_that_takes_copies_away_says_so(ids: tuple[int, ...], is_fewer: bool) -> None:
    """Broker 3 is away, and only a fourth broker can take its replicas."""
    (finding,) = apply("broker-away", topics(topic("t", ([1, 2, 3], [1, 2]))), brokers(*ids)).findings
    assert ("1 partition, which has fewer" in str(finding.mends[0])) is is_fewer
    assert {len(replicas) for replicas in finding.moves.values()} == {2 if is_fewer else 3}


def test_a_move_to_a_broker_that_is_away_stands_still() -> None:
    """Without a second reading nothing is said of other moves."""
    from barnabas.client.admin.reassignments import Reassignment

    moves = ReassignmentsPart(
        moves={
            TopicPartition("t", 0): Reassignment([1, 2], [2], [1]),
            TopicPartition("t", 1): Reassignment([1, 3], [3], [1]),
        }
    )
    assert subjects("reassignment-stands-still", moves, brokers(1, 2), LogDirsPart(dirs={})) == ["t-1"]


def test_records_in_the_future_have_their_distance() -> None:
    """The reader's clock is what they are compared with."""
    times = RecordTimesPart(future={TopicPartition("t", 0): FoundOffset(5, 8_000_000)}, old={})
    (finding,) = apply("records-in-the-future", times, MomentPart(now_ms=800_000)).findings
    assert finding.evidence == ("t-0: offset 5 is 2 hours after this clock",)


def test_a_rule_without_its_evidence_is_not_checked() -> None:
    """A right that is missing makes the answer incomplete; what was not asked for does not."""
    for why, is_incomplete in ((Why.NO_RIGHT, True), (Why.UNREACHABLE, True), (Why.UNSUPPORTED, False)):
        (check,) = apply("log-dir-offline", absent={LogDirsPart: Absent(why, "because")}).checks
        assert (check.outcome, check.reason) == (RuleOutcome.NOT_CHECKED, "because")
        assert check.is_incomplete == is_incomplete


def test_a_gap_of_a_part_is_a_gap_of_its_rules() -> None:
    """The rule has passed for the rest, and the diagnosis is not complete."""
    gap = Gap("topic u", Absent(Why.NO_RIGHT, "the right Describe is missing"))
    found = diagnose(
        Evidence([TopicsPart(topics=(topic("t", ([1, 2], [1, 2])),), gaps=(gap,)), brokers(1, 2)]),
        [rule for rule in ALL_RULES if rule.name == "under-replicated"],
    )
    assert found.is_incomplete
    assert list(report_lines(found, ADDRESS)) == [
        "Nothing is wrong in what was seen; 1 of 1 rules was checked.",
        "Checked in part: under-replicated: topic u not seen (the right Describe is",
        "  missing).",
    ]


def test_a_report_is_ordered_by_danger_and_80_columns_wide() -> None:
    """Names of 249 characters are left whole."""
    long = "n" * 249
    parts = topics(topic("t", *[([1, 2, 3], [1])] * 40), topic(long, ([2], [])), topic("u", ([1, 2, 3], [3])))
    found = diagnose(
        Evidence([parts, brokers(1, 3), configs(t={"min.insync.replicas": 2})]),
        [rule for rule in ALL_RULES if rule.check.__module__.endswith("replication")],
    )
    dangers = [finding.danger for finding in found.findings]
    assert dangers == sorted(dangers)
    assert dangers[0] is Danger.UNAVAILABLE
    lines = list(report_lines(found, ADDRESS))
    assert max(len(line) for line in lines if long not in line) <= 80
    assert any(long in line for line in lines)
    document = diagnosis_document(found, ADDRESS)
    assert len(document["findings"][0]["subjects"]) >= 1
    command = document["findings"][0]["mends"][1]["command"]
    assert command.startswith("barnabas topics --bootstrap-server broker-1.example.com:9092 --describe")


@pytest.mark.parametrize(("reason", "shown"), [("is it there?", "is it there?"), ("it is off", "it is off.")])
def test_a_reason_ends_as_a_sentence(reason: str, shown: str) -> None:
    """A question mark is enough."""
    found = apply("log-dir-full", absent={LogDirsPart: Absent(Why.UNREACHABLE, reason)})
    assert f"Not checked: log-dir-full: {shown}" in list(report_lines(found, ADDRESS))


def test_each_part_that_a_rule_takes_has_a_reader() -> None:
    """One registration each; names are unique and in kebab case."""
    names = [rule.name for rule in ALL_RULES]
    assert len(set(names)) == len(names) >= 30
    assert {kind for rule in ALL_RULES for kind in rule.takes} <= READERS.keys()
    for rule in ALL_RULES:
        assert rule.name == rule.name.lower().replace("_", "-").replace(" ", "-")
        assert not rule.summary.endswith(".")
        assert set(rule.takes) >= rule.optional


PARTITIONS = st.lists(st.permutations([1, 2, 3, 4]).map(lambda each: each[:2]), min_size=1, max_size=60)


@given(PARTITIONS)
def test_levelled_leaders_keep_their_replicas(assigned: list[list[int]]) -> None:
    """The most loaded broker leads no more than before, and each set of replicas is the same."""
    before = {TopicPartition("t", number): replicas for number, replicas in enumerate(assigned)}
    moves = level_leaders([1, 2, 3, 4], before)
    after = before | {each: list(replicas) for each, replicas in moves.items()}
    assert all(sorted(after[each]) == sorted(before[each]) for each in before)
    counts = [[replicas[0] for replicas in places.values()] for places in (before, after)]
    assert max(map(counts[1].count, range(1, 5))) <= max(map(counts[0].count, range(1, 5)))


@given(PARTITIONS)
def test_levelled_replicas_stay_apart(assigned: list[list[int]]) -> None:
    """No broker gets a partition twice, and no two replicas come into one rack that were not."""
    racks = {1: "a", 2: "a", 3: "b", 4: "c", 5: "c"}
    before = {TopicPartition("t", number): replicas for number, replicas in enumerate(assigned)}
    load = BrokerLoad(racks, assigned)
    widest = max(load.replicas.values())
    for each, replicas in level_replicas(load, before).items():
        assert len(set(replicas)) == len(before[each])
        assert len({racks[one] for one in replicas}) >= len({racks[one] for one in before[each]})
    assert max(load.replicas.values()) <= widest


@given(PARTITIONS)
def test_replicas_spread_over_racks_are_in_as_many_as_possible(assigned: list[list[int]]) -> None:
    """The first replica stays where it is."""
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    before = {TopicPartition("t", number): replicas for number, replicas in enumerate(assigned)}
    for each, replicas in spread_over_racks(BrokerLoad(racks, assigned), before).items():
        assert replicas[0] == before[each][0]
        assert len({racks[one] for one in replicas}) == 2
        assert len(set(replicas)) == 2


@pytest.mark.parametrize(("count", "mean", "expected"), [(4, 4, False), (9, 4, False), (10, 4, True), (6, 2, True)])
def test_chance_is_no_skew(count: int, mean: float, expected: bool) -> None:
    """Small numbers differ by chance."""
    assert is_skewed(count, mean) == expected
