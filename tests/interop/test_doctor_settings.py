"""The doctor's rules on settings, security and coordination, each provoked at a cluster of ours."""

from pathlib import Path

import pytest

from barnabas.base.randomness import new_random
from barnabas.client import Admin
from barnabas.client.admin.acls import Acl
from barnabas.coordination.client import BlockingClient
from barnabas.doctor.diagnosis import RuleOutcome
from barnabas.doctor.rules import coordination_servers
from barnabas.net.sockets import SocketNetwork
from barnabas.testing import Cluster
from barnabas.testing import cluster as testing_cluster
from support.certificates import make_certificate
from support.coordination import coordination_server
from support.doctor import check_of, diagnosis_of, findings_at, mend
from support.ports import free_ports
from support.waiting import eventually

SETTINGS_RULES = (
    *("settings-without-effect", "overridden-settings", "unknown-settings", "brokers-differ"),
    *("dynamic-values-differ", "internal-topics"),
)
SECURITY_RULES = (
    *("certificate-ends", "plain-listener", "everyone-without-acl", "anonymous-super-user"),
    *("open-acls", "open-znodes"),
)
ENSEMBLE_RULES = (
    *("ensemble-without-leader", "ensemble-member-away", "single-coordination-server", "ensemble-even"),
    *("short-connect-string", "registration-without-session", "broker-clocks", "jute-maxbuffer"),
    *("coordination-outstanding", "coordination-fsync", "coordination-size", "coordination-connections"),
    *("coordination-snapshots", "autopurge-off"),
)


def test_settings_that_do_not_do_what_they_say_are_named() -> None:
    """Properties without effect, overridden, misspelled, and different among brokers."""
    wrong = {
        "num.io.threads": "16",
        "log.retention.hours": "24",
        "log.retention.ms": "3600000",
        "log.segment.byte": "1000",
        "transaction.state.log.replication.factor": "3",
    }
    with Cluster(2, settings=wrong) as cluster:
        bootstrap = cluster.bootstrap_servers
        cluster.stop_broker(1)
        cluster._settings["message.max.bytes"] = "2000000"
        cluster.start_broker(1)
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.alter_broker_configs(0, {"min.insync.replicas": 2})
        found = eventually(lambda: len(each := findings_at(bootstrap, *SETTINGS_RULES)) == 6 and each)
        assert (
            "num.io.threads: 16, but one event loop serves all connections"
            in found["settings-without-effect"].evidence[0]
        )
        assert found["overridden-settings"].evidence == (
            "log.retention.hours: 24, and log.retention.ms=3600000 decides (brokers 0, 1)",
        )
        assert found["unknown-settings"].evidence == (
            "log.segment.byte: not a property of brokers; log.segment.bytes is one (brokers 0, 1)",
        )
        assert found["brokers-differ"].evidence == ("message.max.bytes: 1048588 on broker 0, 2000000 on broker 1",)
        assert found["dynamic-values-differ"].evidence == ("min.insync.replicas: 2 on broker 0, 1 on broker 1",)
        assert found["internal-topics"].evidence == (
            "transaction.state.log.replication.factor=3, and there are 2 brokers",
        )
        mend(found["dynamic-values-differ"], bootstrap)
        eventually(lambda: "dynamic-values-differ" not in findings_at(bootstrap, *SETTINGS_RULES))


def test_open_doors_are_named(tmp_path: Path) -> None:
    """A certificate that ends tomorrow, and all ways in without a name."""
    ports = free_ports(2)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},SSL://127.0.0.1:{ports[1]}",
        "ssl.keystore.location": str(make_certificate(tmp_path, "broker", "/CN=broker one")),
        "ssl.keystore.type": "PEM",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Cluster(1, settings=settings):
        bootstrap = f"127.0.0.1:{ports[0]}"
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_acls([Acl("TOPIC", "orders", "User:*", "ALL")])
        found = eventually(lambda: len(each := findings_at(bootstrap, *SECURITY_RULES)) == 6 and each)
        assert "its certificate broker one: it ends in 1 day" in found["certificate-ends"].evidence[0]
        assert (
            f"PLAINTEXT://127.0.0.1:{ports[0]} is PLAINTEXT, used among brokers, beside SSL"
            in (found["plain-listener"].evidence[0])
        )
        assert found["everyone-without-acl"].evidence == ("broker 0: allow.everyone.if.no.acl.found=true",)
        assert found["anonymous-super-user"].evidence == ("broker 0: super.users=User:ANONYMOUS",)
        assert found["open-acls"].evidence == ("User:* from *: ALLOW ALL on TOPIC LITERAL:orders",)
        assert "world:anyone has more than read on /kafka-acl" in found["open-znodes"].evidence[0]
        mend(found["open-acls"], bootstrap)
        eventually(lambda: "open-acls" not in findings_at(bootstrap, *SECURITY_RULES))


def test_the_rights_that_a_user_lacks_are_named() -> None:
    """Without them rules are not checked, which is not the same as passed."""
    acls = ["--allow-principal User:ann --operation Read --operation Describe --topic orders"]
    with Cluster(1, security="SASL_PLAINTEXT", users={"ann": "secret-ann"}, acls=acls) as cluster:
        cluster.create_topic("orders")
        diagnosis = diagnosis_of(cluster.bootstrap_servers, properties=cluster.client_properties("ann"))
    for name, right in (
        ("offsets-expire", "DescribeConfigs on the cluster"),
        ("plain-listener", "DescribeConfigs on the cluster"),
        ("ensemble-even", "DescribeConfigs on the cluster"),
        ("open-acls", "Describe on the cluster"),
    ):
        check = check_of(diagnosis, name)
        assert (check.outcome, check.is_incomplete) == (RuleOutcome.NOT_CHECKED, True)
        assert f"the right {right} is missing" in check.reason
    (gap,) = check_of(diagnosis, "idle-members").gaps
    assert "the right Describe on the cluster is missing, and without it only groups" in gap.absent.reason
    assert diagnosis.is_incomplete
    assert not diagnosis.findings


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordination servers answer all words."""
    plan = testing_cluster._plan_coordination

    def with_words(data_dir: Path, count: int) -> dict[int, dict[str, str]]:
        plans = plan(data_dir, count)
        for texts in plans.values():
            texts |= {"4lw.commands.whitelist": "*", "maxClientCnxns": "10"}
        return plans

    monkeypatch.setattr(testing_cluster, "_plan_coordination", with_words)


def session(cluster: Cluster) -> BlockingClient:
    client = BlockingClient(SocketNetwork, cluster.zookeeper_connect.split(",")[0], rng=new_random())
    client.start(10_000)
    return client


@pytest.mark.usefixtures("words")
def test_an_overloaded_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One server under two brokers: a slow disk, many clients, a znode made by hand, a clock that
    was wrong. Less counts as much here: 10 znodes, no request, 2 ms on average."""
    monkeypatch.setattr(coordination_servers, "MOST_ZNODES", 10)
    monkeypatch.setattr(coordination_servers, "MANY_OUTSTANDING_REQUESTS", -1)
    with Cluster(2) as cluster:
        bootstrap = cluster.bootstrap_servers
        found = findings_at(bootstrap, *ENSEMBLE_RULES)
        expected = {"coordination-size", "coordination-outstanding"}
        assert found.keys() == expected
        monkeypatch.setattr(coordination_servers, "SLOW_FSYNC_MS", 2)
        cluster.stop_broker(1)
        cluster.clock("zookeeper", 60)
        cluster.start_broker(1)
        cluster.heal()
        clients = [session(cluster) for _ in range(6)]
        try:
            clients[0].call(lambda client: client.create("/brokers/ids/9", b"{}"))
            cluster.slow_disk("zookeeper", 0.15)
            for number in range(12):
                clients[0].call(lambda client, number=number: client.create(f"/slow{number}", b""))
            cluster.heal()
            found = findings_at(bootstrap, *ENSEMBLE_RULES)
            expected |= {"coordination-fsync", "coordination-connections", "broker-clocks"}
            expected |= {"registration-without-session"}
            assert found.keys() == expected
            assert found["registration-without-session"].evidence == ("/brokers/ids/9 is not ephemeral",)
            assert found["broker-clocks"].evidence[0].startswith("broker 1: ")
            assert "behind the coordination server when it registered" in found["broker-clocks"].evidence[0]
            mend(found["registration-without-session"], bootstrap)
            assert "registration-without-session" not in findings_at(bootstrap, *ENSEMBLE_RULES)
        finally:
            for each in clients:
                each.close()


def test_what_an_ensemble_lacks_is_named() -> None:
    """Two voters; then three, of which members stop; brokers that know one of them."""
    with Cluster(1, zk_servers=2) as cluster:
        found = findings_at(cluster.bootstrap_servers, *ENSEMBLE_RULES)
        assert found.keys() == {"ensemble-even"}
        assert found["ensemble-even"].evidence == ("/zookeeper/config: voters 1, 2",)
    with Cluster(1, zk_servers=3) as cluster:
        bootstrap = cluster.bootstrap_servers
        cluster.create_topic("orders")
        assert findings_at(bootstrap, *ENSEMBLE_RULES) == {}
        servers = cluster.zookeeper_connect.split(",")
        cluster.stop_zookeeper(3)
        found = eventually(lambda: findings_at(bootstrap, *ENSEMBLE_RULES))
        assert found.keys() == {"ensemble-member-away"}
        assert f"{servers[2]} again" in found["ensemble-member-away"].mends[0]
        assert "When one more stops, no broker can change anything." in found["ensemble-member-away"].sentence
        cluster.stop_zookeeper(2)
        found = eventually(
            lambda: (each := findings_at(bootstrap, *ENSEMBLE_RULES)).keys() == {"ensemble-without-leader"} and each
        )
        assert f"{servers[0]}: not serving" in found["ensemble-without-leader"].evidence
        # without the service brokers do not answer for topics, whose settings under-min-isr needs
        assert findings_at(bootstrap, "under-min-isr", "ensemble-without-leader").keys() == found.keys()
        cluster.start_zookeeper(2)
        cluster.start_zookeeper(3)
        eventually(lambda: findings_at(bootstrap, *ENSEMBLE_RULES) == {})
        cluster.stop_broker(0)
        cluster._settings["zookeeper.connect"] = servers[0]
        cluster.start_broker(0)
        found = eventually(lambda: findings_at(bootstrap, *ENSEMBLE_RULES))
        assert found.keys() == {"short-connect-string"}
        assert found["short-connect-string"].subjects == ("broker 0",)


def _make_wide(port: int) -> None:
    with BlockingClient(SocketNetwork, f"127.0.0.1:{port}", rng=new_random()) as client:
        client.start(20_000)
        for path in ("/brokers", "/brokers/topics", "/brokers/topics/wide"):
            client.call(lambda asking, path=path: asking.create(path, b" " * 15_000))


@pytest.mark.java
@pytest.mark.parametrize("apache", [False, True], ids=["ours", "Apache's"])
def test_an_admin_server_shows_what_its_settings_lack(
    tmp_path: Path, apache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No purging, an old snapshot, and a znode near the limit of requests."""
    monkeypatch.setattr(coordination_servers, "OLD_SNAPSHOT_MS", -1)
    (port,) = free_ports(1)
    settings = {"admin.enableServer": "true", "admin.serverPort": port, "jute.maxbuffer": 20_000, "snapCount": 2}
    rules = ("coordination-snapshots", "autopurge-off", "jute-maxbuffer")
    with coordination_server(tmp_path, apache=apache, release="3.9", **settings) as server, Cluster(1) as cluster:
        cluster.create_topic("wide")
        _make_wide(server.port)
        place = ("127.0.0.1", server.port)
        options = {"zookeeper": [place], "admin_servers": [("127.0.0.1", port)]}
        found = eventually(
            lambda: (each := findings_at(cluster.bootstrap_servers, *rules, **options)).keys() == set(rules) and each
        )
        diagnosis = diagnosis_of(cluster.bootstrap_servers, *rules, zookeeper=[place])
    address = f"127.0.0.1:{server.port}"
    assert found["autopurge-off"].evidence == (f"{address}: autopurge.purgeInterval=0, the default",)
    assert found["jute-maxbuffer"].evidence == ("/brokers/topics/wide: 14.6 KiB of the 19.5 KiB that the server takes",)
    assert "transactions since" in found["coordination-snapshots"].evidence[0]
    assert check_of(diagnosis, "autopurge-off").outcome is RuleOutcome.NOT_CHECKED
    assert "name them with --admin-servers" in check_of(diagnosis, "autopurge-off").reason
