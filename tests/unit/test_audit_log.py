"""The audit log: what is denied, and what administrators do."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.tasks import done_here
from barnabas.broker import apis
from barnabas.broker.authorizer.audit_log import AuthorizerLog
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.authorizer.authorizer import Authorizer, VersionedAcls
from barnabas.broker.requests.request import ClientFacts, Request
from barnabas.cli.output.authorizer_log import JsonAuditFormatter
from barnabas.cli.output.log_lines import LogFormatter
from barnabas.security.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.kafka.messages.fetch import FetchRequest
from barnabas.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.broker import ManualClock, ManualTimers

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
SECRET = "swordfish"
INTERVAL_MS = 60_000
ADMINISTRATIVE = {handler.key: handler.administrative for handler in apis.load_handlers().values()}


class Lines(logging.Handler):
    """What the audit log writes, as text and as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.objects: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(LogFormatter("%(message)s").format(record))
        self.objects.append(json.loads(JsonAuditFormatter().format(record)))


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines of one test."""
    handler, logger = Lines(), logging.getLogger("kafka.authorizer.logger")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


class Broker:
    """An authorizer that allows ``admin`` everything, and what asks it."""

    def __init__(self) -> None:
        self.timers = ManualTimers(ManualClock())
        self.log = AuthorizerLog(self.timers)
        authorizer = Authorizer()
        authorizer.configure(frozenset(["User:admin"]), allow_everyone_if_no_acl_found=False)
        self.helper = AuthHelper(authorizer, self.log)
        self.answers: list[Any] = []

    def request(self, message: Any, user: str = "bob", host: str = "10.0.0.7") -> Request:
        client = ClientFacts("SASL_SSL", host, 4711)
        client.principal = f"User:{user}"
        key = ApiKey(message.API_KEY)
        version = api(key).versions.last
        made = Request(key, version, 0, "c", message, client, 0, lambda *answer: self.answers.append(answer[1:]))
        made.administrative_actions = [] if ADMINISTRATIVE[key] else None
        return made


def fetch() -> FetchRequest:
    return FetchRequest(topics=[], max_wait_ms=0, min_bytes=0)


def test_a_denied_operation_has_the_line_that_kafka_writes(lines: Lines) -> None:
    """With principal, host, resource and operation; in JSON each has a name."""
    broker = Broker()
    asked = broker.request(fetch())
    assert not broker.helper.authorize(asked, AclOperation.READ, TOPIC, "orders", count=3)
    assert lines.texts == [
        "Principal = User:bob is Denied Operation = Read from host = 10.0.0.7 on resource = Topic:LITERAL:orders "
        "for request = Fetch with resourceRefCount = 3"
    ]
    (found,) = lines.objects
    assert found.pop("time").endswith("Z")
    assert found == {
        "principal": "User:bob",
        "host": "10.0.0.7",
        "operation": "Read",
        "resourceType": "Topic",
        "patternType": "LITERAL",
        "resourceName": "orders",
        "request": "Fetch",
        "resourceRefCount": 3,
        "allowed": False,
    }


@pytest.mark.parametrize("names", [["a", "b", "a"], dict.fromkeys(["a", "b"])], ids=["list", "mapping"])
def test_a_line_says_how_often_a_request_names_the_resource(lines: Lines, names: Any) -> None:
    """Each resource is asked for once, and has one line."""
    broker = Broker()
    asking = broker.helper.filter_by_authorized(broker.request(fetch()), AclOperation.READ, TOPIC, names)
    assert done_here(asking) == set()
    counts = {each["resourceName"]: each["resourceRefCount"] for each in lines.objects}
    assert counts == {"a": 2 if isinstance(names, list) else 1, "b": 1}


def test_allowed_operations_and_questions_are_written_at_lower_levels_only(lines: Lines) -> None:
    """DEBUG for what is allowed, TRACE for what was asked to leave things out, as in Kafka."""
    broker = Broker()

    def ask() -> None:
        for user in ("admin", "bob"):
            asked = broker.request(fetch(), user)
            broker.helper.authorize(asked, AclOperation.READ, TOPIC, "t", log_if_denied=user == "admin")
            broker.helper.authorize(asked, AclOperation.READ, TOPIC, "u", log_if_allowed=False, log_if_denied=False)
            done_here(
                broker.helper.authorize_by_resource_type(broker.request(fetch(), "admin"), AclOperation.WRITE, TOPIC)
            )

    expected = {
        logging.INFO: [],
        logging.DEBUG: ["Allowed t", "Allowed NONE", "Allowed NONE"],
        5: ["Allowed t", "Allowed u", "Allowed NONE", "Denied t", "Denied u", "Allowed NONE"],
    }
    for level, shown in expected.items():
        logging.getLogger("kafka.authorizer.logger").setLevel(level)
        lines.objects.clear()
        ask()
        found = [f"{'Allowed' if each['allowed'] else 'Denied'} {each['resourceName']}" for each in lines.objects]
        assert found == shown


def test_a_hundred_thousand_denials_cost_two_lines(lines: Lines) -> None:
    """The first, and their number at the end of the minute."""
    broker = Broker()
    asked = broker.request(fetch())
    for _ in range(100_000):
        broker.helper.authorize(asked, AclOperation.READ, TOPIC, "orders")
    broker.timers.advance(INTERVAL_MS)
    assert len(lines.texts) == 2
    assert lines.texts[1] == f"{lines.texts[0]}, again 99999 times within 60 s"
    assert (lines.objects[1]["count"], lines.objects[1]["intervalSeconds"]) == (99_999, 60)


def test_denials_of_a_hundred_thousand_names_are_bounded_in_lines_and_bytes(lines: Lines) -> None:
    """A client names what it likes, and names may be long."""
    broker = Broker()
    asked = broker.request(fetch(), user="b" * 30_000)
    for number in range(100_000):
        broker.helper.authorize(asked, AclOperation.READ, ResourceType.GROUP, f"{number}{'x' * 300}")
    broker.timers.advance(INTERVAL_MS)
    assert len(lines.texts) == 101
    assert "is Denied 99900 further operations from host = 10.0.0.7 within 60 s" in lines.texts[-1]
    assert sum(map(len, lines.texts)) < 101 * 1000
    for number in range(2000):
        broker.helper.authorize(broker.request(fetch(), f"user-{number}"), AclOperation.READ, TOPIC, "t")
    broker.log.close()
    assert "further operations of other principals are Denied within 60 s" in lines.texts[-1]
    assert len(lines.texts) < 101 + 1000 + 200 + 2


def test_what_was_counted_is_written_when_the_broker_stops(lines: Lines) -> None:
    """An interval that has not ended yet is not lost."""
    broker = Broker()
    asked = broker.request(fetch())
    for _ in range(3):
        broker.helper.authorize(asked, AclOperation.READ, TOPIC, "orders")
    broker.log.close()
    assert lines.texts[1].endswith(", again 2 times within 60 s")


def test_an_administrative_request_has_a_line_for_each_resource_with_its_result(lines: Lines) -> None:
    """When it is answered; the answer itself is not changed."""
    broker = Broker()
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("new", "old")]
    asked = broker.request(CreateTopicsRequest(topics=topics), "admin")
    for name in ("new", "old", "new"):
        assert broker.helper.authorize(asked, AclOperation.CREATE, TOPIC, name)
    assert broker.helper.authorize(asked, AclOperation.DESCRIBE_CONFIGS, TOPIC, "new")
    assert lines.texts == []
    results = [
        CreatableTopicResult(name="new", error_code=0),
        CreatableTopicResult(name="old", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
    ]
    response = CreateTopicsResponse(topics=results)
    asked.reply(response)
    assert broker.answers == [(response, None)]
    assert [text.partition(" on ")[2] for text in lines.texts] == [
        "resource = Topic:LITERAL:new for request = CreateTopics with resourceRefCount = 1, result = NONE, "
        "changes = new partitions=1 replicationFactor=1",
        "resource = Topic:LITERAL:old for request = CreateTopics with resourceRefCount = 1, "
        "result = TOPIC_ALREADY_EXISTS, changes = old partitions=1 replicationFactor=1",
    ]
    assert [each["result"] for each in lines.objects] == ["NONE", "TOPIC_ALREADY_EXISTS"]


def test_an_administrative_request_that_fails_as_a_whole_has_its_error(lines: Lines) -> None:
    """Such as one that the controller has no time for."""
    broker = Broker()
    asked = broker.request(CreateTopicsRequest(topics=[]), "admin")
    broker.helper.authorize(asked, AclOperation.CREATE, CLUSTER, CLUSTER_NAME)
    asked.fail(ErrorCode.REQUEST_TIMED_OUT)
    assert broker.answers == [(None, ErrorCode.REQUEST_TIMED_OUT)]
    assert lines.texts[0].endswith("result = REQUEST_TIMED_OUT")


def test_an_administrative_request_whose_client_goes_away_has_a_line(lines: Lines) -> None:
    """Nobody hides a change by closing the connection; an answer that comes later is not noted."""
    broker = Broker()
    asked = broker.request(CreateTopicsRequest(topics=[]), "admin")
    broker.helper.authorize(asked, AclOperation.CREATE, CLUSTER, CLUSTER_NAME)
    asked.abandon()
    asked.abandon()
    asked.reply(CreateTopicsResponse(topics=[]))
    assert [each["result"] for each in lines.objects] == ["UNKNOWN"]


def test_each_api_that_asks_for_the_right_to_change_something_is_administrative() -> None:
    """Else its changes would have no line; Metadata asks for what a topic that it makes needs."""
    changing = re.compile(r"AclOperation\.(CREATE|DELETE|ALTER|ALTER_CONFIGS)\b")
    asking = {
        getattr(ApiKey, path.stem.upper())
        for path in Path(apis.__file__).parent.glob("*.py")
        if hasattr(ApiKey, path.stem.upper()) and changing.search(path.read_text())
    }
    asking.add(ApiKey.INCREMENTAL_ALTER_CONFIGS)  # by what AlterConfigs asks
    assert asking - {ApiKey.METADATA} == {key for key, is_administrative in ADMINISTRATIVE.items() if is_administrative}


def test_a_large_administrative_request_has_a_bounded_number_of_lines(lines: Lines) -> None:
    """It may name a hundred thousand topics."""
    broker = Broker()
    asked = broker.request(CreateTopicsRequest(topics=[]), "admin")
    for number in range(1000):
        broker.helper.authorize(asked, AclOperation.CREATE, TOPIC, f"t{number}")
    results = [CreatableTopicResult(name=f"t{number}", error_code=7) for number in range(100_000)]
    asked.reply(CreateTopicsResponse(topics=results))
    assert len(lines.texts) == 101
    assert "is Allowed 900 further operations" in lines.texts[-1]


CHANGES = [
    (
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=TOPIC,
                    resource_name="orders",
                    resource_pattern_type=PatternType.PREFIXED,
                    principal="User:bob",
                    host="*",
                    operation=AclOperation.READ,
                    permission_type=AclPermissionType.ALLOW,
                )
            ]
        ),
        AclOperation.ALTER,
        ["create User:bob Allow Read from * on Topic:PREFIXED:orders"],
    ),
    (
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=ResourceType.ANY,
                    resource_name_filter=None,
                    pattern_type_filter=PatternType.ANY,
                    principal_filter="User:bob",
                    host_filter=None,
                    operation=AclOperation.ANY,
                    permission_type=AclPermissionType.ANY,
                )
            ]
        ),
        AclOperation.ALTER,
        ["delete User:bob Any Any from (any) on Any:ANY:(any)"],
    ),
    (
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="eve", mechanism=1)],
            upsertions=[
                ScramCredentialUpsertion(
                    name="bob", mechanism=2, iterations=4096, salt=SECRET.encode(), salted_password=SECRET.encode()
                )
            ],
        ),
        AclOperation.ALTER,
        ["delete SCRAM-SHA-256 of eve", "set SCRAM-SHA-512 of bob"],
    ),
    (
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=4,
                    resource_name="1",
                    configs=[AlterableConfig(name="ssl.key.password", config_operation=0, value=SECRET)],
                ),
                AlterConfigsResource(
                    resource_type=2,
                    resource_name="orders",
                    configs=[AlterableConfig(name="retention.ms", config_operation=0, value=SECRET)],
                ),
            ]
        ),
        AclOperation.ALTER_CONFIGS,
        ["ssl.key.password of 1"],
    ),
    (
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="orders",
                    partitions=[
                        ReassignablePartition(partition_index=0, replicas=[1, 2]),
                        ReassignablePartition(partition_index=1, replicas=None),
                    ],
                )
            ]
        ),
        AclOperation.ALTER,
        ["orders-0 to [1, 2]", "orders-1 to where it was"],
    ),
]


@pytest.mark.parametrize(("message", "operation", "changes"), CHANGES, ids=lambda each: type(each).__name__)
def test_a_line_says_what_a_request_changes_and_no_value(
    lines: Lines, message: Any, operation: AclOperation, changes: list[str]
) -> None:
    """The resource of most changes is the cluster, which says little; values may be secrets."""
    broker = Broker()
    asked = broker.request(message, "admin")
    assert broker.helper.authorize(asked, operation, CLUSTER, CLUSTER_NAME)
    asked.reply(api(ApiKey(message.API_KEY)).response())
    assert lines.objects[0]["changes"] == changes
    assert lines.texts[0].endswith(f", changes = {'; '.join(changes)}")
    assert SECRET not in f"{lines.texts}{lines.objects}"


def test_a_result_says_how_many_parts_of_a_change_failed(lines: Lines) -> None:
    """Users of SCRAM are not resources of their own."""
    broker = Broker()
    asked = broker.request(AlterUserScramCredentialsRequest(deletions=[], upsertions=[]), "admin")
    broker.helper.authorize(asked, AclOperation.ALTER, CLUSTER, CLUSTER_NAME)
    codes = {"ann": 0, "bob": ErrorCode.RESOURCE_NOT_FOUND}
    results = [AlterUserScramCredentialsResult(user=user, error_code=code) for user, code in codes.items()]
    asked.reply(AlterUserScramCredentialsResponse(results=results))
    assert lines.objects[0]["result"] == "RESOURCE_NOT_FOUND (1 of 2)"


def test_text_of_clients_stays_in_one_line(lines: Lines) -> None:
    """A name with a newline does not begin another line."""
    broker = Broker()
    broker.helper.authorize(broker.request(fetch()), AclOperation.READ, ResourceType.GROUP, "a\nPrincipal = x\x1b[2J")
    assert "\n" not in lines.texts[0]
    assert "\x1b" not in lines.texts[0]
    assert lines.objects[0]["resourceName"] == "a\nPrincipal = x\x1b[2J"


def test_a_broker_without_an_authorizer_writes_nothing(lines: Lines) -> None:
    """As in Kafka: there is nobody to decide."""
    broker = Broker()
    helper = AuthHelper(None, broker.log)
    asked = broker.request(CreateTopicsRequest(topics=[]))
    assert helper.authorize(asked, AclOperation.CREATE, CLUSTER, CLUSTER_NAME)
    asked.reply(CreateTopicsResponse(topics=[]))
    assert lines.texts == []


def test_an_entry_that_is_taken_away_counts_from_the_next_request(lines: Lines) -> None:
    """A connection that is open does not keep a right; the denial is in the log."""
    broker = Broker()
    pattern = ResourcePattern(TOPIC, "orders", PatternType.LITERAL)
    entry = AccessControlEntry("User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW)
    authorizer = broker.helper.authorizer
    assert authorizer is not None
    asked = broker.request(fetch())
    authorizer.update(pattern, VersionedAcls(frozenset([entry]), 1))
    assert broker.helper.authorize(asked, AclOperation.READ, TOPIC, "orders")
    authorizer.update(pattern, VersionedAcls(frozenset(), 2))
    assert not broker.helper.authorize(asked, AclOperation.READ, TOPIC, "orders")
    assert len(lines.texts) == 1
