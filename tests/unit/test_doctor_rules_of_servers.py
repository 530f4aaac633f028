"""The doctor's rules on settings, security and coordination at their boundaries."""

import pytest

from barnabas.client.admin.acls import Acl
from barnabas.client.admin.configurations import ConfigEntry, ConfigSource, Synonym
from barnabas.doctor.diagnosis import RuleOutcome, diagnose
from barnabas.doctor.evidence.cluster import BrokersPart, BrokerView, MomentPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart
from barnabas.doctor.evidence.coordination import (
    EnsemblePart,
    MemberLine,
    ServerClientsPart,
    ServerFiguresPart,
    ServerLook,
    ServerSettingsPart,
    ServerSnapshotsPart,
    SnapshotView,
    ZnodeList,
    ZnodesPart,
)
from barnabas.doctor.evidence.listeners import listeners_of
from barnabas.doctor.evidence.part import Absent, Evidence, Gap, Why
from barnabas.doctor.evidence.security import AclsPart, CertificatesPart, CertificateView, ShownChain
from barnabas.doctor.finding import Danger, MendingCommand, NotApplicableError
from barnabas.doctor.rules import ALL_RULES, coordination, coordination_servers, security, settings

NOW_MS = 1_700_000_000_000
MOMENT = MomentPart(now_ms=NOW_MS)
DAY_MS = 86_400_000
NOT_SHOWN = Absent(Why.UNSUPPORTED, "not shown")
ADDRESS = "127.0.0.1:2181"


def entry(
    name: str, value: str | None, source: ConfigSource = ConfigSource.STATIC_BROKER_CONFIG, **more: object
) -> ConfigEntry:
    synonyms = [Synonym(name, "default", ConfigSource.DEFAULT_CONFIG)]
    return ConfigEntry(name, value, source, False, True, synonyms, **{"type": 2, **more})  # type: ignore[arg-type]


def configs(*brokers: list[ConfigEntry]) -> BrokerConfigsPart:
    return BrokerConfigsPart(
        entries={number: {each.name: each for each in given} for number, given in enumerate(brokers)}
    )


def server(zxid: int = 5, **more: object) -> ServerLook:
    return ServerLook(ADDRESS, "standalone", zxid=zxid, **more)  # type: ignore[arg-type]


def ensemble(*servers: ServerLook, voters: int = 0) -> EnsemblePart:
    members = tuple(MemberLine(number, is_voter=True, client_address=None) for number in range(1, voters + 1))
    return EnsemblePart(connect=(ADDRESS,), servers=servers, members=members)


@pytest.mark.parametrize(
    ("begins_ms", "ends_ms", "danger"),
    [
        (-1, 30 * DAY_MS + 1, []),
        (-1, 30 * DAY_MS, [None]),
        (-1, 1, [None]),
        (-1, 0, [Danger.UNAVAILABLE]),
        (1, 90 * DAY_MS, [Danger.UNAVAILABLE]),
    ],
)
def test_a_certificate_ends_within_thirty_days(begins_ms: int, ends_ms: int, danger: list[Danger | None]) -> None:
    """One that is over, or has not begun, keeps clients out now."""
    good = CertificateView("broker", NOW_MS - DAY_MS, NOW_MS + 900 * DAY_MS)
    authority = CertificateView("authority", NOW_MS + begins_ms, NOW_MS + ends_ms)
    chain = ShownChain("broker 0", "127.0.0.1:9093", "SSL", (good, authority))
    found = list(security.certificates_end(CertificatesPart(chains=(chain,)), MOMENT))
    assert [each.danger for each in found] == danger
    with pytest.raises(NotApplicableError):
        list(security.certificates_end(CertificatesPart(chains=()), MOMENT))
    unseen = (Gap("SSL of broker 0", Absent(Why.UNREACHABLE, "no TLS handshake")),)
    assert not list(security.certificates_end(CertificatesPart(chains=(), gaps=unseen), MOMENT))


@pytest.mark.parametrize(
    ("acl", "is_found"),
    [
        (Acl("CLUSTER", "kafka-cluster", "User:*", "ALTER"), True),
        (Acl("TOPIC", "*", "User:ANONYMOUS", "ALL"), True),
        (Acl("TOPIC", "*", "User:*", "READ"), False),
        (Acl("TOPIC", "*", "User:ann", "ALL"), False),
        (Acl("TOPIC", "*", "User:*", "ALL", "DENY"), False),
        (Acl("TOPIC", "*", "User:*", "ALL", "ALLOW", "10.0.0.1"), False),
    ],
)
def test_an_acl_is_open_for_everyone_and_more_than_reading_and_writing(acl: Acl, is_found: bool) -> None:
    """Reading and writing are often meant for all."""
    assert bool(list(security.open_acls(AclsPart(entries=(acl,))))) is is_found


def test_listeners_have_the_protocol_of_the_map_and_the_advertised_address() -> None:
    """Without a map a listener's name is its protocol."""
    found = listeners_of(
        {
            each.name: each
            for each in (
                entry("listeners", "IN://:9092,SSL://[::1]:9093"),
                entry("advertised.listeners", "IN://host:19092"),
                entry("listener.security.protocol.map", "IN:SASL_SSL"),
            )
        }
    )
    assert [tuple(each) for each in found] == [("IN", "SASL_SSL", "host", 19092), ("SSL", "SSL", "::1", 9093)]
    assert all(each.has_tls for each in found)


@pytest.mark.parametrize(
    ("hours", "ms", "source", "is_found"),
    [
        ("24", "3600000", ConfigSource.STATIC_BROKER_CONFIG, True),
        ("1", "3600000", ConfigSource.STATIC_BROKER_CONFIG, False),
        ("24", "3600000", ConfigSource.DYNAMIC_BROKER_CONFIG, False),
        ("24", "3600000", ConfigSource.DEFAULT_CONFIG, False),
    ],
)
def test_a_setting_is_overridden_by_another_one_of_the_same_file(
    hours: str, ms: str, source: ConfigSource, is_found: bool
) -> None:
    """The same time in another unit is no fault, nor a dynamic value over the file's."""
    part = configs([entry("log.retention.hours", hours), entry("log.retention.ms", ms, source)])
    assert bool(list(settings.overridden_settings(part))) is is_found


@pytest.mark.parametrize(
    ("name", "is_found"),
    [
        ("log.segment.byte", True),
        ("super.users", False),
        ("listener.name.log.segment.bytes", False),
        ("my.plug.in", False),
    ],
)
def test_an_unknown_setting_is_named_when_it_is_nearly_a_known_one(name: str, is_found: bool) -> None:
    """Others may be read by plug-ins."""
    part = configs([entry("log.segment.bytes", "1"), entry(name, None, type=0)])
    assert bool(list(settings.unknown_settings(part))) is is_found


def test_a_setting_without_effect_is_named_when_it_is_set() -> None:
    """Brokers say so in its documentation."""
    doc = "Threads. Without effect here: one loop serves all."
    part = configs([entry("num.io.threads", "16", documentation=doc), entry("other", "1", documentation="Works.")])
    (found,) = settings.ignored_settings(part)
    assert found.evidence == ("num.io.threads: 16, but one loop serves all (broker 0)",)
    unset = configs([entry("num.io.threads", "8", ConfigSource.DEFAULT_CONFIG, documentation=doc)])
    assert not list(settings.ignored_settings(unset))


def test_brokers_differ_in_files_or_by_a_dynamic_value() -> None:
    """One of two rules finds it, by where the value comes from."""
    name, dynamic = "message.max.bytes", ConfigSource.DYNAMIC_BROKER_CONFIG
    in_files = configs([entry(name, "1")], [entry(name, "2")])
    by_value = configs([entry(name, "1", dynamic)], [entry(name, "2")])
    checks = (settings.brokers_differ, settings.dynamic_values_of_one_broker)
    assert [len(list(check(in_files))) for check in checks] == [1, 0]
    assert [len(list(check(by_value))) for check in checks] == [0, 1]
    assert not any(list(check(configs([entry(name, "1")], [entry(name, "1")]))) for check in checks)


@pytest.mark.parametrize(("voters", "is_found"), [(0, False), (1, False), (2, True), (3, False), (4, True)])
def test_an_ensemble_is_even(voters: int, is_found: bool) -> None:
    """A server alone has no line."""
    assert bool(list(coordination.ensemble_is_even(ensemble(server(), voters=voters)))) is is_found


@pytest.mark.parametrize(
    ("voters", "away", "leaving"), [(2, None, None), (4, None, "3"), (4, 2, "2")], ids=["two", "leader", "away"]
)
def test_the_voter_that_an_ensemble_misses_least_is_taken_out(
    voters: int, away: int | None, leaving: str | None
) -> None:
    """The last voter leads; one that is away goes first; ZooKeeper refuses to leave one voter."""
    servers = tuple(
        ServerLook(f"h:{number}", "leader" if number == voters else "follower", is_serving=number != away)
        for number in range(1, voters + 1)
    )
    members = tuple(MemberLine(number, is_voter=True, client_address=f"h:{number}") for number in range(1, voters + 1))
    (found,) = coordination.ensemble_is_even(EnsemblePart(connect=("h:1",), servers=servers, members=members))
    commands = [each.arguments for each in found.mends if isinstance(each, MendingCommand)]
    assert commands == ([("h:1", "reconfig", "-remove", leaving)] if leaving else [])


def test_only_the_brokers_that_know_one_server_are_named() -> None:
    """Another broker knows two of the three."""
    known = configs([entry("zookeeper.connect", "a:1")], [entry("zookeeper.connect", "a:1,b:1")])
    (found,) = coordination.connect_string_is_short(ensemble(server(), voters=3), known)
    assert found.subjects == ("broker 0",)
    assert "Broker 0 knows one of 3" in found.sentence
    (found,) = coordination.connect_string_is_short(ensemble(server(), voters=3), NOT_SHOWN)
    assert found.subjects == (ADDRESS,)


@pytest.mark.parametrize(("hosts", "is_found"), [(("a", "b"), True), (("a",), False), (("127.0.0.1", "b"), True)])
def test_brokers_on_several_machines_depend_on_one_server(hosts: tuple[str, ...], is_found: bool) -> None:
    """A single broker is lost with its own disk, too."""
    views = {number: BrokerView(number, host, 9092, None) for number, host in enumerate(hosts)}
    brokers = BrokersPart(cluster_id="c", controller_id=0, views=views, is_kraft=False, features={})
    assert bool(list(coordination.single_server(ensemble(server()), brokers))) is is_found
    assert not list(coordination.single_server(ensemble(server(), voters=3), brokers))


def test_members_are_away_while_others_serve() -> None:
    """A server that does not allow srvr may serve."""
    away = ServerLook("h:1", None, "unreachable", is_serving=False)
    silent = ServerLook("h:2", None, "srvr is not allowed", is_serving=None)
    checks = (coordination.ensemble_without_leader, coordination.members_away)
    assert [len(list(check(ensemble(away, server())))) for check in checks] == [0, 1]
    assert [len(list(check(ensemble(away, silent)))) for check in checks] == [0, 1]
    assert [len(list(check(ensemble(away)))) for check in checks] == [1, 0]
    (found,) = coordination.ensemble_without_leader(ensemble(away))
    assert (found.danger, "serves clients" in found.sentence) == (None, True)
    cut_off = ServerLook("h:3", None, "unreachable", is_serving=False, is_unreachable=True)
    (found,) = coordination.ensemble_without_leader(ensemble(cut_off))
    assert (found.danger, "answers from here" in found.sentence) == (Danger.COMING, True)
    leaders = [ServerLook(f"h:{port}", "leader") for port in (1, 2)]
    (found,) = coordination.ensemble_without_leader(ensemble(*leaders))
    assert "2 leaders" in found.sentence


def test_an_ensemble_whose_members_are_not_known_is_not_checked() -> None:
    """To say that the rules do not apply would hide that an answer is missing."""
    unread = Absent(Why.UNREACHABLE, "no session")
    part = EnsemblePart(connect=(ADDRESS,), servers=(server(),), members=unread)
    rules = [each for each in ALL_RULES if each.name in ("ensemble-even", "short-connect-string")]
    found = diagnose(Evidence((part,)), rules)
    assert {each.outcome for each in found.checks} == {RuleOutcome.NOT_CHECKED}
    assert found.is_incomplete


@pytest.mark.parametrize(("outstanding", "is_found"), [(None, False), (100, False), (101, True)])
def test_requests_are_outstanding_beyond_a_hundred(outstanding: int | None, is_found: bool) -> None:
    """A few are always under way."""
    part = ensemble(server(outstanding=outstanding))
    assert bool(list(coordination_servers.requests_are_outstanding(part))) is is_found


@pytest.mark.parametrize(
    ("average", "count", "slow", "is_found"),
    [(101.0, 10.0, 0.0, True), (100.0, 10.0, 0.0, False), (101.0, 9.0, 0.0, False), (1.0, 100.0, 6.0, True)],
)
def test_a_disk_is_slow_on_average_or_often(average: float, count: float, slow: float, is_found: bool) -> None:
    """Ten syncs at least, of which more than one in twenty, or the average, is slow."""
    figures = {"avg_fsynctime": average, "cnt_fsynctime": count, "fsync_threshold_exceed_count": slow}
    part = ServerFiguresPart(figures={ADDRESS: figures})
    assert bool(list(coordination_servers.fsync_is_slow(part))) is is_found


@pytest.mark.parametrize(
    ("znodes", "data", "is_found"), [(1e6, 0.0, False), (1e6 + 1, 0.0, True), (1.0, (500 << 20) + 1.0, True)]
)
def test_a_service_holds_too_much_by_number_or_size(znodes: float, data: float, is_found: bool) -> None:
    """A million znodes, or 500 MiB."""
    part = ServerFiguresPart(figures={ADDRESS: {"znode_count": znodes, "approximate_data_size": data}})
    assert bool(list(coordination_servers.too_many_znodes(part))) is is_found


@pytest.mark.parametrize(("count", "limit", "is_found"), [(8, 10, True), (7, 10, False), (900, 0, False)])
def test_an_address_has_many_connections(count: int, limit: int, is_found: bool) -> None:
    """0 is no limit."""
    part = ServerClientsPart(connections={ADDRESS: {"10.0.0.1": count}}, limits={ADDRESS: limit})
    assert bool(list(coordination_servers.too_many_connections(part))) is is_found


@pytest.mark.parametrize(
    ("zxid", "snapshot", "age_ms", "is_found"),
    [
        (200_001, 0, 0, True),
        (200_000, 0, 0, False),
        (1, 0, 7 * DAY_MS + 1, True),
        (1, 0, 7 * DAY_MS, False),
        (1, 1, 90 * DAY_MS, False),
        (1, -1, 90 * DAY_MS, False),
        ((2 << 32) + 5, (1 << 32) + 900_000, 0, False),
    ],
)
def test_a_snapshot_is_old_by_transactions_or_by_time(zxid: int, snapshot: int, age_ms: int, is_found: bool) -> None:
    """Twice snapCount, or a week in which something changed; a new epoch counts from 0."""
    part = ServerSnapshotsPart(snapshots={ADDRESS: SnapshotView(snapshot, (NOW_MS - age_ms) / 1000)})
    found = list(coordination_servers.snapshots_are_old(part, ensemble(server(zxid)), NOT_SHOWN, MOMENT))
    assert bool(found) is is_found


@pytest.mark.parametrize(("text", "is_found"), [(None, True), ("0", True), ("-1", True), ("24", False)])
def test_purging_is_off_without_an_interval(text: str | None, is_found: bool) -> None:
    """The default is 0."""
    shown = {} if text is None else {"autopurge.purgeInterval": text}
    assert bool(list(coordination_servers.autopurge_is_off(ServerSettingsPart(settings={ADDRESS: shown})))) is is_found


@pytest.mark.parametrize(
    ("list_bytes", "data_bytes", "rejected", "is_found"),
    [(2_936_012, 734_002, 0.0, False), (2_936_013, 0, 0.0, True), (0, 734_003, 0.0, True), (0, 0, 1.0, True)],
)
def test_jute_maxbuffer_is_near_from_seven_tenths(
    list_bytes: int, data_bytes: int, rejected: float, is_found: bool
) -> None:
    """Lists count against what brokers read, data against what the server takes."""
    znodes = ZnodesPart(
        lists={"/brokers/topics": ZnodeList(9, list_bytes)},
        data_bytes={"/t": data_bytes},
        registrations=(),
        writable=(),
    )
    figures = ServerFiguresPart(figures={ADDRESS: {"large_requests_rejected": rejected}})
    assert bool(list(coordination_servers.jute_maxbuffer_is_near(znodes, NOT_SHOWN, figures))) is is_found
