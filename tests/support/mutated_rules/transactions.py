"""What keeps clients out of transactions that are not theirs, and late requests out of those that
are over."""

from support.mutated_rules import Rule

__all__ = ["RULES"]

RULES = [
    Rule(
        "a transactional batch needs a transactional id (the only batch)",
        "broker/replication/produce_append.py",
        "attributes & TRANSACTIONAL and options.transactional_id is None",
        "False",
        "test_transaction_verification.py::test_a_transactional_batch_needs_a_transactional_id",
    ),
    Rule(
        "a transactional batch needs a transactional id (one of several)",
        "broker/replication/produce_append.py",
        "check_outside_transaction(headers)",
        "pass",
        "test_transaction_verification.py::test_a_transactional_batch_needs_a_transactional_id",
    ),
    Rule(
        "a request has one transactional producer",
        "broker/replication/produce_transactions.py",
        "if len(producers) > 1:",
        "if False:",
        "test_transaction_verification.py::test_a_request_has_one_transactional_producer",
    ),
    Rule(
        "a transaction begins only with its guard",
        "log/producer_state.py",
        "if guard is None or not self.holds(producer_id, epoch, guard):",
        "if False:",
        "test_transaction_verification.py::test_a_transaction_begins_only_with_its_guard",
    ),
    Rule(
        "a marker makes guards void",
        "log/producer_state.py",
        "self._verifications.pop(producer_id, None)\n        entry = self._entry_in(producer_id, epoch)",
        "entry = self._entry_in(producer_id, epoch)",
        "test_transaction_verification.py::"
        "test_a_late_batch_that_was_confirmed_before_its_transaction_ended_is_refused",
    ),
    Rule(
        "what the coordinator does not name is not verified",
        "broker/replication/transaction_verification.py",
        "codes = dict.fromkeys(question.partitions, ErrorCode.UNKNOWN_SERVER_ERROR)",
        "codes: dict[TopicPartition, ErrorCode] = {}",
        "test_transaction_verification.py::test_a_coordinators_error_becomes_one_that_the_client_knows",
    ),
    Rule(
        "a broken connection verifies nothing",
        "broker/replication/transaction_verification.py",
        "question.fail(ErrorCode.NETWORK_EXCEPTION)",
        "question.done({})",
        "test_transaction_verification.py::test_a_request_that_fails_as_a_whole_verifies_nothing",
    ),
    Rule(
        "ids and epochs of markers are those that coordinators give",
        "broker/replication/transaction_markers.py",
        "if producer_id < 0 or epoch < 0 or coordinator_epoch < 0:",
        "if False:",
        "test_broker_transactions.py::test_each_partition_of_a_marker_has_its_outcome",
    ),
    Rule(
        "a marker of an earlier transaction with an epoch of its own",
        "broker/replication/transaction_markers.py",
        "if transaction_version >= TRANSACTION_V2 and",
        "if False and",
        "test_broker_transactions.py::test_a_late_marker_does_not_end_a_transaction_with_an_epoch_of_its_own",
    ),
    Rule(
        "offsets of a transaction wait for its marker",
        "broker/groups/coordinator.py",
        "if append.transaction is None:  # a transaction's wait for its marker",
        "if True:",
        "test_groups_transactions.py::test_offsets_of_a_transaction_count_when_it_is_committed",
    ),
    Rule(
        "a marker ends what stands before it",
        "broker/groups/offsets.py",
        "if record_offset > marker_offset:",
        "if False:",
        "test_groups_transactions.py::test_a_late_marker_does_not_end_the_next_transaction",
    ),
    Rule(
        "a member that the group has lost commits nothing in a transaction",
        "broker/groups/commits.py",
        "if not error and sender.generation_id_or_member_epoch != group.generation_id:",
        "if False:",
        "test_groups_transactions.py::test_only_the_current_member_of_the_generation_commits",
    ),
    Rule(
        "the offset of an open transaction does not expire",
        "broker/groups/offsets.py",
        "if due and not self._is_in_transaction(topic_partition):",
        "if due:",
        "test_groups_transactions.py::test_the_offset_of_an_open_transaction_does_not_expire",
    ),
]
