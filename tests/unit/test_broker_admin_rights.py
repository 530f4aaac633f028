"""Which rights administration needs: what is refused without them, in which words, and that
nothing is touched. Parts that a refused request must not reach are absent."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.broker.apis import load_handlers
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.config_admin import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC, ConfigAdmin
from barnabas.broker.topics.planning import TakenNames
from barnabas.security.acls import AclOperation as Op
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.errors import ErrorCode as E
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.messages.alter_configs import AlterableConfig as ReplacingConfig
from barnabas.wire.kafka.messages.alter_configs import AlterConfigsRequest
from barnabas.wire.kafka.messages.alter_configs import AlterConfigsResource as ReplacedResource
from barnabas.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from barnabas.wire.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from barnabas.wire.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.kafka.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.wire.kafka.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from barnabas.wire.kafka.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from support.acl_entries import Right, auth_helper, on_cluster, on_group, on_topic
from support.broker import DataPath

CLUSTER_OPERATIONS = (Op.CREATE, Op.ALTER, Op.DESCRIBE, Op.CLUSTER_ACTION, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)
IMPLYING = {Op.DESCRIBE: {Op.ALTER}, Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS}}
GROUP_RESOURCE = 32


class Question(NamedTuple):
    """A request that needs an operation on the cluster."""

    module: str
    message: Any
    operation: Op
    codes: Callable[[Any, int], Iterable[int]]
    """The errors in an answer of a version."""


def of_all(answer: Any, _version: int) -> list[int]:
    return [answer.error_code]


def of_reassigned(answer: Any, _version: int) -> list[int]:
    parts = [part.error_code for topic in answer.responses for part in topic.partitions]
    return [answer.error_code, *parts]


def of_elections(answer: Any, version: int) -> list[int]:
    whole = [answer.error_code] if version > 0 else []
    return whole + [part.error_code for topic in answer.replica_election_results for part in topic.partition_result]


QUESTIONS = [
    Question(
        "alter_partition_reassignments",
        AlterPartitionReassignmentsRequest(
            timeout_ms=1000,
            topics=[ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[0])])],
        ),
        Op.ALTER,
        of_reassigned,
    ),
    Question(
        "list_partition_reassignments",
        ListPartitionReassignmentsRequest(
            timeout_ms=1000, topics=[ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])]
        ),
        Op.DESCRIBE,
        of_all,
    ),
    Question(
        "elect_leaders",
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0, 1])], timeout_ms=1000),
        Op.ALTER,
        of_elections,
    ),
    Question(
        "update_features",
        UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="f", max_version_level=1)], timeout_ms=1000),
        Op.ALTER,
        of_all,
    ),
    Question(
        "alter_replica_log_dirs",
        AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/d", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0, 1])])]
        ),
        Op.ALTER,
        lambda answer, _: [part.error_code for topic in answer.results for part in topic.partitions],
    ),
    Question(
        "describe_user_scram_credentials",
        DescribeUserScramCredentialsRequest(users=[UserName(name="ann")]),
        Op.DESCRIBE,
        of_all,
    ),
]
CASES = [
    (question, version)
    for question in QUESTIONS
    for handler in load_handlers((question.module,)).values()
    for version in handler.versions
]


class AdminPath(DataPath):
    """A data path whose controller is elsewhere, unless a test says otherwise."""

    def __init__(self, directory: Path, rights: Iterable[Right], *modules: str, **parts: Any) -> None:
        super().__init__(directory)
        self.know("t", "secret")
        here = SimpleNamespace(is_active=False)
        self.serve(modules, **{"auth_helper": auth_helper(rights), "controller": here, **parts})
        self.wire = self.connect()

    def know(self, *topics: str) -> None:
        """Metadata of topics with ids, as the controller sends it."""
        states = [
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=topic_id(name),
                partition_states=[UpdateMetadataPartitionState(partition_index=0, leader=0, replicas=[0], isr=[0])],
            )
            for name in topics
        ]
        here = UpdateMetadataBroker(id=0, endpoints=[UpdateMetadataEndpoint(port=1, host="h", listener="PLAINTEXT")])
        self.metadata.update(UpdateMetadataRequest(live_brokers=[here], topic_states=states))


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"."))


def all_but(operation: Op) -> list[Right]:
    """Every right on the cluster that does not imply one."""
    return on_cluster(*set(CLUSTER_OPERATIONS) - {operation} - IMPLYING.get(operation, set()))


def in_short_slices(path: DataPath, monkeypatch: pytest.MonkeyPatch, steps: int = 100) -> None:
    def time_slice() -> Callable[[], bool]:
        left = iter(range(steps))
        return lambda: next(left, None) is None

    monkeypatch.setattr(path.clock, "time_slice", time_slice)


def of_case(case: tuple[Question, int]) -> str:
    return f"{case[0].module}-v{case[1]}"


@pytest.mark.parametrize("case", CASES, ids=of_case)
def test_a_request_without_its_right_on_the_cluster_is_refused(case: tuple[Question, int], tmp_path: Path) -> None:
    """In each version, whatever else the client may do; the subsystems are not asked."""
    question, version = case
    path = AdminPath(tmp_path, all_but(question.operation), question.module)
    codes = list(question.codes(path.wire.ask(question.message, version), version))
    assert set(codes) == {E.CLUSTER_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("case", CASES, ids=of_case)
def test_a_request_with_its_right_alone_goes_on(case: tuple[Question, int], tmp_path: Path) -> None:
    """The next thing that it lacks here is a controller, or a part."""
    question, version = case
    path = AdminPath(tmp_path, on_cluster(question.operation), question.module)
    codes = set(question.codes(path.wire.ask(question.message, version), version))
    assert codes <= {E.NOT_CONTROLLER, E.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("version", range(1, 5))
def test_log_dirs_are_described_to_those_who_may_describe_the_cluster(tmp_path: Path, version: int) -> None:
    """Without the right there are none; versions from 3 on say why."""
    path = AdminPath(tmp_path / "denied", all_but(Op.DESCRIBE), "describe_log_dirs")
    answer = path.wire.ask(DescribeLogDirsRequest(topics=None), version)
    assert answer.results == []
    assert answer.error_code == (E.CLUSTER_AUTHORIZATION_FAILED if version >= 3 else E.NONE)
    path = AdminPath(tmp_path / "allowed", on_cluster(Op.DESCRIBE), "describe_log_dirs")
    assert len(path.wire.ask(DescribeLogDirsRequest(topics=None), version).results) == 1


def test_credentials_are_changed_by_those_who_may_alter_the_cluster(tmp_path: Path) -> None:
    """The controller refuses each user once; another broker does not look at rights."""
    message = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in ("bob", "ann", "bob")]
    )
    here = SimpleNamespace(is_active=True)
    path = AdminPath(tmp_path / "1", all_but(Op.ALTER), "alter_user_scram_credentials", controller=here)
    results = path.wire.ask(message, 0).results
    assert [(each.user, each.error_code) for each in results] == [
        ("ann", E.CLUSTER_AUTHORIZATION_FAILED),
        ("bob", E.CLUSTER_AUTHORIZATION_FAILED),
    ]
    path = AdminPath(tmp_path / "2", all_but(Op.ALTER), "alter_user_scram_credentials")
    assert {each.error_code for each in path.wire.ask(message, 0).results} == {E.NOT_CONTROLLER}
    path = AdminPath(tmp_path / "3", on_cluster(Op.ALTER), "alter_user_scram_credentials", controller=here)
    assert {each.error_code for each in path.wire.ask(message, 0).results} == {E.UNKNOWN_SERVER_ERROR}


class TestOfBrokers:
    """Requests that only brokers send."""

    HANDLERS = [handler for handler in load_handlers().values() if handler.inter_broker]

    def test_these_are_the_apis_of_brokers(self) -> None:
        """As Apache's brokers have it; AddPartitionsToTxn is one of them from version 4 on."""
        assert {handler.key for handler in self.HANDLERS} == {
            ApiKey.LEADER_AND_ISR,
            ApiKey.STOP_REPLICA,
            ApiKey.UPDATE_METADATA,
            ApiKey.CONTROLLED_SHUTDOWN,
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.ALTER_PARTITION,
            ApiKey.ALLOCATE_PRODUCER_IDS,
        }

    @pytest.mark.parametrize(
        ("key", "version"),
        [
            (handler.key, version)
            for handler in HANDLERS
            for version in handler.versions
            if handler.key is not ApiKey.WRITE_TXN_MARKERS
        ],
    )
    def test_a_client_without_cluster_action_is_refused(self, tmp_path: Path, key: ApiKey, version: int) -> None:
        """With every other right on the cluster."""
        path = AdminPath(tmp_path, all_but(Op.CLUSTER_ACTION), key.name.lower())
        assert path.wire.ask(api(key).request(), version).error_code == E.CLUSTER_AUTHORIZATION_FAILED

    @pytest.mark.parametrize("version", range(2, 8))
    def test_each_role_is_refused(self, tmp_path: Path, version: int) -> None:
        """By name, or by the topic's id from version 5 on."""
        path = AdminPath(tmp_path, all_but(Op.CLUSTER_ACTION), "leader_and_isr")
        state = LeaderAndIsrPartitionState(partition_index=3, leader=0, replicas=[0], isr=[0])
        topic = LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id("t"), partition_states=[state])
        answer = path.wire.ask(LeaderAndIsrRequest(controller_epoch=1, topic_states=[topic]), version)
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        errors = [(each.topic_name, each.partition_index, each.error_code) for each in answer.partition_errors]
        by_id = [(each.topic_id, each.partition_errors[0].partition_index) for each in answer.topics]
        assert errors == ([("t", 3, E.CLUSTER_AUTHORIZATION_FAILED)] if version < 5 else [])
        assert by_id == ([] if version < 5 else [(topic_id("t"), 3)])
        assert path.replicas.get(TopicPartition("t", 3)) is None

    @pytest.mark.parametrize("version", range(1, 5))
    def test_each_stop_is_refused(self, tmp_path: Path, version: int) -> None:
        """In all forms in which versions name partitions; the replica stays."""
        path = AdminPath(tmp_path, all_but(Op.CLUSTER_ACTION), "stop_replica")
        path.lead("t", 3)
        state = StopReplicaPartitionState(partition_index=3, leader_epoch=9, delete_partition=True)
        fields: dict[str, Any] = {
            "topics": [StopReplicaTopicV1(name="t", partition_indexes=[3])],
            "delete_partitions": True,
        }
        if version > 2:
            fields = {"topic_states": [StopReplicaTopicState(topic_name="t", partition_states=[state])]}
        answer = path.wire.ask(StopReplicaRequest(controller_epoch=1, **fields), version)
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        assert [(each.topic_name, each.partition_index, each.error_code) for each in answer.partition_errors] == [
            ("t", 3, E.CLUSTER_AUTHORIZATION_FAILED)
        ]
        assert path.replicas.get(TopicPartition("t", 3)) is not None

    def test_a_refused_controller_changes_nothing(self, tmp_path: Path) -> None:
        """The metadata stays, and the broker reads no epoch for it."""
        path = AdminPath(tmp_path, all_but(Op.CLUSTER_ACTION), "update_metadata")
        path.perform = lambda steps: pytest.fail(f"performs {steps!r}")
        message = UpdateMetadataRequest(controller_id=7, controller_epoch=1 << 30, live_brokers=[])
        assert path.wire.ask(message, 8).error_code == E.CLUSTER_AUTHORIZATION_FAILED
        assert path.metadata.has_brokers
        assert path.metadata.controller_id != 7


class TestDescribeCluster:
    """DescribeCluster reports the brokers to every client."""

    def ask(self, directory: Path, rights: Iterable[Right], version: int = 1) -> Any:
        path = AdminPath(directory, rights, "describe_cluster")
        return path.wire.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)

    @pytest.mark.parametrize("version", range(2))
    def test_operations_are_reported_to_those_who_may_describe_the_cluster(self, tmp_path: Path, version: int) -> None:
        """Those that they may do, and no others."""
        answer = self.ask(tmp_path, on_cluster(Op.ALTER), version)
        assert answer.cluster_authorized_operations == 1 << Op.ALTER | 1 << Op.DESCRIBE

    def test_other_clients_see_the_brokers_and_no_operation(self, tmp_path: Path) -> None:
        """Not even the one that they have."""
        answer = self.ask(tmp_path, on_cluster(Op.CREATE))
        assert answer.error_code == E.NONE
        assert len(answer.brokers) == 1
        assert answer.cluster_authorized_operations == 0


class NoTopics:
    """The controller's topics: none, and each plan is a failure of the test."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def existing(self) -> TakenNames:
        return TakenNames(())

    def plan(self, topic: CreatableTopic, *_: object) -> Steps[Any]:
        self.asked.append(topic.name)
        yield None
        raise KafkaError(E.TOPIC_ALREADY_EXISTS)

    def grow(self, name: str, *_: object, **__: object) -> Steps[int]:
        self.asked.append(name)
        yield None
        return 1

    def delete(self, names: list[str]) -> Steps[dict[str, KafkaError]]:
        self.asked += names
        yield None
        return dict.fromkeys(names, KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION))

    def when_deleted(self, names: list[str], done: Callable[[set[str]], None], _: int) -> None:
        done(set(names))


class TopicsPath(AdminPath):
    """The controller's broker."""

    def __init__(self, directory: Path, rights: Iterable[Right], module: str) -> None:
        self.topics = NoTopics()
        controller = SimpleNamespace(is_active=True, context=SimpleNamespace(has_read_znodes=True))
        super().__init__(directory, rights, module, topics=self.topics, controller=controller, start=done_here)


class TestCreateTopics:
    """CREATE on the cluster or the topic, and DESCRIBE_CONFIGS for what is described."""

    def ask(self, path: TopicsPath, *names: str, version: int = 7) -> dict[str, tuple[int, int]]:
        """The errors of topics and of their descriptions."""
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        answer = path.wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), version)
        assert all(each.num_partitions == -1 and each.topic_id == ZERO_UUID for each in answer.topics)
        return {each.name: (each.error_code, each.topic_config_error_code) for each in answer.topics}

    def test_a_topic_without_rights_is_not_planned(self, tmp_path: Path) -> None:
        """Whether it exists is not looked at; nor may it be described."""
        path = TopicsPath(tmp_path, [*all_but(Op.CREATE), *on_topic("t", Op.WRITE)], "create_topics")
        refused = (E.TOPIC_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED)
        assert self.ask(path, "t", "new") == {"t": refused, "new": refused}
        assert path.topics.asked == []

    @pytest.mark.parametrize("version", range(2, 8))
    def test_each_topic_is_allowed_by_itself(self, tmp_path: Path, version: int) -> None:
        """Versions before 5 describe nothing."""
        rights = [*on_topic("mine", Op.CREATE), *on_topic("shown", Op.DESCRIBE_CONFIGS)]
        path = TopicsPath(tmp_path, rights, "create_topics")
        hidden = E.TOPIC_AUTHORIZATION_FAILED if version >= 5 else E.NONE
        assert self.ask(path, "mine", "shown", "other", version=version) == {
            "mine": (E.TOPIC_ALREADY_EXISTS, E.NONE),
            "shown": (E.TOPIC_AUTHORIZATION_FAILED, E.NONE),
            "other": (E.TOPIC_AUTHORIZATION_FAILED, hidden),
        }
        assert path.topics.asked == ["mine"]

    def test_the_right_on_the_cluster_is_for_all_topics(self, tmp_path: Path) -> None:
        """Then rights on topics are not looked at."""
        path = TopicsPath(tmp_path, on_cluster(Op.CREATE), "create_topics")
        assert {code for code, _ in self.ask(path, "a", "b").values()} == {E.TOPIC_ALREADY_EXISTS}
        assert path.topics.asked == ["a", "b"]

    def test_names_that_nobody_may_use_are_invalid_before_rights_count(self, tmp_path: Path) -> None:
        """As on Apache's brokers: they reveal nothing."""
        path = TopicsPath(tmp_path, [], "create_topics")
        assert self.ask(path, "__cluster_metadata", "twice", "twice") == {
            "__cluster_metadata": (E.INVALID_REQUEST, E.NONE),
            "twice": (E.INVALID_REQUEST, E.TOPIC_AUTHORIZATION_FAILED),
        }

    def test_a_request_for_very_many_topics_is_refused_in_slices(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Others have their turn meanwhile."""
        path = TopicsPath(tmp_path, [], "create_topics")
        in_short_slices(path, monkeypatch)
        topics = [CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(2000)]
        path.wire.post(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
        turns = 0
        while not path.wire.sent:
            path.timers.advance(0)
            turns += 1
        assert turns > 2000 * 3 // 100
        assert {each.error_code for each in path.wire.answer().topics} == {E.TOPIC_AUTHORIZATION_FAILED}


class TestCreatePartitions:
    """ALTER on the topic."""

    @pytest.mark.parametrize("version", range(4))
    def test_each_topic_is_allowed_by_itself(self, tmp_path: Path, version: int) -> None:
        """One that is named twice is invalid, whatever the rights."""
        path = TopicsPath(tmp_path, [*on_topic("t", Op.ALTER), *on_topic("secret", Op.DELETE)], "create_partitions")
        names = ("t", "secret", "new", "twice", "twice")
        topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=0, validate_only=True)
        results = path.wire.ask(request, version).results
        assert {each.name: each.error_code for each in results} == {
            "t": E.NONE,
            "secret": E.TOPIC_AUTHORIZATION_FAILED,
            "new": E.TOPIC_AUTHORIZATION_FAILED,
            "twice": E.INVALID_REQUEST,
        }
        assert path.topics.asked == ["t"]


class TestDeleteTopics:
    """DELETE on the topic; DESCRIBE for the name that an id stands for."""

    def by_name(self, path: TopicsPath, *names: str, version: int = 5) -> dict[str, int]:
        answer = path.wire.ask(DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000), version)
        return {each.name: each.error_code for each in answer.responses}

    def by_id(self, path: TopicsPath, *topics: DeleteTopicState) -> list[tuple[str | None, int]]:
        answer = path.wire.ask(DeleteTopicsRequest(topics=list(topics), timeout_ms=1000), 6)
        return [(each.name, each.error_code) for each in answer.responses]

    @pytest.mark.parametrize("version", range(1, 6))
    def test_each_name_is_allowed_by_itself(self, tmp_path: Path, version: int) -> None:
        """What exists and what does not are refused alike."""
        rights = [*on_topic("gone", Op.DELETE), *on_topic("secret", Op.DESCRIBE)]
        path = TopicsPath(tmp_path, rights, "delete_topics")
        assert self.by_name(path, "gone", "secret", "new", version=version) == {
            "gone": E.UNKNOWN_TOPIC_OR_PARTITION,
            "secret": E.TOPIC_AUTHORIZATION_FAILED,
            "new": E.TOPIC_AUTHORIZATION_FAILED,
        }
        assert path.topics.asked == ["gone"]

    def test_the_name_of_an_id_is_told_to_those_who_may_describe_it(self, tmp_path: Path) -> None:
        """Deletion implies that."""
        path = TopicsPath(tmp_path, on_topic("t", Op.DESCRIBE), "delete_topics")
        ids = [DeleteTopicState(name=None, topic_id=topic_id(name)) for name in ("t", "secret", "new")]
        assert self.by_id(path, *ids) == [
            ("t", E.TOPIC_AUTHORIZATION_FAILED),
            (None, E.TOPIC_AUTHORIZATION_FAILED),
            (None, E.UNKNOWN_TOPIC_ID),
        ]
        assert path.topics.asked == []
        path = TopicsPath(tmp_path / "2", on_topic("t", Op.DELETE), "delete_topics")
        assert self.by_id(path, *ids[:1]) == [("t", E.UNKNOWN_TOPIC_OR_PARTITION)]

    def test_a_name_beside_an_id_does_not_reveal_that_they_are_one(self, tmp_path: Path) -> None:
        """A topic that is named twice is an error of those who may delete it."""
        path = TopicsPath(tmp_path, on_topic("t", Op.DELETE), "delete_topics")
        both = [DeleteTopicState(name="secret"), DeleteTopicState(name=None, topic_id=topic_id("secret"))]
        assert self.by_id(path, *both) == [
            ("secret", E.TOPIC_AUTHORIZATION_FAILED),
            (None, E.TOPIC_AUTHORIZATION_FAILED),
        ]
        both = [DeleteTopicState(name="t"), DeleteTopicState(name=None, topic_id=topic_id("t"))]
        assert [code for _, code in self.by_id(path, *both)] == [E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_REQUEST]


class Repository:
    """Takes changes of configuration."""

    def __init__(self) -> None:
        self.altered: list[str] = []
        self.read: list[str] = []

    def alter_topic(self, topic: str, *_: object, **__: object) -> Steps[None]:
        self.altered.append(topic)
        yield None

    def alter_broker(self, broker: int | None, *_: object, **__: object) -> Steps[None]:
        self.altered.append(f"broker {broker}")
        yield None

    def refresh(self, entities: Iterable[str]) -> Steps[None]:
        self.read += entities
        yield None


class Configs:
    """Describes all resources by nothing."""

    def topic_texts(self, _: str) -> dict[str, str]:
        return {}

    def describe_topic(self, *_: object, **__: object) -> list[Any]:
        return []

    describe_broker = describe_loggers = describe_topic


class ConfigsPath(AdminPath):
    """A broker with real checks of changes."""

    def __init__(self, directory: Path, rights: Iterable[Right], module: str) -> None:
        self.repository = Repository()
        admin = ConfigAdmin(0, self.repository, lambda name: name in self.metadata)  # type: ignore[arg-type]
        parts = {"config_admin": admin, "config_repository": self.repository}
        described = {"configs": Configs(), "config_helper": Configs()}
        super().__init__(directory, rights, module, start=done_here, **parts, **described)


RESOURCES = [
    (TOPIC, "t"),
    (TOPIC, "secret"),
    (TOPIC, "new"),
    (BROKER, "0"),
    (BROKER, ""),
    (BROKER_LOGGER, "0"),
    (CLIENT_METRICS, "m"),
    (99, "x"),
]
REFUSED_TOPIC, REFUSED_CLUSTER = E.TOPIC_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED


class TestAlterConfigs:
    """ALTER_CONFIGS on topics, and on the cluster for all else, by both APIs."""

    def replace(self, path: ConfigsPath, version: int) -> dict[tuple[int, str], int]:
        resources = [
            ReplacedResource(
                resource_type=kind, resource_name=name, configs=[ReplacingConfig(name="retention.ms", value="1")]
            )
            for kind, name in RESOURCES
        ]
        return self.codes(path, AlterConfigsRequest(resources=resources), version)

    def change(self, path: ConfigsPath, version: int) -> dict[tuple[int, str], int]:
        resources = [
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name="root", config_operation=0, value="INFO")],
            )
            for kind, name in RESOURCES
        ]
        return self.codes(path, IncrementalAlterConfigsRequest(resources=resources, validate_only=True), version)

    def codes(self, path: ConfigsPath, message: Any, version: int) -> dict[tuple[int, str], int]:
        answer = path.wire.ask(message, version)
        return {(each.resource_type, each.resource_name): each.error_code for each in answer.responses}

    @pytest.mark.parametrize("version", range(3))
    def test_replacing_needs_the_right_on_each_resource(self, tmp_path: Path, version: int) -> None:
        """Resources that cannot be altered are invalid, whatever the rights."""
        rights = [*on_topic("t", Op.ALTER_CONFIGS), *on_topic("secret", Op.ALTER), *all_but(Op.ALTER_CONFIGS)]
        path = ConfigsPath(tmp_path, rights, "alter_configs")
        assert list(self.replace(path, version).values()) == [
            *(E.NONE, REFUSED_TOPIC, REFUSED_TOPIC, REFUSED_CLUSTER, REFUSED_CLUSTER),
            *(E.INVALID_REQUEST, E.INVALID_REQUEST, E.INVALID_REQUEST),
        ]
        assert path.repository.altered == ["t"]

    @pytest.mark.parametrize("version", range(2))
    def test_changing_needs_the_right_on_each_resource(self, tmp_path: Path, version: int) -> None:
        """The levels of loggers need that on the cluster."""
        rights = [*on_topic("t", Op.ALTER_CONFIGS), *all_but(Op.ALTER_CONFIGS)]
        path = ConfigsPath(tmp_path, rights, "incremental_alter_configs")
        assert list(self.change(path, version).values()) == [
            *(E.NONE, REFUSED_TOPIC, REFUSED_TOPIC, REFUSED_CLUSTER, REFUSED_CLUSTER),
            *(REFUSED_CLUSTER, E.INVALID_REQUEST, E.INVALID_REQUEST),
        ]
        assert path.repository.altered == ["t"]

    def test_the_right_on_the_cluster_is_for_brokers_and_not_for_topics(self, tmp_path: Path) -> None:
        """Both by name and for all brokers."""
        path = ConfigsPath(tmp_path, on_cluster(Op.ALTER_CONFIGS), "incremental_alter_configs")
        assert list(self.change(path, 1).values()) == [
            *(REFUSED_TOPIC, REFUSED_TOPIC, REFUSED_TOPIC, E.NONE, E.NONE),
            *(E.NONE, E.INVALID_REQUEST, E.INVALID_REQUEST),
        ]
        assert path.repository.altered == ["broker 0", "broker None"]


class TestDescribeConfigs:
    """DESCRIBE_CONFIGS on topics and groups, and on the cluster for all else."""

    def ask(self, path: ConfigsPath, version: int = 4) -> list[tuple[int, str, int]]:
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in (*RESOURCES, (GROUP_RESOURCE, "g"))
        ]
        results = path.wire.ask(DescribeConfigsRequest(resources=resources), version).results
        return [(each.resource_type, each.resource_name, each.error_code) for each in results]

    @pytest.mark.parametrize("version", range(1, 5))
    def test_each_resource_needs_the_right(self, tmp_path: Path, version: int) -> None:
        """Those that are refused come last, and nothing is read for them."""
        rights = [*on_topic("t", Op.ALTER_CONFIGS), *on_topic("secret", Op.DESCRIBE), *all_but(Op.DESCRIBE_CONFIGS)]
        path = ConfigsPath(tmp_path, rights, "describe_configs")
        assert self.ask(path, version) == [
            (TOPIC, "t", E.NONE),
            (99, "x", E.INVALID_REQUEST),
            (TOPIC, "secret", REFUSED_TOPIC),
            (TOPIC, "new", REFUSED_TOPIC),
            (BROKER, "0", REFUSED_CLUSTER),
            (BROKER, "", REFUSED_CLUSTER),
            (BROKER_LOGGER, "0", REFUSED_CLUSTER),
            (CLIENT_METRICS, "m", REFUSED_CLUSTER),
            (GROUP_RESOURCE, "g", E.GROUP_AUTHORIZATION_FAILED),
        ]
        assert path.repository.read == ["topics/t"]

    def test_the_right_on_the_cluster_is_for_brokers_and_not_for_topics(self, tmp_path: Path) -> None:
        """And a group has its own."""
        rights = [*on_cluster(Op.DESCRIBE_CONFIGS), *on_group("g", Op.DESCRIBE_CONFIGS)]
        path = ConfigsPath(tmp_path, rights, "describe_configs")
        assert [code for *_, code in self.ask(path)] == [
            *(E.NONE, E.NONE, E.NONE, E.INVALID_REQUEST, E.INVALID_REQUEST, E.INVALID_REQUEST),
            *(REFUSED_TOPIC, REFUSED_TOPIC, REFUSED_TOPIC),
        ]
        assert path.repository.read == []


def test_a_forwarded_request_closes_the_connection(tmp_path: Path) -> None:
    """There is no API Envelope: no client can ask in another's name."""
    path = AdminPath(tmp_path, on_cluster(Op.CLUSTER_ACTION), "describe_cluster")
    envelope = bytes.fromhex("003a0000") + (7).to_bytes(4, "big") + b"\xff\xff\x00" + bytes(8)
    assert path.wire.handler is not None
    path.wire.handler.frame(memoryview(bytearray(envelope)))
    assert path.wire.is_closed
    assert ApiKey.DESCRIBE_CLUSTER in path.dispatcher.handlers
    assert 58 not in load_handlers()


def test_without_an_authorizer_each_request_goes_on(tmp_path: Path) -> None:
    """None of the rights is asked for."""
    for number, (question, version) in enumerate(CASES):
        path = AdminPath(tmp_path / str(number), [], question.module, auth_helper=AuthHelper(None))
        codes = set(question.codes(path.wire.ask(question.message, version), version))
        assert codes <= {E.NOT_CONTROLLER, E.UNKNOWN_SERVER_ERROR}
