"""Reading commands while something is down: what is reachable is printed in time, the rest is
named, and the exit status says so."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli.main import main
from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.cli.setup.completion import words
from barnabas.client import Producer
from barnabas.client.admin.groups import alter_group_offsets
from barnabas.client.admin.topics import create_topic
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing import Cluster

DEADLINE_S = 3.0
PROMPT_S = 25.0
"""The deadline and whatever a busy machine adds; without the deadline it was a minute and more."""
GROUPS = [f"g{number}" for number in range(8)]
RECORDS = 5


class Hurt(NamedTuple):
    """A cluster of three brokers, of which one is not there any more.

    Topic ``on-N`` has its only replica on broker N."""

    cluster: Cluster
    victim: int
    its_groups: set[str]

    @property
    def others(self) -> list[int]:
        """The brokers that answer."""
        return [broker_id for broker_id in range(3) if broker_id != self.victim]

    def reason(self, partition: str) -> str:
        """A pattern for why nothing is known of a partition: it names the partition
        and the broker."""
        why = "(did not answer within [0-9.]+ m?s|refused the connection: is a broker running there\\?)"
        no_answer = f"broker {self.victim}: 127.0.0.1:\\d+ {why}; not known: {partition}"
        return f"({no_answer}|partition {partition} has no leader \\(its replicas: broker {self.victim}\\))"

    def names_the_loss(self, shown: str) -> bool:
        """Whether a text names the broker that does not answer, or the partition
        that has no leader."""
        unreachable = f"broker {self.victim}: 127.0.0.1:\\d+ (refused the connection|did not answer within)"
        leaderless = f"partition on-{self.victim}-0 has no leader \\(its replicas: broker {self.victim}\\)"
        return re.search(f"{unreachable}|{leaderless}", shown) is not None


@pytest.fixture(scope="module", params=["killed", "frozen"])
def hurt(request: pytest.FixtureRequest) -> Iterator[Hurt]:
    """The victim is not the controller: another broker knows that it is gone, or
    does not know it yet."""
    settings = {"offsets.topic.replication.factor": "1", "zookeeper.session.timeout.ms": "40000"}
    with Cluster(3, settings=settings) as cluster:
        with AdminConnection(cluster.bootstrap_servers) as admin:
            for broker_id in range(3):
                create_topic(admin, f"on-{broker_id}", assignment=[[broker_id]])
            create_topic(admin, "spread", assignment=[[0], [1], [2]])
            places = {TopicPartition(f"on-{broker_id}", 0): 0 for broker_id in range(3)}
            for group_id in GROUPS:
                alter_group_offsets(admin, group_id, places)
            victim = (admin.describe_cluster(fresh=True).controller_id + 1) % 3
            its_groups = {group_id for group_id in GROUPS if admin.find_coordinator(group_id).id == victim}
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for broker_id in range(3):
                for _ in range(RECORDS):
                    producer.send(f"on-{broker_id}", "x")
                producer.send("spread", f"of-{broker_id}", partition=broker_id)
        if request.param == "killed":
            cluster.kill(victim)
        else:
            cluster.pause(victim)
        yield Hurt(cluster, victim, its_groups)
        cluster.heal()


@pytest.fixture(autouse=True)
def no_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration folder of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BARNABAS_CONTEXT", raising=False)


def run(hurt: Hurt, *words: str) -> int:
    """The exit status of a command with the deadline."""
    began = time.monotonic()
    options = ("--bootstrap-server", hurt.cluster.bootstrap_servers, "--connect-timeout", str(DEADLINE_S))
    code = main([*words, *options])
    assert time.monotonic() - began < PROMPT_S
    return code


def test_overview_shows_the_brokers_that_answer_and_names_the_other(
    hurt: Hurt, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not known is null, and never 0."""
    assert run(hurt, "overview", "--output", "json") == INCOMPLETE
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    records = {topic["name"]: topic["records"] for topic in found["topics"]}
    assert records.pop("spread") is None
    assert records == {f"on-{n}": RECORDS if n in hurt.others else None for n in range(3)}
    states = {broker["id"]: broker["state"] for broker in found["brokers"]}
    assert [states[broker_id] for broker_id in hurt.others] == ["up", "up"]
    assert states[hurt.victim] in ("away", "no answer")
    assert {group["group"]: group["lag"] for group in found["groups"]} == dict.fromkeys(
        sorted(set(GROUPS) - hurt.its_groups)
    )
    assert hurt.names_the_loss("\n".join(found["errors"]))
    assert hurt.names_the_loss(shown.err)


def test_overview_for_people_has_question_marks_for_what_is_not_known(
    hurt: Hurt, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same as a table."""
    assert run(hurt, "overview") == INCOMPLETE
    shown = capsys.readouterr()
    rows = [line.split() for line in shown.out.splitlines()]
    assert {row[0]: row[3] for row in rows if row and row[0].startswith("on-")} == {
        f"on-{n}": str(RECORDS) if n in hurt.others else "?" for n in range(3)
    }


def test_top_shows_the_brokers_that_answer_and_names_the_other(hurt: Hurt, capsys: pytest.CaptureFixture[str]) -> None:
    """A snapshot has what is known, and the rest is null."""
    assert run(hurt, "top", "--output", "json") == INCOMPLETE
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    records = {topic["name"]: topic["records"] for topic in found["topics"]}
    assert [records[f"on-{n}"] for n in hurt.others] == [RECORDS, RECORDS]
    assert records["spread"] is records[f"on-{hurt.victim}"] is None
    states = {broker["id"]: broker["state"] for broker in found["brokers"]}
    assert all(states[broker_id].startswith("up") for broker_id in hurt.others)
    assert states[hurt.victim] in ("away", "no answer")
    assert hurt.names_the_loss("\n".join(found["errors"]))
    assert hurt.names_the_loss(shown.err)


def test_get_offsets_prints_the_partitions_that_have_a_leader(hurt: Hurt, capsys: pytest.CaptureFixture[str]) -> None:
    """As lines, and as JSON with null for the others."""
    assert run(hurt, "get-offsets", "--topic", "on-.*") == INCOMPLETE
    shown = capsys.readouterr()
    assert shown.out.split() == [f"on-{n}:0:{RECORDS}" for n in hurt.others]
    assert hurt.names_the_loss(shown.err)
    assert run(hurt, "get-offsets", "--topic", "on-.*", "--output", "json") == INCOMPLETE
    found = json.loads(capsys.readouterr().out)
    assert {each["topic"]: each["offset"] for each in found} == {
        f"on-{n}": RECORDS if n in hurt.others else None for n in range(3)
    }


def test_get_offsets_of_what_is_there_is_complete(hurt: Hurt, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker that has no part in the answer has none in the exit status."""
    there = f"on-{hurt.others[0]}"
    assert run(hurt, "get-offsets", "--topic", there) == 0
    assert capsys.readouterr() == (f"{there}:0:{RECORDS}\n", "")


def test_topics_are_listed_and_described_as_any_broker_knows_them(
    hurt: Hurt, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is missing: the controller is there."""
    assert run(hurt, "topics", "--list", "--exclude-internal") == 0
    assert capsys.readouterr().out.split() == ["on-0", "on-1", "on-2", "spread"]
    assert run(hurt, "topics", "--describe", "--topic", "on-.*") == 0
    shown = capsys.readouterr()
    assert len(re.findall(r"^\tTopic: on-\d", shown.out, re.MULTILINE)) == 3
    assert shown.err == ""


@pytest.mark.parametrize("command", [("consumer-groups", "--list"), ("groups", "list", "--output", "json")])
def test_groups_of_the_other_coordinators_are_listed(
    hurt: Hurt, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Groups that may be missing are spoken of."""
    assert run(hurt, *command) == INCOMPLETE
    shown = capsys.readouterr()
    assert set(re.findall(r"\bg\d\b", shown.out)) == set(GROUPS) - hurt.its_groups
    assert "Incomplete: " in shown.err


@pytest.mark.parametrize("view", ["--offsets", "--members", "--state"])
def test_groups_are_described_as_far_as_coordinators_and_leaders_answer(
    hurt: Hurt, view: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All at once, or by name; a group without a coordinator is named."""
    assert run(hurt, "consumer-groups", "--describe", "--all-groups", view, "--output", "json") == INCOMPLETE
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert {each["group"] for each in found} == set(GROUPS) - hurt.its_groups
    if view == "--offsets":
        ends = {each["topic"]: each["log_end_offset"] for group in found for each in group["partitions"]}
        assert ends == {f"on-{n}": RECORDS if n in hurt.others else None for n in range(3)}
    missing = min(hurt.its_groups)
    assert run(hurt, "consumer-groups", "--describe", "--group", missing, view) == INCOMPLETE
    shown = capsys.readouterr()
    assert f"group {missing}" in shown.err


def test_a_group_that_does_not_exist_is_an_error_all_the_same(hurt: Hurt, capsys: pytest.CaptureFixture[str]) -> None:
    """Where its coordinator answers, it is known not to exist."""
    with AdminConnection(hurt.cluster.bootstrap_servers) as admin:
        names = (f"none-{number}" for number in range(100))
        name = next(each for each in names if admin.ask_for_coordinator(each).node_id in hurt.others)
    assert run(hurt, "consumer-groups", "--describe", "--group", name) == 1
    assert f"Consumer group '{name}' does not exist." in capsys.readouterr().err


def test_log_dirs_and_versions_and_configurations_of_the_other_brokers_are_shown(
    hurt: Hurt, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker that the others still take for alive is named; one that they know to be gone
    has no place in the answer."""
    is_known = {0, INCOMPLETE}
    assert run(hurt, "log-dirs", "--describe", "--output", "json") in is_known
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert [each["broker"] for each in document["brokers"]] == hurt.others
    assert ("errors" in document) == ("Incomplete: " in shown.err)
    assert run(hurt, "broker-api-versions", "--output", "json") in is_known
    found = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in found if "apis" in each] == hurt.others
    assert run(hurt, "configs", "--describe", "--entity-type", "brokers", "--all", "--output", "json") in is_known
    found = json.loads(capsys.readouterr().out)
    names = [int(each["entity_name"]) for each in found if each["configs"] and each["entity_name"]]
    assert names == hurt.others


@pytest.mark.parametrize(
    "command",
    [
        ("cluster", "cluster-id"),
        ("cluster", "list-endpoints"),
        ("configs", "--describe", "--topic", "on-0"),
        ("configs", "--describe", "--entity-type", "users"),
        ("reassign-partitions", "--list"),
    ],
)
def test_what_the_other_brokers_know_is_complete(
    hurt: Hurt, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Any broker, or the controller, answers."""
    assert run(hurt, *command) == 0
    assert capsys.readouterr().err == ""


def test_a_verification_says_of_which_broker_it_knows_nothing(
    hurt: Hurt, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log dirs of a broker are known to itself only."""
    plan = {
        "version": 1,
        "partitions": [
            {"topic": f"on-{n}", "partition": 0, "replicas": [n], "log_dirs": [str(tmp_path)]} for n in range(3)
        ],
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = ("reassign-partitions", "--verify", "--preserve-throttles", "--output", "json")
    code = run(hurt, *command, "--reassignment-json-file", str(tmp_path / "plan.json"))
    found = json.loads(capsys.readouterr().out)
    assert code == INCOMPLETE
    assert {move["broker"]: move["state"] for move in found["log_dirs"]} == {
        n: "not active" if n in hurt.others else "unknown" for n in range(3)
    }
    assert not found["finished"]
    assert f"broker {hurt.victim}: " in found["errors"][0]


def test_records_are_deleted_where_there_is_a_leader(
    hurt: Hurt, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way to a leader ends with the deadline, and each partition has its outcome."""
    document = {"version": 1, "partitions": [{"topic": f"on-{n}", "partition": 0, "offset": 0} for n in range(3)]}
    (tmp_path / "offsets.json").write_text(json.dumps(document))
    code = run(hurt, "delete-records", "--offset-json-file", str(tmp_path / "offsets.json"), "--output", "json")
    found = json.loads(capsys.readouterr().out)
    assert code in (0, INCOMPLETE)  # 0 as for each refusal of a broker
    assert {each["topic"]: each["low_watermark"] for each in found} == {
        f"on-{n}": 0 if n in hurt.others else None for n in range(3)
    }
    assert any(each["error"] for each in found)


@pytest.mark.parametrize("command", [("tail", "spread", "--no-follow"), ("cat", "-C", "-e", "-t", "spread")])
def test_readers_of_records_read_the_partitions_that_have_a_leader(
    hurt: Hurt, command: tuple[str, ...], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The end of the others cannot be reached, and the exit status says so."""
    assert run(hurt, *command) == INCOMPLETE
    shown = capfdbinary.readouterr()
    assert set(re.findall(rb"of-\d", shown.out)) == {b"of-%d" % n for n in hurt.others}
    (line,) = shown.err.decode().splitlines()
    assert re.fullmatch(f"Incomplete: {hurt.reason(f'spread-{hurt.victim}')}", line)


@pytest.mark.parametrize("command", [("tail",), ("cat", "-C", "-e", "-t")])
def test_readers_of_records_fail_where_no_partition_can_be_read(
    hurt: Hurt, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says why."""
    options = ("--no-follow",) if command == ("tail",) else ()
    assert run(hurt, *command, f"on-{hurt.victim}", *options) == 1
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    assert re.fullmatch(f"Error: {hurt.reason(f'on-{hurt.victim}-0')}", error)


@pytest.mark.parametrize("command", [("tail", "--no-follow", "--partition"), ("cat", "-C", "-e", "-p")])
def test_readers_of_records_refuse_a_partition_that_does_not_exist(
    hurt: Hurt, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """And a topic that does not; both commands in the same words."""
    for topic, partition, error in (
        ("spread", "3", "Error: partition 3: spread has partitions 0 to 2\n"),
        ("spraed", "0", "Error: topic spraed does not exist; did you mean spread? (create it first "),
    ):
        named = (topic,) if command[0] == "tail" else ("-t", topic)
        assert run(hurt, *command, partition, *named) == 1
        assert capsys.readouterr().err.startswith(error)


def test_a_consumer_says_what_it_waits_for(hurt: Hurt, capfd: pytest.CaptureFixture[str]) -> None:
    """A partition without a leader at once, a leader that does not answer when that is known."""
    topic = f"on-{hurt.victim}"
    wait = str(round(DEADLINE_S * 1000))
    # Without a group, whose coordinator may be the broker that is away.
    options = ("--topic", topic, "--partition", "0", "--timeout-ms", wait, "--from-beginning")
    assert run(hurt, "console-consumer", *options) == 0
    expected = (
        f"broker {hurt.victim}, the leader of {topic}-0: .*; waiting|partition {topic}-0 has no leader .*; waiting"
    )
    assert re.search(expected, capfd.readouterr().err)


def test_completion_offers_what_is_known_within_a_second(hurt: Hurt) -> None:
    """A Tab does not wait for a broker that does not answer."""
    servers = ["--bootstrap-server", hurt.cluster.bootstrap_servers]
    began = time.monotonic()
    assert words(["topics", *servers, "--topic", "on-"]) == ["on-0", "on-1", "on-2"]
    assert set(words(["consumer-groups", *servers, "--group", "g"])) == set(GROUPS) - hurt.its_groups
    assert time.monotonic() - began < PROMPT_S


def test_a_verification_compares_what_it_can(hurt: Hurt, capsys: pytest.CaptureFixture[str]) -> None:
    """With an end, it ends; what was not compared is named."""
    options = ("--topics-include", "on-.*", "--time", "-2", "--once", "--max-wait-ms", "200", "--output", "json")
    assert run(hurt, "replica-verification", *options) == INCOMPLETE
    shown = capsys.readouterr()
    started = json.loads(shown.out.splitlines()[0])
    assert started["partitions"] == 2
    assert hurt.names_the_loss(shown.err)
