"""The tools of a replicated cluster, on Apache's brokers and on ours, most of them
beside Apache's tools."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli.main import main
from barnabas.client import Admin, Producer
from barnabas.client.admin.offsets import EARLIEST, list_offsets
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.wire.kafka.errors import ErrorCode
from support.knowing import topic_known
from support.needs import needs_reference
from support.reference import apache_cluster, apache_tool
from support.servers import up
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

Run = Callable[..., tuple[int, str, str]]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Three of Apache's brokers; leaders stay where they are put."""
    settings = {"auto.leader.rebalance.enable": "false"}
    with apache_cluster(tmp_path_factory.mktemp("apache"), brokers=3, settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Three of our brokers; leaders stay where they are put."""
    settings = ["--override", "auto.leader.rebalance.enable=false"]
    with up(tmp_path_factory.mktemp("ours"), *settings, brokers=3) as running:
        yield running


@pytest.fixture(params=["ours", pytest.param("apache", marks=[pytest.mark.java, needs_reference])])
def cluster(request: pytest.FixtureRequest) -> object:
    """Either."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command on a cluster in this process: its code, output and errors."""

    def call(cluster: Any, command: str, *args: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([command, "--bootstrap-server", cluster.bootstrap, *map(str, args)])
        out, err = capfd.readouterr()
        return code, out, err

    return call


def make_topic(run: Run, cluster: Any, name: str, assignment: str, records: int = 0, size: int = 10) -> None:
    assert run(cluster, "topics", "--create", "--topic", name, "--replica-assignment", assignment)[0] == 0
    partitions = assignment.count(",") + 1
    topic_known(cluster.bootstrap, name, partitions)
    with Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"}) as producer:
        for number in range(records):
            producer.send(name, "x" * size, partition=number % partitions)


def json_file(path: Path, **fields: object) -> Path:
    path.write_text(json.dumps({"version": 1, **fields}))
    return path


def plan_file(path: Path, topic: str, replicas: list[list[int]]) -> Path:
    partitions = [{"topic": topic, "partition": n, "replicas": brokers} for n, brokers in enumerate(replicas)]
    return json_file(path, partitions=partitions)


def theirs(cluster: Any, tool: str, *args: object) -> tuple[int, str]:
    done = apache_tool(tool, "--bootstrap-server", cluster.bootstrap, *args)
    return done.returncode, done.stdout


# On both


def test_records_are_deleted_and_each_refusal_is_reported(run: Run, cluster: Any, tmp_path: Path) -> None:
    """Before an offset, before the high watermark (-1), beyond the end, and of a
    partition that is not there."""
    make_topic(run, cluster, "deleted", "0,0,0", records=30)
    wanted = [("deleted", 0, 4), ("deleted", 1, -1), ("deleted", 2, 99), ("deleted", 3, 1)]
    entries = [{"topic": topic, "partition": number, "offset": offset} for topic, number, offset in wanted]
    file = json_file(tmp_path / "offsets.json", partitions=entries)
    code, out, _ = run(cluster, "delete-records", "--offset-json-file", file)
    assert code == 0
    lines = out.splitlines()
    assert lines[:4] == [
        "Executing records delete operation",
        "Records delete operation completed:",
        "partition: deleted-0\tlow_watermark: 4",
        "partition: deleted-1\tlow_watermark: 10",
    ]
    assert lines[4].startswith("partition: deleted-2\terror: ")
    assert "OFFSET_OUT_OF_RANGE" in lines[4]
    assert lines[5].endswith("(UNKNOWN_TOPIC_OR_PARTITION)")
    with AdminConnection(cluster.bootstrap) as connection:
        begins = list_offsets(connection, {TopicPartition("deleted", n): EARLIEST for n in range(3)})
    assert [found.offset for found in begins.values()] == [4, 10, 0]
    document = json.loads(run(cluster, "delete-records", "--offset-json-file", file, "--output", "json")[1])
    assert [item["low_watermark"] for item in document] == [4, 10, None, None]


def test_log_dirs_show_replicas_with_their_sizes(run: Run, cluster: Any) -> None:
    """Only of the brokers and topics asked for."""
    make_topic(run, cluster, "stored", "0,1,1", records=30)
    code, out, _ = run(cluster, "log-dirs", "--describe", "--broker-list", "0,1", "--topic-list", "stored,absent")
    assert code == 0
    first, second, text = out.splitlines()
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 0,1"
    brokers = json.loads(text)["brokers"]
    stored = {
        item["broker"]: {one["partition"]: one["size"] for one in item["logDirs"][0]["partitions"]} for item in brokers
    }
    assert {broker: sorted(sizes) for broker, sizes in stored.items()} == {0: ["stored-0"], 1: ["stored-1", "stored-2"]}
    assert all(size > 0 for sizes in stored.values() for size in sizes.values())
    assert brokers[0]["logDirs"][0]["error"] is None
    code, _, err = run(cluster, "log-dirs", "--describe", "--broker-list", "0,9")
    assert code == 1
    assert "do not exist from --broker-list: 9. Current existent brokers: 0,1,2" in err


def test_the_cluster_command_prints_the_id_and_the_endpoints(run: Run, cluster: Any) -> None:
    """And that brokers cannot be unregistered here."""
    code, out, _ = run(cluster, "cluster", "cluster-id")
    assert code == 0
    assert re.fullmatch(r"Cluster ID: \S{22}\n", out)
    code, out, _ = run(cluster, "cluster", "list-endpoints")
    assert [line.split() for line in out.splitlines()[1:]] == [
        [str(number), *address.split(":"), "null", "unfenced", "broker"]
        for number, address in enumerate(cluster.bootstrap.split(","))
    ]
    code, _, err = run(cluster, "cluster", "unregister", "--id", 2)
    assert code == 1
    assert "does not support the broker unregistration API" in err


def test_every_brokers_apis_are_listed(run: Run, cluster: Any) -> None:
    """A table a broker; what is missing is UNSUPPORTED."""
    code, out, _ = run(cluster, "broker-api-versions")
    assert code == 0
    assert len(re.findall(r"^127\.0\.0\.1:\d+ \(id: \d rack: null\) -> \($", out, re.MULTILINE)) == 3
    assert re.search(r"^\tMetadata\(3\): \d+ to \d+ \[usable: \d+\],$", out, re.MULTILINE)
    assert "\tUnregisterBroker(64): UNSUPPORTED,\n" in out
    document = json.loads(run(cluster, "broker-api-versions", "--output", "json")[1])
    assert {api["name"] for api in document[0]["apis"]} >= {"Produce", "Fetch"}


def test_single_replicas_verify_to_the_end(run: Run, cluster: Any) -> None:
    """From the beginning, once."""
    make_topic(run, cluster, "single", "0,1", records=100)
    code, out, err = run(cluster, "replica-verification", "--topics-include", "single", "--time", -2, "--once")
    assert (code, err) == (0, "")
    assert "verification process is started" in out
    assert out.endswith("max lag is 0 for partition single-0 at offset 50 among 2 partitions\n")


def test_programs_have_what_the_tools_have(run: Run, cluster: Any) -> None:
    """`Admin` deletes records, finds replicas, elects leaders and lists moves."""
    make_topic(run, cluster, "programs", "2", records=10)
    partition = TopicPartition("programs", 0)
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        assert admin.delete_records({partition: 3}) == {partition: 3}
        stored = {name for log_dir in admin.describe_log_dirs(2) for name in log_dir.replicas}
        assert partition in stored
        assert admin.elect_leaders([partition])[partition].code is ErrorCode.ELECTION_NOT_NEEDED
        assert admin.list_reassignments() == {}
        assert admin.reassign({partition: None})[partition].code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.java
@needs_reference
@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_apaches_tool_describes_a_partitions_producers(run: Run, ours: Any, version: str) -> None:
    """DescribeProducers: an idempotent producer with its last sequence, and no transaction."""
    topic = f"producers-{version}"
    make_topic(run, ours, topic, "1")
    with Producer({"bootstrap.servers": ours.bootstrap, "acks": "all", "enable.idempotence": "true"}) as producer:
        for _ in range(10):
            producer.send(topic, "x", partition=0)
    args = ["--bootstrap-server", ours.bootstrap, "describe-producers", "--topic", topic, "--partition", "0"]
    done = apache_tool("org.apache.kafka.tools.TransactionsCommand", *args, version=version)
    assert done.returncode == 0
    _, epoch, coordinator_epoch, last_sequence, _, transaction = done.stdout.splitlines()[1].split()
    assert (epoch, coordinator_epoch, last_sequence, transaction) == ("0", "-1", "9", "None")


# Beside Apache's tools


@pytest.mark.java
@needs_reference
def test_replicated_topics_are_described_word_for_word(run: Run, cluster: Any) -> None:
    """Replicas, ISR and ELR columns; the reports on replication."""
    make_topic(run, cluster, "described", "0:1:2,1:2:0")
    run(cluster, "configs", "--alter", "--topic", "described", "--add-config", "min.insync.replicas=3")
    for args in (
        ["--describe", "--topic", "described"],
        ["--describe", "--under-replicated-partitions"],
        ["--describe", "--under-min-isr-partitions"],
        ["--describe", "--at-min-isr-partitions", "--topic", "described"],
        ["--describe", "--unavailable-partitions"],
    ):
        assert run(cluster, "topics", *args)[:2] == theirs(cluster, TOPICS, *args)


@pytest.mark.java
@needs_reference
def test_api_tables_are_apaches_but_for_apis_renamed_and_added_since(run: Run, apache: Any) -> None:
    """Line by line, for each broker."""
    mine = run(apache, "broker-api-versions")[1].replace(",\n\tDescribeShareGroupOffsets(90): UNSUPPORTED", "")
    other = theirs(apache, "kafka.admin.BrokerApiVersionsCommand")[1]
    expected = other.replace("ListClientMetricsResources", "ListConfigResources")
    assert sorted(mine.splitlines()) == sorted(expected.splitlines())


@pytest.mark.java
@needs_reference
def test_endpoints_are_printed_as_by_apaches_newest_tool(run: Run, apache: Any) -> None:
    """The same bytes, in the order of ids."""
    args = ["list-endpoints", "--bootstrap-server", apache.bootstrap]
    other = apache_tool("org.apache.kafka.tools.ClusterTool", *args, version="4.3.0").stdout
    mine = run(apache, "cluster", "list-endpoints")[1]
    assert sorted(mine.splitlines()) == sorted(other.splitlines())


@pytest.mark.java
@needs_reference
def test_log_dirs_are_apaches_json(run: Run, apache: Any) -> None:
    """The same document, partitions in whatever order."""
    make_topic(run, apache, "dirs", "0:1,1:2", records=100)
    args = ["--describe", "--topic-list", "dirs"]

    def document(text: str) -> Any:
        found = json.loads(text.splitlines()[-1])
        for broker in found["brokers"]:
            for log_dir in broker["logDirs"]:
                log_dir["partitions"].sort(key=lambda item: item["partition"])
        return found

    mine = run(apache, "log-dirs", *args)[1]
    other = theirs(apache, "org.apache.kafka.tools.LogDirsCommand", *args)[1]
    assert mine.splitlines()[:2] == other.splitlines()[:2]
    assert document(mine) == document(other)


@pytest.mark.java
@needs_reference
def test_elections_give_the_preferred_replica_the_lead(run: Run, cluster: Any, tmp_path: Path) -> None:
    """After a plan changed who is preferred; a second election is not needed, an
    unknown partition an error."""
    make_topic(run, cluster, "elected", "0:1,0:1")
    plan = plan_file(tmp_path / "plan.json", "elected", [[1, 0], [1, 0]])
    assert run(cluster, "reassign-partitions", "--execute", "--reassignment-json-file", plan)[0] == 0
    base = ["--election-type", "preferred"]
    one = [*base, "--topic", "elected", "--partition", 0]
    assert run(cluster, "leader-election", *one) == (
        0,
        "Successfully completed leader election (PREFERRED) for partitions elected-0\n",
        "",
    )
    assert run(cluster, "leader-election", *one) == (0, "Valid replica already elected for partitions elected-0\n", "")
    file = json_file(tmp_path / "both.json", partitions=[{"topic": "elected", "partition": n} for n in (0, 1)])
    code, out, _ = run(cluster, "leader-election", *base, "--path-to-json-file", file, "--output", "json")
    assert code == 0
    assert [(item["partition"], item["elected"], item["error"]) for item in json.loads(out)] == [
        (0, False, "ELECTION_NOT_NEEDED"),
        (1, True, None),
    ]
    assert run(cluster, "leader-election", *base, "--all-topic-partitions")[0] == 0
    code, out, err = run(cluster, "leader-election", *base, "--topic", "elected", "--partition", 7)
    assert code == 1
    assert out.startswith("Error completing leader election (PREFERRED) for partition: elected-7: ")
    assert err == "Error: 1 replica(s) could not be elected\n"
    unclean = ["--election-type", "unclean", "--topic", "elected", "--partition", 0]
    assert run(cluster, "leader-election", *unclean)[:2] == theirs(
        cluster, "org.apache.kafka.tools.LeaderElectionCommand", *unclean
    )


@pytest.mark.java
@needs_reference
def test_a_move_is_throttled_shown_cancelled_and_done(run: Run, cluster: Any, tmp_path: Path) -> None:
    """The whole life of a plan; at each point Apache's tool says and sets the same."""
    make_topic(run, cluster, "moved", "0:1,0:1", records=2000, size=10_000)
    before = plan_file(tmp_path / "before.json", "moved", [[0, 1], [0, 1]])
    plan = plan_file(tmp_path / "plan.json", "moved", [[2, 1], [1, 2]])
    file = ["--reassignment-json-file", plan]

    def configs() -> str:
        brokers = "".join(run(cluster, "configs", "--describe", "--broker", n)[1] for n in range(3))
        return run(cluster, "configs", "--describe", "--topic", "moved")[1] + brokers

    unthrottled = configs()
    code, mine, _ = run(cluster, "reassign-partitions", "--execute", *file, "--throttle", 20_000)
    assert code == 0
    assert mine.endswith("Successfully started partition reassignments for moved-0,moved-1\n")
    # Brokers learn their own configuration from its znodes, after the tool has its answer.
    eventually(lambda: configs().count("throttled.rate=20000 ") == 6, what="all know the throttles")
    throttled = configs()
    for tool, args in (
        (("topics", TOPICS), ["--describe", "--under-replicated-partitions"]),
        (("reassign-partitions", REASSIGN), ["--list"]),
        (("reassign-partitions", REASSIGN), ["--verify", *file]),
    ):
        assert run(cluster, tool[0], *args)[:2] == theirs(cluster, tool[1], *args)
    assert configs() == throttled, "--verify takes nothing back while replicas move"
    document = json.loads(run(cluster, "topics", "--describe", "--topic", "moved", "--output", "json")[1])
    assert [(item["adding"], item["removing"]) for item in document[0]["partitions"]] == [([2], [0]), ([2], [0])]
    assert "--additional" in run(cluster, "reassign-partitions", "--execute", *file)[2]

    code, out, _ = run(cluster, "reassign-partitions", "--cancel", *file)
    assert (code, out.splitlines()) == (
        0,
        [
            "Successfully cancelled partition reassignments for: moved-0,moved-1",
            "None of the specified partition moves are active.",
            "Clearing broker-level throttles on brokers 0,1,2",
            "Clearing topic-level throttles on topic moved",
        ],
    )
    eventually(lambda: configs() == unthrottled, what="the throttles are gone")
    assert run(cluster, "reassign-partitions", "--list")[1] == "No partition reassignments found.\n"

    assert run(cluster, "reassign-partitions", "--execute", "--reassignment-json-file", before)[0] == 0
    eventually(lambda: run(cluster, "reassign-partitions", "--list")[1].startswith("No "), what="moved back")
    code, other = theirs(cluster, REASSIGN, "--execute", *file, "--throttle", 20_000)
    assert (code, other) == (0, mine)
    eventually(lambda: configs() == throttled, what="all know the throttles")
    more = run(cluster, "reassign-partitions", "--execute", *file, "--additional", "--throttle", 1 << 30)
    assert more[0] == 0
    eventually(
        lambda: run(cluster, "reassign-partitions", "--verify", *file, "--preserve-throttles")[1].count(
            "is completed."
        ),
        what="moved",
    )
    eventually(lambda: configs().count(f"throttled.rate={1 << 30} ") == 6, what="all know the new throttles")
    eventually(lambda: "Clearing" in run(cluster, "reassign-partitions", "--verify", *file)[1], what="all at rest")
    eventually(lambda: configs() == unthrottled, what="the throttles are gone again")
    assert run(cluster, "reassign-partitions", "--verify", *file)[:2] == theirs(cluster, REASSIGN, "--verify", *file)
    code, out, err = run(cluster, "replica-verification", "--topics-include", "moved", "--time", -2, "--once")
    assert (code, err) == (0, "")
    assert "max lag is 0 " in out


@pytest.mark.java
@needs_reference
def test_proposals_show_the_same_present_and_can_be_executed(run: Run, cluster: Any, tmp_path: Path) -> None:
    """Which brokers are proposed is drawn by lot, with both tools."""
    make_topic(run, cluster, "proposed", "0:1,0:1,0:1")
    topics = json_file(tmp_path / "topics.json", topics=[{"topic": "proposed"}])
    args = ["--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2"]
    mine = run(cluster, "reassign-partitions", *args)[1].splitlines()
    other = theirs(cluster, REASSIGN, *args)[1].splitlines()
    assert mine[:-1] == other[:-1]
    assert [sorted(item["replicas"]) for item in json.loads(mine[-1])["partitions"]] == [[1, 2]] * 3
    plan = tmp_path / "plan.json"
    plan.write_text(mine[-1])
    file = ["--reassignment-json-file", plan]
    assert theirs(cluster, REASSIGN, "--execute", *file)[0] == 0
    eventually(
        lambda: run(cluster, "reassign-partitions", "--verify", *file)[1].count("is completed.") == 3, what="moved"
    )


@pytest.mark.java
@needs_reference
def test_plans_that_cannot_be_are_refused_as_by_apaches_tool(run: Run, cluster: Any, tmp_path: Path) -> None:
    """Unknown brokers, partitions and log dirs; a plan that is not active is reported."""
    make_topic(run, cluster, "fixed", "0:1")
    for replicas, message in (([[0, 9]], "Unknown broker id 9"), ([[0], [1]], "Unable to find partition: fixed-1")):
        file = plan_file(tmp_path / "bad.json", "fixed", replicas)
        code, out, err = run(cluster, "reassign-partitions", "--execute", "--reassignment-json-file", file)
        assert (code, out) == (1, "")
        assert message in err
        assert message in theirs(cluster, REASSIGN, "--execute", "--reassignment-json-file", file)[1]
    file = plan_file(tmp_path / "other.json", "fixed", [[1, 2]])
    args = ["--verify", "--preserve-throttles", "--reassignment-json-file", file]
    assert run(cluster, "reassign-partitions", *args)[:2] == theirs(cluster, REASSIGN, *args)
    args = ["--cancel", "--preserve-throttles", "--reassignment-json-file", file]
    assert run(cluster, "reassign-partitions", *args)[1].split() == theirs(cluster, REASSIGN, *args)[1].split()
    entry = {"topic": "fixed", "partition": 0, "replicas": [0, 1], "log_dirs": ["/nowhere", "any"]}
    file = json_file(tmp_path / "dirs.json", partitions=[entry])
    args = ["--verify", "--preserve-throttles", "--reassignment-json-file", file]
    assert run(cluster, "reassign-partitions", *args)[:2] == theirs(cluster, REASSIGN, *args)
    code, _, err = run(cluster, "reassign-partitions", "--execute", "--reassignment-json-file", file)
    assert code == 1
    assert "Failed to alter dir for fixed-0-0: " in err
    assert "LOG_DIR_NOT_FOUND" in err


@pytest.mark.java
@needs_reference
@pytest.mark.parametrize("brokers", ["apache", "ours"])
def test_replicas_move_between_log_dirs_and_back(run: Run, tmp_path: Path, brokers: str) -> None:
    """Throttled, verified with Apache's words, finished; an unexpected target is reported."""
    dirs = [str(tmp_path / name) for name in ("one", "two")]
    if brokers == "apache":
        started: Any = apache_cluster(tmp_path / "apache", settings={"log.dirs": ",".join(dirs)})
    else:
        started = up(tmp_path / "ours", "--override", f"log.dirs={','.join(dirs)}")
    with started as cluster:
        make_topic(run, cluster, "placed", "0", records=10)
        stored = json.loads(run(cluster, "log-dirs", "--describe", "--output", "json")[1])["brokers"][0]["logDirs"]
        source = next(one["logDir"] for one in stored if one["partitions"])
        target = next(path for path in dirs if path != source)
        entry = {"topic": "placed", "partition": 0, "replicas": [0], "log_dirs": [target]}
        file = ["--reassignment-json-file", json_file(tmp_path / "plan.json", partitions=[entry])]
        words = run(cluster, "reassign-partitions", "--verify", "--preserve-throttles", *file)
        assert words[:2] == theirs(cluster, REASSIGN, "--verify", "--preserve-throttles", *file)
        assert f"is not being moved from log dir {source} to {target}." in words[1]
        rate = ["--replica-alter-log-dirs-throttle", 100_000_000]
        code, out, _ = run(cluster, "reassign-partitions", "--execute", *file, *rate)
        assert code == 0
        assert out.splitlines()[-3:] == [
            "The replica-alter-dir throttle limit was set to 100000000 B/s",
            "Successfully started partition reassignment for placed-0",
            f"Successfully started moving log directory to {target} for replica placed-0 with broker 0 ",
        ]
        verify = ["--verify", "--preserve-throttles", *file]
        eventually(lambda: "successfully" in run(cluster, "reassign-partitions", *verify)[1], what="moved")
        assert run(cluster, "reassign-partitions", *verify)[:2] == theirs(cluster, REASSIGN, *verify)
        describe = ("configs", "--describe", "--broker", 0)
        eventually(lambda: "max.bytes.per.second=100000000 " in run(cluster, *describe)[1], what="it is throttled")
        run(cluster, "reassign-partitions", "--verify", *file)
        nothing = "Dynamic configs for broker 0 are:\n"
        eventually(lambda: run(cluster, *describe)[1] == nothing, what="the throttle is gone")
