"""Commands and `Admin` against a broker that lies: each lie is one clear line, and status 1."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.commands import COMMANDS
from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.client import (
    Admin,
    Producer,
    ProtocolError,
    RefusedError,
    TimedOutError,
    TopicPartition,
)
from barnabas.client.admin import offsets
from barnabas.client.admin.configurations import ConfigEntry, ConfigSource
from barnabas.client.admin.offsets import LATEST
from barnabas.mirror import link
from barnabas.mirror.link import MirrorLink
from barnabas.testing import Cluster
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.schema import Message
from support.lying_broker import Lie, LyingBroker, lies
from support.lying_commands import CHANGING, OF_LIBRDKAFKA, READING, Command, Outcome, run_lied_to, small_cluster

NOT_ASKED = "which was not asked for: the protocol does not allow that"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with small_cluster() as made:
        yield made


@pytest.fixture
def liar(cluster: Cluster) -> Iterator[LyingBroker]:
    with LyingBroker(int(cluster.bootstrap_servers.rpartition(":")[2])) as made:
        yield made


@pytest.fixture
def admin(liar: LyingBroker) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": liar.address}) as made:
        yield made


def lie(api_key: int, name: str) -> Lie:
    versions = api(api_key).versions
    return next(each for each in lies(api_key, versions.last) if each.name == name)


def answer(change: Callable[[Any], object]) -> Lie:
    def changed(response: Message, _: int, __: int) -> Message:
        change(response)
        return response

    return Lie("of this test", changed)


def command(words: str) -> Command:
    """The first command whose line has these words, of which the first one is its name."""
    name, *others = words.split()
    return next(
        each
        for each in (*READING, *CHANGING)
        if each.line.startswith(f"{name} ") and set(others) <= set(each.line.split())
    )


def tell(cluster: Cluster, liar: LyingBroker, folder: Path, words: str, api_key: int, told: Lie) -> Outcome:
    """How the command takes the lie."""
    liar.tell(api_key, told)
    return run_lied_to(command(words), cluster, liar, folder)


@pytest.mark.parametrize(
    ("words", "api_key", "name", "wrong"),
    [
        ("configs --describe --entity-type topics --entity-name", ApiKey.DESCRIBE_CONFIGS,
         "results.resource_type is 77", NOT_ASKED),
        ("configs --describe --entity-type topics --entity-name", ApiKey.DESCRIBE_CONFIGS,
         "results is empty", "with nothing about resource 2 orders"),
        ("configs --describe --entity-type brokers --entity-name", ApiKey.DESCRIBE_CONFIGS,
         "results.resource_name is 'not-asked-for'", NOT_ASKED),
        ("configs --describe --entity-type topics --entity-name", ApiKey.DESCRIBE_CONFIGS,
         "results.configs: all twice", "twice"),
        ("configs --describe --entity-type clients", ApiKey.DESCRIBE_CLIENT_QUOTAS,
         "entries.entity.entity_name is null", NOT_ASKED),
        ("configs --describe --entity-type users", ApiKey.DESCRIBE_CLIENT_QUOTAS,
         "entries.values.value is nan", "that is no number"),
        ("get-offsets --topic", ApiKey.LIST_OFFSETS, "topics.partitions.partition_index is 77", NOT_ASKED),
        ("get-offsets --topic", ApiKey.LIST_OFFSETS, "topics is empty", "with nothing about partition orders 0"),
        ("get-offsets --topic", ApiKey.LIST_OFFSETS, "topics.partitions.offset is -2", "topics.partitions.offset -2"),
        ("consumer-groups --describe --group readers --state", ApiKey.DESCRIBE_GROUPS, "groups is empty", "nothing about group readers"),
        ("consumer-groups --describe --group readers --state", ApiKey.FIND_COORDINATOR, "coordinators is empty", "nothing about group"),
        ("consumer-groups --describe --group readers --state", ApiKey.FIND_COORDINATOR, "coordinators.host is ''", "which is no host"),
        ("topics --list", ApiKey.METADATA, "topics.name is null", "with topic None twice"),
        ("topics --list", ApiKey.METADATA, "topics: all twice", "twice"),
        ("topics --list", ApiKey.METADATA, "brokers.port is -2", "brokers.port -2"),
        ("topics --list", ApiKey.METADATA, "topics.partitions.replica_nodes is empty", "with no replicas of partition"),
        ("cluster cluster-id", ApiKey.METADATA, "error_code is 9999", "error code 9999, which is not known here"),
        ("topics --list", ApiKey.METADATA, "half of the body", "does not speak Kafka's protocol"),
        ("topics --list", ApiKey.METADATA, "another request's answer", "does not speak Kafka's protocol"),
        ("topics --list", ApiKey.API_VERSIONS, "api_keys is empty", "with no API at all"),
        ("topics --list", ApiKey.API_VERSIONS, "api_keys.max_version is -32768", "with versions"),
        ("topics --delete", ApiKey.DELETE_TOPICS, "responses is empty", "nothing about topic gone"),
        ("topics --alter", ApiKey.CREATE_PARTITIONS, "results.name is 'not-asked-for'", NOT_ASKED),
        ("acls --add", ApiKey.CREATE_ACLS, "results is empty", "with 0 results to a question of 1 parts"),
        ("acls --remove", ApiKey.DELETE_ACLS, "filter_results is empty", "with 0 results to a question of 1 parts"),
        ("delete-records", ApiKey.DELETE_RECORDS, "topics.partitions.low_watermark is -2", "low_watermark -2"),
        ("log-dirs --describe", ApiKey.DESCRIBE_LOG_DIRS, "results: all twice", "twice"),
        ("log-dirs --describe", ApiKey.DESCRIBE_LOG_DIRS, "results.log_dir is ''", "a log dir without a name"),
        ("cluster list-endpoints", ApiKey.DESCRIBE_CLUSTER, "brokers.host is '\\x1b[31m\\nforged\\r'",
         "brokers.host '\\x1b[31m\\nforged\\r'"),
        ("consumer-groups --reset-offsets --execute", ApiKey.OFFSET_COMMIT,
         "topics is empty", "nothing about partition orders 0"),
    ],
)  # fmt: skip
def test_a_lie_is_one_line_with_the_broker_and_the_api(
    cluster: Cluster, liar: LyingBroker, tmp_path: Path, words: str, api_key: int, name: str, wrong: str
) -> None:
    """Nothing of the answer is printed as truth, and nothing of the program's insides."""
    outcome = tell(cluster, liar, tmp_path, words, api_key, lie(api_key, name))
    assert outcome.status == 1
    assert wrong in outcome.error
    assert len(outcome.error.strip().splitlines()) == 1
    if "does not speak" not in wrong and "not known here" not in wrong:
        assert f"Error: the broker at {liar.address} answered {ApiKey(api_key).title} with " in outcome.error


@pytest.mark.parametrize(
    ("words", "api_key", "change", "shown"),
    [
        ("topics --describe", ApiKey.METADATA,
         lambda metadata: setattr(metadata.topics[0].partitions[0], "leader_id", 77), "Leader: 77"),
        ("configs --describe --entity-name 0", ApiKey.DESCRIBE_CONFIGS,
         lambda found: setattr(found.results[0].configs[0], "config_source", 99), "sensitive=false"),
        ("consumer-groups --describe --group readers --state", ApiKey.DESCRIBE_GROUPS,
         lambda found: setattr(found.groups[0], "group_state", "Napping"), "Napping"),
        ("consumer-groups --list --state", ApiKey.LIST_GROUPS,
         lambda found: setattr(found.groups[0], "group_type", "novel"), "Novel"),
        ("topics --list", ApiKey.METADATA, lambda metadata: setattr(metadata, "throttle_time_ms", 2**31 - 1), "orders"),
    ],
)  # fmt: skip
def test_what_a_newer_broker_may_say_is_shown(
    cluster: Cluster, liar: LyingBroker, tmp_path: Path, words: str, api_key: int, change: Any, shown: str
) -> None:
    """States, types, sources and brokers that are not known here are no lies, and a long throttle
    is for the broker to keep."""
    outcome = tell(cluster, liar, tmp_path, words, api_key, answer(change))
    assert outcome.status == 0
    assert shown in outcome.out


def test_an_unknown_error_code_is_shown_with_its_number(cluster: Cluster, liar: LyingBroker, tmp_path: Path) -> None:
    """A newer broker may have more of them."""
    told = lie(ApiKey.LIST_GROUPS, "error_code is 9999")
    outcome = tell(cluster, liar, tmp_path, "consumer-groups --list", ApiKey.LIST_GROUPS, told)
    assert outcome.status == 1
    assert "error code 9999, which is not known here" in outcome.error


def test_a_long_message_of_a_broker_is_cut(cluster: Cluster, liar: LyingBroker, tmp_path: Path) -> None:
    """An error is a line that can be read."""

    def change(response: Any) -> None:
        response.results[0].error_code, response.results[0].error_message = 40, "x" * 30_000

    words = "configs --describe --entity-type topics --entity-name"
    outcome = tell(cluster, liar, tmp_path, words, ApiKey.DESCRIBE_CONFIGS, answer(change))
    assert outcome.status == 1
    assert len(outcome.error) < 5000


def test_a_property_that_is_no_number_is_refused_with_its_name(
    cluster: Cluster, liar: LyingBroker, tmp_path: Path
) -> None:
    """Partitions below it are found by it."""

    def change(response: Any) -> None:
        next(each for each in response.results[0].configs if each.name == "min.insync.replicas").value = "two"

    words = "topics --describe --under-min-isr-partitions"
    outcome = tell(cluster, liar, tmp_path, words, ApiKey.DESCRIBE_CONFIGS, answer(change))
    assert outcome.status == 1
    assert "min.insync.replicas='two': a number is expected" in outcome.error
    assert ConfigEntry("a", "", ConfigSource.UNKNOWN, False, False, []).number(3) == 3


def test_verification_once_ends_at_a_trouble_that_stays(cluster: Cluster, liar: LyingBroker, tmp_path: Path) -> None:
    """A replica that is nowhere cannot be compared."""
    told = lie(ApiKey.METADATA, "topics.partitions.replica_nodes: 77 more")
    liar.tell(ApiKey.METADATA, told)
    brief = Command(command("replica-verification").line + " --timeout 1")
    outcome = run_lied_to(brief, cluster, liar, tmp_path)
    assert outcome.status == INCOMPLETE
    assert "partitions could not be compared for" in outcome.error


def test_verification_goes_on_after_the_time_for_an_answer(cluster: Cluster, liar: LyingBroker, tmp_path: Path) -> None:
    """It asks again and again, and each of its questions has its own end."""
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(30):
            producer.send("orders", str(number), partition=0)
            producer.flush()
    made = Command(command("replica-verification").line + " --timeout 0.3 --fetch-size 70 --topics-include orders")
    liar.tell(ApiKey.FETCH, Lie("slowly", _slowly))
    outcome = run_lied_to(made, cluster, liar, tmp_path)
    assert outcome.status == 0, outcome.error


def _slowly(response: Message, _: int, __: int) -> Message:
    time.sleep(0.03)
    return response


def test_the_answer_of_a_liar_is_a_protocol_error_at_once(liar: LyingBroker, admin: Admin) -> None:
    """It is no passing trouble: nothing is repeated until the time for the call is over."""
    liar.tell(ApiKey.LIST_OFFSETS, lie(ApiKey.LIST_OFFSETS, "topics is empty"))
    with pytest.raises(ProtocolError, match="answered ListOffsets with nothing about partition orders 0") as raised:
        admin.list_offsets({TopicPartition("orders", 0): LATEST})
    assert not raised.value.retriable
    liar.tell(ApiKey.DESCRIBE_GROUPS, lie(ApiKey.DESCRIBE_GROUPS, "groups is empty"))
    with pytest.raises(ProtocolError, match="answered DescribeGroups with nothing about group readers"):
        admin.describe_group("readers")


def test_calls_of_admin_refuse_what_was_not_asked_for(liar: LyingBroker, admin: Admin) -> None:
    """The configuration of one topic, the producers of one partition, the offsets of one group."""
    calls: list[tuple[int, str, Callable[[], object]]] = [
        (ApiKey.DESCRIBE_CONFIGS, "results.resource_name is ''", lambda: admin.topic_configs("orders")),
        (ApiKey.DESCRIBE_PRODUCERS, "topics is empty", lambda: admin.describe_producers("orders", 0)),
        (ApiKey.OFFSET_FETCH, "groups.group_id is ''", lambda: admin.group_offsets("readers")),
        (ApiKey.METADATA, "topics is empty", lambda: admin.describe_topics(["orders"])),
        (ApiKey.CREATE_TOPICS, "topics.name is ''", lambda: admin.create_topic("another", partitions=1)),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "results is empty", lambda: admin.scram_users(["ann"])),
        (ApiKey.DESCRIBE_LOG_DIRS, "results: all twice", lambda: admin.describe_log_dirs(0)),
    ]
    for api_key, name, call in calls:
        liar.tell(api_key, lie(api_key, name))
        with pytest.raises(ProtocolError, match=f"answered {ApiKey(api_key).title} with"):
            call()


def test_many_partitions_of_one_leader_are_asked_for_in_pieces(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker refuses a request that names more than it takes."""
    monkeypatch.setattr(offsets, "_MOST_PARTITIONS", 2)
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as honest:
        wanted = {TopicPartition("orders", number): LATEST for number in range(3)}
        assert list(honest.list_offsets(wanted)) == list(wanted)


def test_a_link_that_cannot_read_what_it_knew_does_not_start(
    liar: LyingBroker, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old checkpoints keep groups from going back."""
    properties = {"bootstrap.servers": liar.address}
    # Records without keys do not belong to a link.
    assert MirrorLink._read(properties, admin, "orders") == []
    monkeypatch.setattr(link, "_READ_S", 1.0)
    liar.tell(ApiKey.FETCH, lie(ApiKey.FETCH, "no body"))
    with pytest.raises(TimedOutError, match="orders was not read within 1 s: to offset 0 of"):
        MirrorLink._read(properties, admin, "orders")
    liar.tell(ApiKey.LIST_OFFSETS, lie(ApiKey.LIST_OFFSETS, "topics.partitions.error_code is 9999"))
    with pytest.raises(RefusedError, match="error code 9999"):
        MirrorLink._read(properties, admin, "orders")


def test_every_command_that_asks_a_broker_is_lied_to() -> None:
    """A command that is new here cannot be forgotten; those of librdkafka are asked in the
    trial, mirror-maker too."""
    ours = {each.line.split()[0] for each in (*READING, *CHANGING)}
    librdkafka = {each.split()[0] for each in OF_LIBRDKAFKA}
    local = {
        *("up", "status", "logs", "down", "server-stop", "server-start", "dump-log", "lost-records", "pipeline"),
        *("context", "completion", "shims", "run-class", "metrics"),
        *("registry", "rest"),  # servers that ask by the clients, whose calls are lied to above
        *(name for name in COMMANDS if name.startswith("zookeeper-")),
    }
    assert ours | librdkafka | local == set(COMMANDS)
