"""What ``barnabas up`` starts from a data dir: what it holds, and what options change,
add, or may not leave out."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.settings import properties_text, read_properties
from barnabas.cli.local.broker_plan import check_settings
from barnabas.cli.local.cluster_plan import ClusterPlan, plan_cluster
from barnabas.cli.local.held_cluster import refuse_other_data
from barnabas.cli.local.options import up_parser
from barnabas.cli.local.security_plan import client_file
from barnabas.cli.local.status import _rows
from barnabas.cli.machine.clusters import LocalCluster, refuse_started_by_hand, started_by_hand
from barnabas.cli.machine.processes import is_alive
from barnabas.cli.main import main
from barnabas.client.admin import Acl
from barnabas.security.jaas import login_module
from support.needs import needs
from support.waiting import eventually

JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


def plan(directory: Path, *options: str) -> ClusterPlan:
    """What a start with these options would run."""
    return plan_cluster(up_parser().parse_args(["--data-dir", str(directory), *options]), directory)


def start(directory: Path, *options: str) -> ClusterPlan:
    """Write what a start with these options writes, and leave behind what its servers do."""
    made = plan(directory, *options)
    if made.security_plan.security is not None:
        made.security_plan.security.prepare()
    made.write(directory)
    for name in made.coordination.files:
        (directory / name / "version-2").mkdir(parents=True, exist_ok=True)
    for file in made.brokers.files:
        for log_dir in file.texts["log.dirs"].split(","):
            Path(log_dir).mkdir(exist_ok=True)
            (Path(log_dir) / "meta.properties").touch()
    return made


def texts(directory: Path, name: str = "server.properties") -> dict[str, str]:
    """What a file says."""
    return read_properties((directory / name).read_bytes().decode("latin-1"))


def edit(path: Path, old: str, new: str) -> None:
    """As with an editor."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# As it was


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--brokers", "3", "--racks", "2"],
        ["--brokers", "2", "--port", "0", "--zk-port", "0", "--metrics-port", "0"],
        ["--zk-servers", "3", "--zk-port", "12181", "--port", "19092", "--host", "127.0.0.2"],
        ["--override", "broker.rack=Z\u00fcrich", "--override", "num.partitions=3"],
        ["--zookeeper", "127.0.0.1:2181/kafka", "--brokers", "2"],
    ],
    ids=" ".join,
)
def test_a_data_dir_starts_as_it_was(tmp_path: Path, options: list[str]) -> None:
    """Without an option: brokers, ports, racks, coordination servers, metrics,
    overrides; no file is written."""
    first = start(tmp_path, *options)
    written = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.glob("*.[pc][rf]*")}
    again = plan(tmp_path)
    assert [file.texts for file in again.brokers.files] == [file.texts for file in first.brokers.files]
    assert again.brokers == first.brokers
    assert again.coordination.address.partition("/")[0] == first.coordination.address.partition("/")[0]
    assert again.coordination.listens == first.coordination.listens
    assert again.coordination.files == first.coordination.files
    again.write(tmp_path)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.glob("*.[pc][rf]*")} == written


def test_the_same_options_start_the_same(tmp_path: Path) -> None:
    """A script that gives all options at each start need not change."""
    options = ["--brokers", "3", "--racks", "3", "--zk-servers", "3", "--port", "19092", "--zk-port", "12181"]
    assert plan(tmp_path, *options).brokers == start(tmp_path, *options).brokers == plan(tmp_path, *options).brokers


def test_a_new_cluster_has_the_levels_that_are_asked_for(tmp_path: Path) -> None:
    """None without the option. Later starts keep the file, and refuse other levels."""
    for name in ("none", "two"):
        (tmp_path / name).mkdir()
    start(tmp_path / "none")
    assert "new.cluster.features" not in texts(tmp_path / "none")
    asked = ("--feature", "transaction.version=2")
    start(tmp_path / "two", *asked)
    assert texts(tmp_path / "two")["new.cluster.features"] == "transaction.version=2"
    start(tmp_path / "two")
    start(tmp_path / "two", *asked)
    assert texts(tmp_path / "two")["new.cluster.features"] == "transaction.version=2"
    for directory, level in (("two", 1), ("none", 2)):
        with pytest.raises(BarnabasError, match="--feature is for a new cluster"):
            plan(tmp_path / directory, "--feature", f"transaction.version={level}")


@pytest.mark.parametrize("level", ["transaction.version", "transaction.version=3", "other=1"])
def test_a_level_that_brokers_do_not_have_is_refused(tmp_path: Path, level: str) -> None:
    """Before anything is written."""
    with pytest.raises(BarnabasError, match="--feature: "):
        plan(tmp_path, "--feature", level)


def test_a_data_dir_of_an_earlier_version_starts_unchanged(tmp_path: Path) -> None:
    """Data dirs that were made before there was a note of their place."""
    first = start(tmp_path, "--brokers", "2")
    (tmp_path / "up.json").unlink()
    assert plan(tmp_path).brokers == first.brokers


def test_a_broker_whose_file_is_gone_is_not_forgotten(tmp_path: Path) -> None:
    """Its log dir says that there is one."""
    first = start(tmp_path, "--brokers", "3", "--port", "19092")
    (tmp_path / "server1.properties").unlink()
    (tmp_path / "server2.properties").unlink()
    again = plan(tmp_path)
    assert len(again.brokers.files) == 3
    assert again.brokers.files == first.brokers.files


# What options change


def test_fewer_brokers_are_refused_with_what_to_do(tmp_path: Path) -> None:
    """Partitions would have no leader."""
    start(tmp_path, "--brokers", "3")
    with pytest.raises(BarnabasError, match=r"--brokers 1: .* has 3 brokers") as refused:
        plan(tmp_path, "--brokers", "1")
    assert "reassign-partitions" in str(refused.value)
    assert "remove server1.properties and kafka-logs1 and so on" in str(refused.value)


def test_more_brokers_are_added(tmp_path: Path) -> None:
    """At the ports that follow, in the rack with the fewest, with the metrics, coordination
    and security of the others."""
    start(
        tmp_path, "--brokers", "3", "--racks", "2", "--port", "19092", "--metrics-port", "17070", "--zk-port", "12181"
    )
    before = [texts(tmp_path, name) for name in ("server.properties", "server1.properties", "server2.properties")]
    assert [each["broker.rack"] for each in before] == ["R1", "R1", "R2"]
    grown = plan(tmp_path, "--brokers", "4")
    assert [file.texts for file in grown.brokers.files[:3]] == before
    added = grown.brokers.files[3].texts
    assert (added["broker.id"], added["broker.rack"], added["zookeeper.connect"]) == ("3", "R2", "127.0.0.1:12181")
    assert int(added["listeners"].rpartition(":")[2]) > 19094
    assert int(added["metrics.http.address"].rpartition(":")[2]) > 17072
    assert added["log.dirs"] == str(tmp_path / "kafka-logs3")


def test_the_offsets_topic_of_a_cluster_that_grows_may_have_more_replicas(tmp_path: Path) -> None:
    """As many as a new cluster's, unless another number was chosen."""
    start(tmp_path)
    assert [f.texts["offsets.topic.replication.factor"] for f in plan(tmp_path, "--brokers", "3").brokers.files] == [
        "3"
    ] * 3
    assert plan(tmp_path, "--brokers", "3").brokers.files[0].texts["transaction.state.log.min.isr"] == "2"
    edit(tmp_path / "server.properties", "factor=1", "factor=2")
    assert plan(tmp_path, "--brokers", "3").brokers.files[0].texts["offsets.topic.replication.factor"] == "2"


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        (["--port", "29092"], {"listeners": "PLAINTEXT://127.0.0.1:29093"}),
        (["--host", "127.0.0.3"], {"listeners": "PLAINTEXT://127.0.0.3:19093", "zookeeper.connect": "127.0.0.3:12181"}),
        (["--zk-port", "22181"], {"zookeeper.connect": "127.0.0.1:22181"}),
        (["--racks", "1"], {"broker.rack": "R1"}),
        (["--racks", "0"], {"broker.rack": None}),
        (["--metrics-port", "7070"], {"metrics.http.address": "127.0.0.1:7071"}),
        (["--override", "num.partitions=9"], {"num.partitions": "9"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_changes_what_it_is_for(tmp_path: Path, options: list[str], changed: dict[str, str | None]) -> None:
    """And nothing else; what was written by hand stays, comments too."""
    start(tmp_path, "--brokers", "2", "--racks", "2", "--port", "19092", "--zk-port", "12181")
    path = tmp_path / "server1.properties"
    path.write_text(f"# mine\n{path.read_text()}log.retention.hours=1\n")
    before = texts(tmp_path, "server1.properties")
    start(tmp_path, *options)
    expected = {name: value for name, value in (before | changed).items() if value is not None}
    assert texts(tmp_path, "server1.properties") == expected
    assert path.read_text().startswith("# mine\n")


def test_any_free_ports_are_chosen_for_a_copy_beside_the_cluster_that_it_was_copied_from(tmp_path: Path) -> None:
    """The brokers' files have the ports that the start announces."""
    start(tmp_path, "--brokers", "2", "--port", "19092", "--zk-port", "12181")
    made = start(tmp_path, "--port", "0", "--zk-port", "0")
    listeners = [file.texts["listeners"] for file in made.brokers.files]
    assert listeners == [f"PLAINTEXT://{address}" for address in made.brokers.addresses]
    assert not {19092, 19093} & {address.port for address in made.brokers.addresses}


def test_an_ensembles_addresses_change_together(tmp_path: Path) -> None:
    """Every member knows all of them, and so do the brokers."""
    start(tmp_path, "--zk-servers", "3", "--zk-port", "12181")
    start(tmp_path, "--zk-port", "22181", "--host", "127.0.0.2")
    files = [texts(tmp_path, f"zoo{n}.cfg") for n in (1, 2, 3)]
    assert [each["clientPort"] for each in files] == ["22181", "22182", "22183"]
    assert {each["server.3"] for each in files} == {"127.0.0.2:22890:23890"}
    assert texts(tmp_path)["zookeeper.connect"] == "127.0.0.2:22181,127.0.0.2:22182,127.0.0.2:22183"


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        (
            ["--zk-servers", "3"],
            ["--zk-servers", "1"],
            "--zk-servers 1: .* has 3 coordination servers with the cluster's",
        ),
        ([], ["--zk-servers", "3"], "--zk-servers 3: .* has one coordination server with the cluster's metadata"),
        ([], ["--zookeeper", "h:1"], "--zookeeper h:1: .* has coordination servers of its own"),
        ([], ["--racks", "2"], "--racks 2: between 0 and the number of brokers, 1"),
        ([], ["--user", "ann=x"], "--user needs --security"),
    ],
)
def test_what_would_leave_data_out_is_refused(tmp_path: Path, first: list[str], then: list[str], message: str) -> None:
    """With what to do."""
    start(tmp_path, *first)
    with pytest.raises(BarnabasError, match=message):
        plan(tmp_path, *then)


def test_data_of_a_server_alone_and_of_an_ensemble_needs_a_choice(tmp_path: Path) -> None:
    """Earlier versions could make both in one data dir."""
    start(tmp_path, "--zk-servers", "3")
    (tmp_path / "zookeeper" / "version-2").mkdir(parents=True)
    with pytest.raises(BarnabasError, match="choose one with --zk-servers 1 or --zk-servers 3"):
        plan(tmp_path)
    assert [*plan(tmp_path, "--zk-servers", "1").coordination.files] == ["zookeeper"]
    assert [*plan(tmp_path, "--zk-servers", "3").coordination.files] == ["zookeeper1", "zookeeper2", "zookeeper3"]


def test_a_member_of_an_ensemble_without_its_file_is_not_left_out(tmp_path: Path) -> None:
    """Its ports are known to the others alone."""
    start(tmp_path, "--zk-servers", "3")
    (tmp_path / "zoo2.cfg").unlink()
    with pytest.raises(BarnabasError, match=r"zoo2\.cfg is gone, and the data of the server is there"):
        plan(tmp_path)


def test_a_reconfigured_ensemble_keeps_its_members(tmp_path: Path) -> None:
    """Its addresses are in the file that the reconfiguration wrote."""
    first = start(tmp_path, "--zk-servers", "3", "--zk-port", "12181")
    for n in (1, 2, 3):
        held = texts(tmp_path, f"zoo{n}.cfg")
        lines = {
            name: f"{value}:participant;127.0.0.1:{12180 + int(name[-1])}"
            for name, value in held.items()
            if name[:7] == "server."
        }
        dynamic = tmp_path / f"zoo{n}.cfg.dynamic.100000000"
        dynamic.write_text(properties_text(lines))
        static = {
            name: value for name, value in held.items() if name not in lines and not name.startswith("clientPort")
        }
        (tmp_path / f"zoo{n}.cfg").write_text(properties_text({**static, "dynamicConfigFile": str(dynamic)}))
    again = start(tmp_path)
    assert (again.coordination.address, again.coordination.listens) == (
        first.coordination.address,
        first.coordination.listens,
    )
    assert "clientPort" not in texts(tmp_path, "zoo1.cfg")
    with pytest.raises(BarnabasError, match=r"from .*zoo1\.cfg\.dynamic\.100000000, which a reconfiguration wrote"):
        plan(tmp_path, "--zk-port", "0")


# What was edited by hand


def test_a_server_of_an_ensemble_has_the_id_in_its_file_myid(tmp_path: Path) -> None:
    """As for the server itself; the name of its zoo.cfg is only its first id."""
    first = start(tmp_path, "--zk-servers", "3", "--zk-port", "12181")
    (tmp_path / "zookeeper1" / "myid").write_text("2\n")
    (tmp_path / "zookeeper2" / "myid").write_text("1\n")
    listens = first.coordination.listens
    quorum_ports = [address.port for address in plan(tmp_path).coordination.listens[1::3]]
    assert quorum_ports == [listens[n].port for n in (4, 1, 7)]
    moved = plan(tmp_path, "--zk-port", "22181").coordination
    lines = moved.files["zookeeper1"].texts
    assert [lines[f"server.{n}"] for n in (2, 1, 3)] == [
        f"{quorum}:{election.port}" for quorum, election in zip(moved.listens[1::3], moved.listens[2::3], strict=True)
    ]
    (tmp_path / "zookeeper3" / "myid").write_text("7\n")
    with pytest.raises(BarnabasError, match=r"zoo3\.cfg: .*myid has the id 7, and there is no line server\.7"):
        plan(tmp_path)


def test_what_was_edited_by_hand_is_started(tmp_path: Path) -> None:
    """Ports, log dirs, a chroot; new brokers go to the same chroot."""
    start(tmp_path, "--port", "19092", "--zk-port", "12181")
    path = tmp_path / "server.properties"
    edit(path, ":19092", ":29092")
    edit(path, "zookeeper.connect=127.0.0.1:12181", "zookeeper.connect=127.0.0.1:22181/kafka")
    edit(path, f"log.dirs={tmp_path}/kafka-logs", f"log.dirs={tmp_path}/other/a,{tmp_path}/other/b")
    edit(tmp_path / "zoo.cfg", "clientPort=12181", "clientPort=22181")
    again = plan(tmp_path)
    assert again.brokers.files[0].texts == texts(tmp_path)
    assert again.brokers.addresses[0].port == 29092
    assert again.coordination.address == "127.0.0.1:22181"
    assert plan(tmp_path, "--brokers", "2").brokers.files[1].texts["zookeeper.connect"] == "127.0.0.1:22181/kafka"
    moved = plan(tmp_path, "--zk-port", "32181")
    assert moved.brokers.zookeeper_connect == "127.0.0.1:32181/kafka"


def test_listeners_written_by_hand_are_not_written_over(tmp_path: Path) -> None:
    """Of several listeners an option does not say which it means."""
    start(tmp_path)
    edit(
        tmp_path / "server.properties", "PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093"
    )
    assert plan(tmp_path).brokers.bootstrap == "127.0.0.1:9092"
    with pytest.raises(
        BarnabasError, match=r"server\.properties has listeners that were written by hand.* leave --port out"
    ):
        plan(tmp_path, "--port", "1234")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("listeners=nonsense", r"server\.properties: listeners: 'nonsense' is not NAME://host:port"),
        ("num.partitions=many", r"server\.properties: Invalid value many for configuration num\.partitions"),
        ("process.roles=broker", r"server\.properties configures a node of KRaft mode"),
        ("a=\\u12", r"server\.properties is not a properties file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, line: str, message: str) -> None:
    """With what is wrong in it."""
    start(tmp_path)
    with (tmp_path / "server.properties").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(BarnabasError, match=message):
        check_settings(plan(tmp_path).brokers, {})


def test_an_option_corrects_what_is_wrong_in_a_file(tmp_path: Path) -> None:
    """An override that the brokers refused is in the files, too."""
    start(tmp_path, "--override", "num.partitions=many")
    fixed = plan(tmp_path, "--override", "num.partitions=3")
    assert check_settings(fixed.brokers, {"num.partitions": "3"}) == []
    with pytest.raises(BarnabasError, match="^Invalid value none for configuration num.partitions"):
        check_settings(plan(tmp_path, "--override", "num.partitions=none").brokers, {"num.partitions": "none"})


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("has_note", [False, True])
def test_a_data_dir_that_was_moved_or_copied_uses_its_own_data(tmp_path: Path, is_copied: bool, has_note: bool) -> None:
    """The paths in its files follow; those elsewhere stay."""
    before, after = tmp_path / "before", tmp_path / "a\u00f1o"
    before.mkdir()
    start(before, "--override", f"my.path={tmp_path}/else", "--zk-servers", "3")
    if not has_note:
        (before / "up.json").unlink()
    (shutil.copytree if is_copied else shutil.move)(before, after)
    start(after)
    assert texts(after)["log.dirs"] == str(after / "kafka-logs")
    assert texts(after, "zoo2.cfg")["dataDir"] == str(after / "zookeeper2")
    assert texts(after)["my.path"] == f"{tmp_path}/else"


def test_a_log_dir_elsewhere_stays_there(tmp_path: Path) -> None:
    """Although the data dir has one of the usual name, which is not used any more."""
    directory = tmp_path / "data"
    directory.mkdir()
    start(directory)
    start(directory, "--override", f"log.dirs={tmp_path}/kafka-logs")
    assert plan(directory).brokers.files[0].texts["log.dirs"] == f"{tmp_path}/kafka-logs"


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("meta.properties", "is the log dir of a broker .* barnabas server-start"),
        ("version-2", "is the data directory of a coordination server .* barnabas zookeeper-server-start"),
    ],
)
def test_the_folder_of_one_server_is_no_data_dir(tmp_path: Path, inside: str, message: str) -> None:
    """As Apache's servers leave it: an empty cluster would start beside the data."""
    (tmp_path / inside).touch()
    with pytest.raises(BarnabasError, match=message):
        refuse_other_data(tmp_path)
    assert main(["up", "--data-dir", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == [inside]


@pytest.mark.parametrize(
    ("made", "text", "message"),
    [
        (
            "kafka-logs-0/meta.properties",
            "broker.id=0\n",
            r"kafka-logs-0 is the log dir of broker 0, and no file in .* names",
        ),
        ("kraft/meta.properties", "node.id=1\n", r"kraft is the log dir of broker \(of KRaft mode\)"),
        ("zk/version-2", "", r"zk is the data directory of a coordination server.* name it in dataDir of zoo\.cfg"),
    ],
)
def test_data_that_no_file_names_is_not_passed_over(tmp_path: Path, made: str, text: str, message: str) -> None:
    """An empty server beside it is not meant."""
    (tmp_path / made).parent.mkdir()
    (tmp_path / made).write_text(text)
    with pytest.raises(BarnabasError, match=message):
        plan(tmp_path)


def test_the_data_of_apaches_servers_is_started(tmp_path: Path) -> None:
    """If their files have the names that `up` gives them."""
    for name in ("zk/version-2", "logs-0"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "logs-0" / "meta.properties").write_text("broker.id=0\n")
    (tmp_path / "zoo.cfg").write_text(f"tickTime=2000\ndataDir={tmp_path}/zk\nclientPort=12181\n")
    text = f"broker.id=0\nlog.dirs={tmp_path}/logs-0\nzookeeper.connect=localhost:12181\n"
    (tmp_path / "server.properties").write_text(text)
    (file,) = plan(tmp_path).brokers.files
    assert (file.texts["log.dirs"], file.texts["zookeeper.connect"]) == (f"{tmp_path}/logs-0", "localhost:12181")
    assert plan(tmp_path).coordination.files["zookeeper"].texts["dataDir"] == f"{tmp_path}/zk"


def test_a_log_dir_that_was_left_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its partitions are missing, and nothing else says so."""
    start(tmp_path, "--override", f"log.dirs={tmp_path}/a,{tmp_path}/b")
    (tmp_path / "b" / "meta.properties").write_text("broker.id=0\n")
    start(tmp_path, "--override", f"log.dirs={tmp_path}/a")
    assert capsys.readouterr().err == ""
    plan(tmp_path)
    assert (
        f"warning: {tmp_path}/b is the log dir of broker 0, and no file in {tmp_path} names it"
        in capsys.readouterr().err
    )


# Security


@needs("openssl")
def test_a_secured_data_dir_starts_secured(tmp_path: Path) -> None:
    """With its users, their passwords and the password of the brokers."""
    first = start(tmp_path, "--security", "SASL_PLAINTEXT", "--user", 'ann= s\u00e9cret"\\ ', "--user", "bob=b")
    assert first.security_plan.new_users == ("ann", "bob")
    client_file(tmp_path).touch()  # the users are there
    again = plan(tmp_path)
    assert again.security_plan.protocol == "SASL_PLAINTEXT"
    assert again.security_plan.security.users == {"ann": ' s\u00e9cret"\\ ', "bob": "b"}
    assert again.security_plan.new_users == ()
    assert again.brokers.files[0].texts == first.brokers.files[0].texts
    assert plan(tmp_path, "--brokers", "2").brokers.files[1].texts[JAAS] == first.brokers.files[0].texts[JAAS]


@needs("openssl")
def test_a_user_is_added_and_a_password_changed(tmp_path: Path) -> None:
    """--user needs no --security then; the others stay."""
    start(tmp_path, "--security", "SASL_PLAINTEXT", "--user", "ann=a", "--user", "bob=b")
    client_file(tmp_path).touch()
    changed = start(tmp_path, "--user", "bob=new", "--user", "eve=e")
    options = login_module(texts(tmp_path)[JAAS], "x").options
    assert {name: value for name, value in options.items() if name in ("user_ann", "user_bob", "user_eve")} == {
        "user_ann": "a",
        "user_bob": "new",
        "user_eve": "e",
    }
    assert changed.security_plan.new_users == ("bob", "eve")


@needs("openssl")
def test_a_cluster_is_secured_from_its_first_second(tmp_path: Path) -> None:
    """With an administrator, an application that has rights to what begins with its name, and an
    authorizer; and it stays so."""
    first = start(tmp_path, "--secure").security_plan
    assert first.protocol == "SASL_SSL"
    assert list(first.security.users) == ["admin", "app"]
    assert len(set(first.security.users.values())) == 2
    assert first.security.acls == [
        Acl(kind, "app-", "User:app", "ALL", pattern_type="PREFIXED") for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")
    ]
    written = texts(tmp_path)
    assert written["authorizer.class.name"] == "kafka.security.authorizer.AclAuthorizer"
    assert written["super.users"] == "User:barnabas-broker;User:admin"
    client_file(tmp_path).touch()
    for options in ((), ("--secure",)):
        again = plan(tmp_path, *options)
        assert again.security_plan.security.users == first.security.users
        assert again.security_plan.security.acls == []
        assert again.brokers.files[0].texts == written
    added = plan(tmp_path, "--user", "bob=b").security_plan
    assert [acl.resource_name for acl in added.security.acls] == ["bob-"] * 3
    assert added.new_users == ("bob",)
    start(tmp_path, "--security", "PLAINTEXT")
    assert not {"authorizer.class.name", "super.users"} & texts(tmp_path).keys()


@needs("openssl")
def test_users_of_a_file_get_the_rights_that_are_named(tmp_path: Path) -> None:
    """No password stands among the arguments; nobody is an administrator unasked."""
    (tmp_path / "users").write_text("ann=a\nadmin=x\n")
    for name in "abc":
        (tmp_path / name).mkdir()
    options = ("--users-file", str(tmp_path / "users"), "--security", "SASL_PLAINTEXT")
    acl = "--allow-principal User:ann --operation Read --topic t"
    made = start(tmp_path / "a", *options, "--acl", acl).security_plan.security
    assert made.users == {"ann": "a", "admin": "x"}
    assert made.acls == [Acl("TOPIC", "t", "User:ann", "READ")]
    assert texts(tmp_path / "a")["super.users"] == "User:barnabas-broker"
    made = start(tmp_path / "b", *options, "--secure", "--acl", "").security_plan.security
    assert (made.acls, list(made.admins)) == ([], ["admin"])
    with pytest.raises(BarnabasError, match="--acl needs --security"):
        plan(tmp_path / "c", "--acl", acl)


@needs("openssl")
def test_a_secured_cluster_gets_an_authorizer(tmp_path: Path) -> None:
    """Its users keep their passwords, and have rights to what begins with their names."""
    start(tmp_path, "--security", "SASL_PLAINTEXT", "--user", "ann=a")
    client_file(tmp_path).touch()
    changed = start(tmp_path, "--secure").security_plan
    assert changed.protocol == "SASL_PLAINTEXT"
    assert changed.security.users.keys() == {"admin", "app", "ann"}
    assert {acl.principal for acl in changed.security.acls} == {"User:ann", "User:app"}
    options = login_module(texts(tmp_path)[JAAS], "x").options
    assert options["user_ann"] == "a"
    assert options["user_admin"] == changed.security.users["admin"]
    assert texts(tmp_path)["super.users"] == "User:barnabas-broker;User:admin"


def test_a_broker_with_an_authorizer_has_a_log_of_what_it_denies(tmp_path: Path) -> None:
    """Beside its own, also where a hand wrote the authorizer into the file."""
    plain = plan(tmp_path).write(tmp_path)
    assert [each.options for each in plain] == [(), ()]
    path = tmp_path / "server.properties"
    path.write_text(f"{path.read_text()}authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n")
    zookeeper, broker = plan(tmp_path).write(tmp_path)
    assert zookeeper.options == ()
    assert broker.arguments == [str(path), "--authorizer-log", str(tmp_path / "logs" / "authorizer-0.log")]


@needs("openssl")
def test_security_changes_only_when_an_option_says_so(tmp_path: Path) -> None:
    """From one protocol to another, with the users, and back to none."""
    start(tmp_path)
    plain = texts(tmp_path)
    start(tmp_path, "--security", "SASL_SSL", "--user", "ann=a")
    assert texts(tmp_path)["listeners"] == "SASL_SSL://127.0.0.1:9092"
    start(tmp_path, "--security", "SASL_PLAINTEXT")
    assert login_module(texts(tmp_path)[JAAS], "x").options["user_ann"] == "a"
    assert not [name for name in texts(tmp_path) if name.startswith("ssl.")]
    start(tmp_path, "--security", "PLAINTEXT")
    assert texts(tmp_path) == plain


@needs("openssl")
def test_a_listener_that_was_secured_by_hand_is_refused(tmp_path: Path) -> None:
    """Nothing could connect with settings that are not known."""
    start(tmp_path)
    edit(tmp_path / "server.properties", "PLAINTEXT://", "SSL://")
    with pytest.raises(BarnabasError, match=r"server\.properties secures its listener by hand"):
        plan(tmp_path)


# Servers that were started by hand


def test_a_server_that_was_started_by_hand_is_seen_and_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its file, wherever it was started; another's is not.

    It is refused at a start, which would fail for its lock."""
    directory = tmp_path / "d\u00e9p\u00f4t"
    directory.mkdir()
    (directory / "server1.properties").touch()
    waits = [sys.executable, "-c", "import time; time.sleep(600)"]
    command = [*waits, "-m", "barnabas", "server-start", "--override", "a=b", "server1.properties"]
    with subprocess.Popen(command, cwd=directory) as process:
        try:
            eventually(
                lambda: started_by_hand(directory) == {"1": process.pid}, what="the process has its command line"
            )
            assert started_by_hand(tmp_path) == {}
            cluster = LocalCluster(str(directory), os.getpid(), "h:1", "h:2", pids={"0": os.getpid(), "1": 2**22 + 1})
            assert _rows(cluster) == [("0", os.getpid(), "running"), ("1", process.pid, "running, started by hand")]
            with pytest.raises(BarnabasError, match=rf"^broker 1 \(process {process.pid}\) runs, started by hand on"):
                refuse_started_by_hand(directory)
            assert main(["down", "--data-dir", str(directory)]) == 0
            assert f"stopped broker 1 (pid {process.pid}), which was started by hand" in capsys.readouterr().err
        finally:
            process.kill()
    assert not is_alive(process.pid)
    refuse_started_by_hand(directory)


def test_up_json_records_the_data_dir_as_json(tmp_path: Path) -> None:
    """Of whatever characters the path is."""
    directory = tmp_path / 'a "b"'
    directory.mkdir()
    start(directory)
    assert json.loads((directory / "up.json").read_text()) == {"data_dir": str(directory)}


def test_a_host_of_ipv6_is_written_in_brackets(tmp_path: Path) -> None:
    """Wherever a port follows."""
    made = plan(tmp_path, "--host", "::1", "--metrics-port", "7070", "--zk-servers", "3")
    found = made.brokers.files[0].texts
    assert (found["listeners"], found["metrics.http.address"]) == ("PLAINTEXT://[::1]:9092", "[::1]:7070")
    assert found["zookeeper.connect"] == "[::1]:2181,[::1]:2182,[::1]:2183"
    assert made.coordination.files["zookeeper1"].texts["server.1"] == "[::1]:2888:3888"
    assert re.fullmatch(r"\[::1\]:9092", made.brokers.bootstrap)
