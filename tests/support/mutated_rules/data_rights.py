"""Which rights records, topics, groups and offsets need: one rule for each check."""

from support.mutated_rules import Rule

__all__ = ["RULES"]

_TESTS = "test_broker_rights.py::"
_MISSING = f"{_TESTS}test_a_missing_right_is_answered_with_its_error_in_every_version"
_GROUP = "if not parts.auth_helper.authorize(request, AclOperation.{}, ResourceType.GROUP, message.group_id):"
_NEEDED_ON_THE_GROUP = {
    "heartbeat": ("READ", "Heartbeat", "if"),
    "join_group": ("READ", "JoinGroup", "if"),
    "sync_group": ("READ", "SyncGroup", "elif"),
    "leave_group": ("READ", "LeaveGroup", "if"),
    "offset_delete": ("DELETE", "OffsetDelete", "if"),
}
"""By module: the operation, the API, and the word before the check."""
_NEEDED_BY_NAME = {
    "describe_groups": ("DESCRIBE", "DescribeGroups", "group_id not in allowed"),
    "offset_for_leader_epoch": ("DESCRIBE", "OffsetForLeaderEpoch", "not is_allowed"),
    "list_offsets": ("DESCRIBE", "ListOffsets", "not is_allowed"),
    "describe_producers": ("READ", "DescribeProducers", "not is_allowed"),
}
"""By module: the operation, the API, and the condition of the refusal."""

RULES = [
    *(
        Rule(
            f"{api} needs {operation} on the group",
            f"broker/apis/{module}.py",
            word + _GROUP.format(operation).removeprefix("if"),
            f"{word} False:",
            f"{_MISSING}[{api}-{operation}]",
        )
        for module, (operation, api, word) in _NEEDED_ON_THE_GROUP.items()
    ),
    *(
        Rule(
            f"{api} needs {operation} by name",
            f"broker/apis/{module}.py",
            f"if {condition}:",
            "if False:",
            f"{_MISSING}[{api}-{operation}]",
        )
        for module, (operation, api, condition) in _NEEDED_BY_NAME.items()
    ),
    Rule(
        "DeleteGroups needs DELETE on the group",
        "broker/groups/service.py",
        "                if group_id in allowed:\n",
        "                if True:\n",
        f"{_TESTS}test_a_group_without_the_right_to_delete_it_stays",
    ),
    Rule(
        "OffsetDelete needs READ on the topic",
        "broker/groups/deletion.py",
        "is_allowed = topic.name in allowed",
        "is_allowed = True",
        f"{_MISSING}[OffsetDelete-READ]",
    ),
    Rule(
        "ListGroups shows groups to those with DESCRIBE",
        "broker/apis/list_groups.py",
        "        if group.group_id in allowed:\n",
        "        if True:\n",
        f"{_TESTS}test_groups_are_listed_for_clients_that_may_see_them",
    ),
    Rule(
        "FindCoordinator needs DESCRIBE on the key",
        "broker/apis/find_coordinator.py",
        "        if key in allowed:\n",
        "        if True:\n",
        f"{_TESTS}test_a_coordinator_that_may_not_be_known_is_not_made",
    ),
    Rule(
        "OffsetCommit needs READ on the group",
        "broker/apis/offset_commit.py",
        "if not may_read(ResourceType.GROUP, commit.sender.group_id):",
        "if False:",
        f"{_MISSING}[OffsetCommit-READ0]",
    ),
    Rule(
        "OffsetCommit needs READ on the topic",
        "broker/groups/commits.py",
        "            if topic.name in self.denied:\n",
        "            if False:\n",
        f"{_TESTS}test_each_reader_of_commits_stores_what_the_client_may_read[9-True]",
    ),
    Rule(
        "an error of the group does not replace that of a denied topic",
        "broker/groups/commits.py",
        "    ErrorCode.TOPIC_AUTHORIZATION_FAILED,\n    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,\n",
        "    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,\n",
        f"{_TESTS}test_an_error_of_the_group_leaves_those_of_denied_topics",
    ),
    Rule(
        "OffsetFetch needs DESCRIBE on the group",
        "broker/apis/offset_fetch.py",
        "        if each.group_id in allowed:\n",
        "        if True:\n",
        f"{_TESTS}test_groups_of_one_request_are_answered_by_their_rights",
    ),
    Rule(
        "OffsetFetch needs DESCRIBE on the topic",
        "broker/apis/offset_fetch.py",
        "((name, indexes if name in allowed else ()) for name, _, indexes in wanted)",
        "((name, indexes) for name, _, indexes in wanted)",
        f"{_TESTS}test_denied_offsets_are_not_even_read",
    ),
    Rule(
        "OffsetFetch of all partitions leaves out topics without DESCRIBE",
        "broker/apis/offset_fetch.py",
        "if topic.name in allowed and not (",
        "if not (",
        f"{_TESTS}test_all_offsets_of_a_group_are_those_of_topics_that_the_client_may_see[9]",
    ),
    Rule(
        "Metadata needs DESCRIBE on the topic",
        "broker/apis/metadata.py",
        "        if name not in allowed:\n",
        "        if False:\n",
        f"{_MISSING}[Metadata-DESCRIBE]",
    ),
    Rule(
        "Metadata of all topics leaves out those without DESCRIBE",
        "broker/apis/metadata.py",
        "            if not is_of_all:\n                found.append(_denied(name, topic_id))\n",
        "            found.append(_denied(name, topic_id))\n",
        f"{_TESTS}test_all_topics_are_those_that_the_client_may_see[9]",
    ),
    Rule(
        "a denied topic id is answered without its name",
        "broker/apis/metadata.py",
        "MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id)\n\n\n",
        "MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id)\n\n\n",
        f"{_TESTS}test_a_topic_that_is_denied_by_id_keeps_its_name",
    ),
    Rule(
        "a topic is created for clients with CREATE",
        "broker/apis/metadata.py",
        "            if name not in creatable:\n",
        "            if False:\n",
        f"{_TESTS}test_a_missing_topic_is_created_for_clients_that_may[right1]",
    ),
    Rule(
        "Metadata reports operations on the cluster to those with DESCRIBE",
        "broker/apis/metadata.py",
        "if not auth_helper.authorize(request, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):",
        "if False:",
        f"{_TESTS}test_authorized_operations_are_those_of_the_client",
    ),
    Rule(
        "DeleteRecords needs DELETE on the topic",
        "broker/apis/delete_records.py",
        "        if topic.name not in allowed:\n            continue\n",
        "",
        f"{_TESTS}test_records_without_the_right_to_delete_them_stay",
    ),
    Rule(
        "Fetch needs READ on the topic",
        "broker/replication/delayed_fetch.py",
        "if params.rights is not None and not params.rights.allows(topic_partition.topic):",
        "if False:",
        f"{_MISSING}[Fetch-READ]",
    ),
    Rule(
        "a follower needs CLUSTER_ACTION",
        "broker/apis/fetch.py",
        "    if may_fetch:\n",
        "    if True:\n",
        f"{_TESTS}test_a_stranger_that_fetches_as_a_follower_changes_nothing",
    ),
    Rule(
        "a stranger's session is not one of a follower",
        "broker/apis/fetch.py",
        "privileged=params.is_from_follower and may_fetch,",
        "privileged=params.is_from_follower,",
        f"{_TESTS}test_a_stranger_that_fetches_as_a_follower_changes_nothing",
    ),
    Rule(
        "a session looks again at all its partitions after a change of rights",
        "broker/replication/delayed_fetch.py",
        "            context.belongs_to(params.rights.valid_for)\n",
        "            pass\n",
        f"{_TESTS}test_a_session_learns_at_once_that_a_right_was_withdrawn",
    ),
    Rule(
        "a topic's compression is not told without READ",
        "broker/replication/delayed_fetch.py",
        "        if data.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:\n            return data\n",
        "",
        f"{_TESTS}test_how_a_topic_is_compressed_is_not_told_without_the_right",
    ),
    Rule(
        "Produce needs WRITE on the topic",
        "broker/replication/produce_append.py",
        "    if rights is not None and not rights.allows(topic):\n        raise",
        "    if False:\n        raise",
        f"{_TESTS}test_each_reader_of_produce_appends_to_what_the_client_may_write_to[tu-9]",
    ),
    Rule(
        "what was denied is asked for again",
        "broker/replication/topic_rights.py",
        "if self._has_denied or not caches_allowed or",
        "if not caches_allowed or",
        f"{_TESTS}test_what_is_denied_is_asked_for_by_each_request",
    ),
    Rule(
        "Produce needs WRITE on the transactional id",
        "broker/replication/produce_append.py",
        "        and not rights.is_authorized(ResourceType.TRANSACTIONAL_ID, transactional_id)\n",
        "        and False\n",
        f"{_TESTS}test_a_transactional_id_counts_where_a_batch_is_transactional[True]",
    ),
    Rule(
        "a transaction gets no partition that its producer may not write to",
        "broker/replication/produce_append.py",
        "        allowed = [number for number, (topic, _) in enumerate(partitions) if not runs.denies(options, topic)]\n",
        "        allowed = list(range(len(partitions)))\n",
        f"{_TESTS}test_a_transaction_gets_no_partition_that_its_client_may_not_write_to[True]",
    ),
    Rule(
        "missing rights come before other errors of a Produce request",
        "broker/replication/produce_append.py",
        "not_appended(denied if runs.denies(produce.options, topic) else error)",
        "not_appended(error)",
        f"{_TESTS}test_a_request_that_fails_as_a_whole_says_first_which_rights_are_missing[True]",
    ),
    Rule(
        "a request whose rights are being asked for is under way",
        "broker/replication/produce_append.py",
        "return bool(self.outcomes) or not self._borrows",
        "return bool(self.outcomes)",
        f"{_TESTS}test_topics_are_asked_for_in_slices_and_each_record_appended_once",
    ),
]
