"""Which rights administration, configuration and transactions need: one rule for each check."""

from support.mutated_rules import Rule

__all__ = ["RULES"]

_ADMIN = "test_broker_admin_rights.py"
_TRANSACTIONS = "test_broker_transaction_rights.py"
_NEEDED_ON_THE_CLUSTER = {
    "alter_partition_reassignments": ("ALTER", "test_a_request_without_its_right_on_the_cluster_is_refused[{}-v0]"),
    "alter_replica_log_dirs": ("ALTER", "test_a_request_without_its_right_on_the_cluster_is_refused[{}-v2]"),
    "alter_user_scram_credentials": ("ALTER", "test_credentials_are_changed_by_those_who_may_alter_the_cluster"),
    "describe_log_dirs": ("DESCRIBE", "test_log_dirs_are_described_to_those_who_may_describe_the_cluster"),
    "describe_user_scram_credentials": (
        "DESCRIBE",
        "test_a_request_without_its_right_on_the_cluster_is_refused[{}-v0]",
    ),
    "elect_leaders": ("ALTER", "test_a_request_without_its_right_on_the_cluster_is_refused[{}-v2]"),
    "list_partition_reassignments": ("DESCRIBE", "test_a_request_without_its_right_on_the_cluster_is_refused[{}-v0]"),
    "update_features": ("ALTER", "test_a_request_without_its_right_on_the_cluster_is_refused[{}-v1]"),
}
"""By module: the operation, and the test that notices that it is not asked for."""

RULES = [
    *(
        Rule(
            f"{module} needs {operation} on the cluster",
            f"broker/apis/{module}.py",
            f"parts.auth_helper.authorize_cluster_operation(request, AclOperation.{operation})",
            "pass",
            f"{_ADMIN}::{test.format(module)}",
        )
        for module, (operation, test) in _NEEDED_ON_THE_CLUSTER.items()
    ),
    Rule(
        "what brokers send each other needs CLUSTER_ACTION",
        "broker/apis/api_handler.py",
        "        auth_helper.authorize_cluster_action(request)\n",
        "        pass\n",
        f"{_ADMIN}::TestOfBrokers::test_a_refused_controller_changes_nothing",
    ),
    Rule(
        "DescribeCluster reports operations to those with DESCRIBE",
        "broker/apis/describe_cluster.py",
        "if not auth_helper.authorize(request, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):",
        "if False:",
        f"{_ADMIN}::TestDescribeCluster::test_other_clients_see_the_brokers_and_no_operation",
    ),
    Rule(
        "CreateTopics needs CREATE",
        "broker/apis/create_topics.py",
        "    if not is_authorized:\n",
        "    if False:\n",
        f"{_ADMIN}::TestCreateTopics::test_a_topic_without_rights_is_not_planned",
    ),
    Rule(
        "CreateTopics describes topics to those with DESCRIBE_CONFIGS",
        "broker/apis/create_topics.py",
        "if topic.name not in may_describe and topic.name != _METADATA_TOPIC:",
        "if False:",
        f"{_ADMIN}::TestCreateTopics::test_a_topic_without_rights_is_not_planned",
    ),
    Rule(
        "CreatePartitions needs ALTER on the topic",
        "broker/apis/create_partitions.py",
        "if topic.name not in authorized:",
        "if False:",
        f"{_ADMIN}::TestCreatePartitions::test_each_topic_is_allowed_by_itself",
    ),
    Rule(
        "DeleteTopics needs DELETE on the topic",
        "broker/apis/delete_topics.py",
        "elif name not in deleted:",
        "elif False:",
        f"{_ADMIN}::TestDeleteTopics::test_each_name_is_allowed_by_itself",
    ),
    Rule(
        "DeleteTopics shows the name of an id to those with DESCRIBE",
        "broker/apis/delete_topics.py",
        "elif has_id and name not in described:",
        "elif False:",
        f"{_ADMIN}::TestDeleteTopics::test_the_name_of_an_id_is_told_to_those_who_may_describe_it",
    ),
    Rule(
        "a change of configuration needs ALTER_CONFIGS",
        "broker/configuration/config_admin.py",
        "if not is_authorized(change.resource_type, change.resource_name):",
        "if False:",
        f"{_ADMIN}::TestAlterConfigs::test_changing_needs_the_right_on_each_resource",
    ),
    Rule(
        "the right to configure topics is not one to configure brokers",
        "broker/apis/alter_configs.py",
        "return authorize(request, AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)",
        "return True",
        f"{_ADMIN}::TestAlterConfigs::test_replacing_needs_the_right_on_each_resource",
    ),
    Rule(
        "DescribeConfigs needs DESCRIBE_CONFIGS",
        "broker/apis/describe_configs.py",
        "        if is_refused:\n",
        "        if False:\n",
        f"{_ADMIN}::TestDescribeConfigs::test_each_resource_needs_the_right",
    ),
    Rule(
        "InitProducerId needs WRITE on the transactional id",
        "broker/apis/init_producer_id.py",
        "if not auth_helper.authorize(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):",
        "if False:",
        f"{_TRANSACTIONS}::TestInitProducerId::test_a_transactional_id_needs_the_right_to_write",
    ),
    Rule(
        "an idempotent producer needs a right to write",
        "broker/apis/init_producer_id.py",
        "        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED\n",
        "        return None\n",
        f"{_TRANSACTIONS}::TestInitProducerId::test_an_idempotent_producer_needs_a_right_to_write_somewhere",
    ),
    Rule(
        "AddPartitionsToTxn needs WRITE on the transactional id",
        "broker/apis/add_partitions_to_txn.py",
        "    elif not auth_helper.authorize(\n",
        "    elif False and not auth_helper.authorize(\n",
        f"{_TRANSACTIONS}::TestAddPartitionsToTxn::test_the_transactional_id_needs_the_right_to_write",
    ),
    Rule(
        "AddPartitionsToTxn needs WRITE on each topic",
        "broker/apis/add_partitions_to_txn.py",
        "for name in names if name in authorized",
        "for name in names",
        f"{_TRANSACTIONS}::TestAddPartitionsToTxn::test_one_topic_without_the_right_to_write_fails_all",
    ),
    Rule(
        "AddPartitionsToTxn of brokers needs CLUSTER_ACTION",
        "broker/apis/add_partitions_to_txn.py",
        "auth_helper.authorize_cluster_action(request)",
        "pass",
        f"{_TRANSACTIONS}::TestAddPartitionsToTxn::test_the_versions_of_brokers_need_cluster_action",
    ),
    Rule(
        "AddOffsetsToTxn needs WRITE on the transactional id",
        "broker/apis/add_offsets_to_txn.py",
        "if not auth_helper.authorize(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "
        "message.transactional_id):",
        "if False:",
        f"{_TRANSACTIONS}::TestAddOffsetsToTxn::test_each_right_is_asked_for_in_order",
    ),
    Rule(
        "AddOffsetsToTxn needs READ on the group",
        "broker/apis/add_offsets_to_txn.py",
        "if not auth_helper.authorize(request, AclOperation.READ, ResourceType.GROUP, message.group_id):",
        "if False:",
        f"{_TRANSACTIONS}::TestAddOffsetsToTxn::test_each_right_is_asked_for_in_order",
    ),
    Rule(
        "TxnOffsetCommit needs WRITE on the transactional id",
        "broker/apis/txn_offset_commit.py",
        "if not auth_helper.authorize(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "
        "message.transactional_id):",
        "if False:",
        f"{_TRANSACTIONS}::TestTxnOffsetCommit::test_each_right_is_asked_for_in_order",
    ),
    Rule(
        "TxnOffsetCommit needs READ on the group",
        "broker/apis/txn_offset_commit.py",
        "if not auth_helper.authorize(request, AclOperation.READ, ResourceType.GROUP, message.group_id):",
        "if False:",
        f"{_TRANSACTIONS}::TestTxnOffsetCommit::test_each_right_is_asked_for_in_order",
    ),
    Rule(
        "TxnOffsetCommit stores offsets of topics with READ",
        "broker/apis/txn_offset_commit.py",
        "authorized = yield from parts.auth_helper.filter_by_authorized(\n"
        "        request, AclOperation.READ, ResourceType.TOPIC, named\n    )",
        "authorized = set(named)",
        f"{_TRANSACTIONS}::TestTxnOffsetCommit::test_topics_are_allowed_one_by_one",
    ),
    Rule(
        "EndTxn needs WRITE on the transactional id",
        "broker/apis/end_txn.py",
        "    if not parts.auth_helper.authorize(\n",
        "    if False and not parts.auth_helper.authorize(\n",
        f"{_TRANSACTIONS}::TestEndTxn::test_a_transaction_is_ended_by_those_who_may_write",
    ),
    Rule(
        "DescribeTransactions needs DESCRIBE on the transactional id",
        "broker/apis/describe_transactions.py",
        "if not auth_helper.authorize(request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "
        "transactional_id):",
        "if False:",
        f"{_TRANSACTIONS}::TestQueries::test_a_transaction_is_described_as_far_as_there_are_rights",
    ),
    Rule(
        "DescribeTransactions leaves out topics without DESCRIBE",
        "broker/apis/describe_transactions.py",
        "        state.topics = yield from list_of(topic for topic in state.topics if topic.topic in shown)\n",
        "",
        f"{_TRANSACTIONS}::TestQueries::test_a_transaction_is_described_as_far_as_there_are_rights",
    ),
    Rule(
        "ListTransactions leaves out ids without DESCRIBE",
        "broker/apis/list_transactions.py",
        "if state.transactional_id in shown",
        "if True",
        f"{_TRANSACTIONS}::TestQueries::test_ids_without_the_right_are_not_listed",
    ),
]
