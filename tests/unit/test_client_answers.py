"""Whether an answer may be one to its question."""

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import barnabas
from barnabas.client.network.answers import WrongAnswerError, check_answer, is_checked
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import decode, encode
from barnabas.wire.kafka.errors import ErrorCode, OversizedMessageError
from barnabas.wire.kafka.messages import (
    alter_client_quotas,
    api_versions,
    create_acls,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_fetch,
)
from barnabas.wire.kafka.schema import Message

PACKAGE = Path(barnabas.__file__).parent
TOPIC = 2


def check(request: Message, response: Message) -> None:
    check_answer(request, response, type(response).VERSIONS.last)


def refused(request: Message, response: Message) -> str:
    """Why the answer is refused; "" for one that is not."""
    try:
        check(request, response)
    except WrongAnswerError as error:
        return str(error)
    return ""


def configs_of(*names: str, error_code: int = 0) -> Message:
    results = [
        describe_configs.DescribeConfigsResult(resource_type=TOPIC, resource_name=name, error_code=error_code)
        for name in names
    ]
    return describe_configs.DescribeConfigsResponse(results=results)


def configs_asked(*names: str) -> Message:
    return describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=["a.b"]
            )
            for name in names
        ]
    )


def offsets_asked(*places: tuple[str, int]) -> Message:
    return list_offsets.ListOffsetsRequest(
        topics=[
            list_offsets.ListOffsetsTopic(
                name=topic, partitions=[list_offsets.ListOffsetsPartition(partition_index=number)]
            )
            for topic, number in places
        ]
    )


def offsets_of(*places: tuple[str, int], offset: int = 5) -> Message:
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                name=topic,
                partitions=[list_offsets.ListOffsetsPartitionResponse(partition_index=number, offset=offset)],
            )
            for topic, number in places
        ]
    )


def cluster(**changes: Any) -> metadata.MetadataResponse:
    """Metadata of one broker and one topic with one partition; changes by the name of the field."""
    partition = metadata.MetadataResponsePartition(leader_id=1, replica_nodes=[1], isr_nodes=[1])
    broker = metadata.MetadataResponseBroker(node_id=1, host="broker-1.example", port=9092)
    topic = metadata.MetadataResponseTopic(name="orders", partitions=[partition])
    for name, value in changes.items():
        owners = [item for item in (partition, broker, topic) if any(field.name == name for field in item.FIELDS)]
        setattr(owners[0], name, value)
    return metadata.MetadataResponse(brokers=[broker], topics=[topic], controller_id=1)


ALL_TOPICS = metadata.MetadataRequest(topics=None)


def test_every_request_that_clients_send_has_a_rule_for_its_answers() -> None:
    """An API that is new here cannot be forgotten: modules name the requests that they send."""
    sent = set()
    for folder in ("client", "cli", "mirror", "pipelines"):
        for path in (PACKAGE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("barnabas.wire.kafka.messages."):
                    sent |= {alias.name for alias in node.names if alias.name.endswith("Request")}
    requests = {api(key).request.__name__: api(key).request for key in ApiKey}
    known = {name for name in sent if name in requests}
    assert len(known) > 30
    assert [name for name in sorted(known) if not is_checked(requests[name])] == []


def test_a_resource_that_was_not_asked_for_is_refused() -> None:
    """The configuration of another topic is not taken for the one that was meant."""
    assert refused(configs_asked("orders"), configs_of("orders")) == ""
    assert refused(configs_asked("orders"), configs_of("others")) == "resource 2 others, which was not asked for"
    assert "which was not asked for" in refused(configs_asked("orders"), configs_of("orders", "others"))


def test_a_resource_type_that_is_unknown_is_refused() -> None:
    """It cannot be one that was asked for."""
    response = configs_of("orders")
    response.results[0].resource_type = 0  # type: ignore[attr-defined]
    assert refused(configs_asked("orders"), response) == "resource 0 orders, which was not asked for"


def test_a_missing_resource_is_refused() -> None:
    """An empty answer is none."""
    assert refused(configs_asked("a", "b"), configs_of("a")) == "nothing about resource 2 b, which was asked for"
    assert refused(configs_asked("a"), configs_of()) == "nothing about resource 2 a, which was asked for"


def test_a_resource_named_twice_is_refused() -> None:
    """Which of the two would hold?"""
    assert refused(configs_asked("orders"), configs_of("orders", "orders")) == "resource 2 orders twice"


def test_a_resource_with_an_error_is_an_answer() -> None:
    """Callers see the code."""
    assert refused(configs_asked("orders"), configs_of("orders", error_code=ErrorCode.INVALID_CONFIG)) == ""


@pytest.mark.parametrize(("name", "wrong"), [("a.b", ""), ("other", "property other of orders, which was not")])
def test_a_property_that_was_not_asked_for_is_refused(name: str, wrong: str) -> None:
    """Where properties were named."""
    response = configs_of("orders")
    response.results[0].configs = [  # type: ignore[attr-defined]
        describe_configs.DescribeConfigsResourceResult(name=name, config_source=99)
    ]
    assert refused(configs_asked("orders"), response).startswith(wrong)


def test_offsets_of_another_partition_are_refused() -> None:
    """An end offset of partition 1 says nothing about partition 0."""
    assert refused(offsets_asked(("t", 0)), offsets_of(("t", 0))) == ""
    assert refused(offsets_asked(("t", 0)), offsets_of(("t", 1))) == "partition t 1, which was not asked for"
    assert refused(offsets_asked(("t", 0), ("u", 0)), offsets_of(("t", 0))).startswith("nothing about partition u 0")


@pytest.mark.parametrize("offset", [-2, -(2**63)])
def test_an_offset_below_minus_one_is_refused(offset: int) -> None:
    """-1 says that there is none."""
    assert refused(offsets_asked(("t", 0)), offsets_of(("t", 0), offset=-1)) == ""
    assert refused(offsets_asked(("t", 0)), offsets_of(("t", 0), offset=offset)) == f"topics.partitions.offset {offset}"


def test_metadata_of_a_healthy_cluster_are_accepted() -> None:
    """With states that no test knows, too: a leader that is not there, an unknown error code."""
    assert refused(ALL_TOPICS, cluster()) == ""
    assert refused(ALL_TOPICS, cluster(leader_id=77, error_code=9999)) == ""
    assert refused(ALL_TOPICS, cluster(leader_id=-1, leader_epoch=-1, isr_nodes=[])) == ""


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("partition_index", -1, "topics.partitions.partition_index -1"),
        ("leader_id", -2, "topics.partitions.leader_id -2"),
        ("replica_nodes", [], "no replicas of partition orders 0"),
        ("replica_nodes", [1, 1], "a broker twice in topics.partitions.replica_nodes"),
        ("isr_nodes", [-1], "-1 in topics.partitions.isr_nodes"),
        ("name", None, "a topic without a name"),
        ("name", "", "a topic without a name"),
        ("host", "", "brokers.host '', which is no host"),
        ("host", "a\x1b[31mb", "brokers.host 'a\\x1b[31mb', which is no host"),
        ("host", "a b", "brokers.host a b, which is no host"),
        ("host", "x" * 64, f"brokers.host {'x' * 64}, which is no host"),
        ("port", 0, "brokers.port 0"),
        ("port", 65536, "brokers.port 65536"),
        ("node_id", -1, "brokers.node_id -1"),
    ],
)
def test_metadata_that_no_cluster_has_are_refused(name: str, value: object, wrong: str) -> None:
    """Numbers out of their range, addresses that are none, sets with something twice."""
    assert refused(ALL_TOPICS, cluster(**{name: value})) == wrong


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "fe80::1%eth0", "a_b.example.", "bücher.example"])
def test_hosts_of_every_form_are_accepted(host: str) -> None:
    """Names, addresses of both kinds, a zone, a final point, letters of other languages."""
    assert refused(ALL_TOPICS, cluster(host=host)) == ""


def test_partitions_and_brokers_named_twice_are_refused() -> None:
    """In metadata both would be printed as truth."""
    response = cluster()
    response.topics[0].partitions *= 2
    assert refused(ALL_TOPICS, response) == "partition of topic orders 0 twice"
    response = cluster()
    response.brokers *= 2
    assert refused(ALL_TOPICS, response) == "broker 1 twice"


def test_a_coordinator_needs_an_address_only_without_an_error() -> None:
    """While there is none, brokers send an empty host and the port -1."""
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"])
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    missing = find_coordinator.Coordinator(key="g", node_id=-1, port=-1, error_code=code)
    response = find_coordinator.FindCoordinatorResponse(coordinators=[missing])
    assert refused(request, response) == ""
    missing.error_code = 0
    assert refused(request, response) == "coordinators.node_id -1"


def test_an_old_coordinator_answer_has_its_address_checked() -> None:
    """Before version 4 it stands in the message itself."""
    request = find_coordinator.FindCoordinatorRequest(key="g")
    response = find_coordinator.FindCoordinatorResponse(node_id=1, host="", port=1)
    with pytest.raises(WrongAnswerError, match="which is no host"):
        check_answer(request, response, 3)


def test_an_error_for_the_whole_request_excuses_missing_parts() -> None:
    """Nothing was elected: the controller has moved."""
    request = elect_leaders.ElectLeadersRequest(
        topic_partitions=[elect_leaders.TopicPartitions(topic="t", partitions=[0])]
    )
    assert refused(request, elect_leaders.ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)) == ""
    assert refused(request, elect_leaders.ElectLeadersResponse()).startswith("nothing about partition t 0")


def test_versions_that_are_reversed_or_absent_are_refused() -> None:
    """No version lies in an empty range."""
    request = api_versions.ApiVersionsRequest()
    entry = api_versions.ApiVersion(api_key=3, min_version=4, max_version=2)
    assert refused(request, api_versions.ApiVersionsResponse(api_keys=[entry])) == "versions 4 to 2 of the API 3"
    assert refused(request, api_versions.ApiVersionsResponse()) == "no API at all"
    assert refused(request, api_versions.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)) == ""


def test_groups_are_listed_once() -> None:
    """All groups were asked for, so none is a stranger."""
    listed = [list_groups.ListedGroup(group_id="a"), list_groups.ListedGroup(group_id="a")]
    assert refused(list_groups.ListGroupsRequest(), list_groups.ListGroupsResponse(groups=listed)) == "group a twice"
    assert refused(list_groups.ListGroupsRequest(), list_groups.ListGroupsResponse(groups=listed[:1])) == ""


def test_a_described_group_has_the_name_that_was_asked_for() -> None:
    """And an empty list is no description."""
    request = describe_groups.DescribeGroupsRequest(groups=["a"])
    other = describe_groups.DescribeGroupsResponse(groups=[describe_groups.DescribedGroup(group_id="b")])
    assert refused(request, other) == "group b, which was not asked for"
    assert refused(request, describe_groups.DescribeGroupsResponse()) == "nothing about group a, which was asked for"


def test_members_of_a_group_have_names_of_their_own() -> None:
    """Partitions are shown by member."""
    request = describe_groups.DescribeGroupsRequest(groups=["a"])

    def answer(*members: str) -> Message:
        described = [describe_groups.DescribedGroupMember(member_id=member) for member in members]
        return describe_groups.DescribeGroupsResponse(
            groups=[describe_groups.DescribedGroup(group_id="a", members=described)]
        )

    assert refused(request, answer("m", "n")) == ""
    assert refused(request, answer("m", "m")) == "member of group a m twice"
    assert refused(request, answer("")) == "a member without a name"


def test_eligible_leaders_may_be_null_and_are_brokers() -> None:
    """Brokers that do not keep them send null."""
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name="t")]
    )

    def answer(leaders: list[int] | None) -> Message:
        partition = describe_topic_partitions.DescribeTopicPartitionsResponsePartition(eligible_leader_replicas=leaders)
        topic = describe_topic_partitions.DescribeTopicPartitionsResponseTopic(name="t", partitions=[partition])
        return describe_topic_partitions.DescribeTopicPartitionsResponse(topics=[topic])

    assert refused(request, answer(None)) == refused(request, answer([1, 2])) == ""
    assert refused(request, answer([-1])) == "-1 in topics.partitions.eligible_leader_replicas"


def test_committed_offsets_of_a_partition_stand_once() -> None:
    """Of all that a group has committed."""
    request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)])
    partition = offset_fetch.OffsetFetchResponsePartitions()
    topic = offset_fetch.OffsetFetchResponseTopics(name="t", partitions=[partition, partition])
    group = offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=[topic])
    assert refused(request, offset_fetch.OffsetFetchResponse(groups=[group])) == "partition t 0 twice"


def test_a_replica_may_lie_in_a_log_dir_and_be_copied_to_another() -> None:
    """Twice in the same way it may not; what a broker does not have it leaves out."""
    request = describe_log_dirs.DescribeLogDirsRequest(
        topics=[describe_log_dirs.DescribableLogDirTopic(topic="t", partitions=[0, 1])]
    )

    def log_dir(path: str, *, future: bool) -> describe_log_dirs.DescribeLogDirsResult:
        partition = describe_log_dirs.DescribeLogDirsPartition(partition_index=0, is_future_key=future)
        topic = describe_log_dirs.DescribeLogDirsTopic(name="t", partitions=[partition])
        return describe_log_dirs.DescribeLogDirsResult(log_dir=path, topics=[topic])

    both = [log_dir("/a", future=False), log_dir("/b", future=True)]
    assert refused(request, describe_log_dirs.DescribeLogDirsResponse(results=both)) == ""
    twice = [log_dir("/a", future=False), log_dir("/b", future=False)]
    assert refused(request, describe_log_dirs.DescribeLogDirsResponse(results=twice)) == "replica t 0 twice"


def test_a_cursor_that_does_not_move_is_refused() -> None:
    """Asking on from it would not end."""
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name="t")],
        cursor=describe_topic_partitions.DescribeTopicPartitionsRequestCursor(topic_name="t", partition_index=5),
    )

    def at(number: int) -> Message:
        cursor = describe_topic_partitions.DescribeTopicPartitionsResponseCursor(topic_name="t", partition_index=number)
        return describe_topic_partitions.DescribeTopicPartitionsResponse(next_cursor=cursor)

    assert refused(request, at(6)) == ""
    assert refused(request, at(5)) == "the cursor t 5, which does not continue the question"


def test_quotas_of_another_entity_are_refused() -> None:
    """Also a rate that is no number."""
    component = describe_client_quotas.ComponentData(entity_type="user", match_type=0, match="ann")
    request = describe_client_quotas.DescribeClientQuotasRequest(components=[component], strict=True)

    def answer(name: str, value: float) -> Message:
        entity = [describe_client_quotas.EntityData(entity_type="user", entity_name=name)]
        values = [describe_client_quotas.ValueData(key="producer_byte_rate", value=value)]
        entry = describe_client_quotas.EntryData(entity=entity, values=values)
        return describe_client_quotas.DescribeClientQuotasResponse(entries=[entry])

    assert refused(request, answer("ann", 1e6)) == ""
    assert refused(request, answer("bob", 1e6)).startswith("entity user bob, which was not asked for")
    assert refused(request, answer("ann", float("nan"))) == "a entries.values.value that is no number"


def test_an_altered_entity_is_named_in_any_order() -> None:
    """User and client are a set."""
    part = alter_client_quotas.AlterClientQuotasRequestEntityData
    entry = alter_client_quotas.AlterClientQuotasRequestEntryData(
        entity=[part(entity_type="user", entity_name="a"), part(entity_type="client-id", entity_name="b")]
    )
    answered = alter_client_quotas.AlterClientQuotasResponseEntityData
    result = alter_client_quotas.AlterClientQuotasResponseEntryData(
        entity=[answered(entity_type="client-id", entity_name="b"), answered(entity_type="user", entity_name="a")]
    )
    request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry])
    assert refused(request, alter_client_quotas.AlterClientQuotasResponse(entries=[result])) == ""


def test_results_without_names_are_counted() -> None:
    """CreateAcls answers in the order of the request."""
    request = create_acls.CreateAclsRequest(creations=[create_acls.AclCreation()])
    assert refused(request, create_acls.CreateAclsResponse()) == "0 results to a question of 1 parts"


def test_rights_of_another_resource_are_refused() -> None:
    """Where the filter names one."""
    request = describe_acls.DescribeAclsRequest(resource_type_filter=2, resource_name_filter="orders")
    entry = describe_acls.DescribeAclsResource(resource_type=2, resource_name="others")
    response = describe_acls.DescribeAclsResponse(resources=[entry])
    assert refused(request, response) == "resource 2 others, which was not asked for"


def test_deleted_topics_are_those_of_either_list() -> None:
    """The newer versions name topics in another list."""
    response = delete_topics.DeleteTopicsResponse(responses=[delete_topics.DeletableTopicResult(name="a")])
    newer = delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name="a")])
    older = delete_topics.DeleteTopicsRequest(topic_names=["a"])
    assert refused(newer, response) == refused(older, response) == ""


def test_members_that_leave_are_answered_one_by_one() -> None:
    """By both of their names."""
    request = leave_group.LeaveGroupRequest(members=[leave_group.MemberIdentity(member_id="m")])
    response = leave_group.LeaveGroupResponse(
        members=[leave_group.MemberResponse(member_id="m", group_instance_id="i")]
    )
    assert refused(request, response) == "member m i, which was not asked for"


def test_fetched_records_are_of_the_partition_that_was_asked_for() -> None:
    """Replicas are compared by them."""
    asked = fetch.FetchTopic(topic="t", partitions=[fetch.FetchPartition(partition=0)])
    answered = fetch.FetchableTopicResponse(topic="t", partitions=[fetch.PartitionData(partition_index=1)])
    assert refused(fetch.FetchRequest(topics=[asked]), fetch.FetchResponse(responses=[answered])) == (
        "partition t 1, which was not asked for"
    )


names = st.lists(st.sampled_from("abc"), max_size=4)


@given(asked=names.map(lambda some: sorted(set(some))), answered=names)
def test_an_answer_holds_each_thing_asked_for_once_and_nothing_else(asked: list[str], answered: list[str]) -> None:
    """For any question and answer, in any order."""
    assert (refused(configs_asked(*asked), configs_of(*answered)) == "") == (sorted(answered) == asked)


def test_an_error_quotes_long_names_in_part() -> None:
    """A name of 30,000 letters is not one line."""
    assert len(refused(configs_asked("orders"), configs_of("x" * 30_000))) < 200


def test_a_million_partitions_are_refused_before_they_are_made() -> None:
    """The reader counts what the elements would take, by what the message says."""
    count = 1_000_000
    few = encode(cluster(), 12)
    many = encode(metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(name="t")]), 12)
    assert decode(metadata.MetadataResponse, 12, few) == cluster()
    at = many.index(b"\x02t") + 2 + 16 + 1  # the name, the id, whether it is internal
    varint = bytes((count + 1 >> 7 * place) & 0x7F | (0x80 if place < 2 else 0) for place in range(3))
    forged = many[:at] + varint + bytes(26 * count)
    with pytest.raises(OversizedMessageError, match=r"more than 128 MiB of elements in .*partitions"):
        decode(metadata.MetadataResponse, 12, forged)


def test_the_metadata_of_two_hundred_thousand_partitions_are_read() -> None:
    """As many as a cluster has at most: five replicas each, in two hundred topics."""
    partition = metadata.MetadataResponsePartition(leader_id=1, replica_nodes=[1, 2, 3, 4, 5], isr_nodes=[1, 2, 3])
    topics = [metadata.MetadataResponseTopic(name=f"t{number}", partitions=[partition] * 1000) for number in range(200)]
    response = decode(metadata.MetadataResponse, 12, encode(metadata.MetadataResponse(topics=topics), 12))
    assert sum(len(topic.partitions) for topic in response.topics) == 200_000


def test_a_throttled_fetch_may_have_no_partitions_and_no_other_answer_may() -> None:
    """KIP-219: a broker whose quota is used up answers at once, with nothing but the pause."""
    request = fetch.FetchRequest(topics=[fetch.FetchTopic(topic="t", partitions=[fetch.FetchPartition()])])
    assert refused(request, fetch.FetchResponse(throttle_time_ms=100)) == ""
    assert "nothing about partition" in refused(request, fetch.FetchResponse())
    asked = list_offsets.ListOffsetsTopic(name="t", partitions=[list_offsets.ListOffsetsPartition()])
    answer = list_offsets.ListOffsetsResponse(throttle_time_ms=100)
    assert "nothing about partition" in refused(list_offsets.ListOffsetsRequest(topics=[asked]), answer)
