"""Transactions: who may do what with a transactional id, and what is certain before markers are
written."""

from support.mutated_rules import Rule

__all__ = ["RULES"]

_COORDINATOR = "broker/transactions/coordinator.py"
_MACHINE = "test_transactions_machine.py::"
_SERVICE = "test_transactions_service.py::"

RULES = [
    Rule(
        "a transactional producer of an earlier epoch is refused",
        _COORDINATOR,
        "if transaction.producer_epoch != sender.producer_epoch:",
        "if False:",
        _MACHINE + "test_next_producer_gets_the_next_epoch",
    ),
    Rule(
        "a transactional producer has the producer id of its transactional id",
        _COORDINATOR,
        "if transaction is None or transaction.producer_id != sender.producer_id:",
        "if transaction is None:",
        _MACHINE + "test_request_of_another_producer_is_refused",
    ),
    Rule(
        "a fenced producer does not abort the transaction of its successor",
        _COORDINATOR,
        "if expected is not None and expected.epoch < transaction.producer_epoch:",
        "if False:",
        _MACHINE + "test_fenced_producer_that_continues_does_not_abort_the_transaction_of_the_newer_one",
    ),
    Rule(
        "a fenced producer is not taken for one that repeats its EndTxn",
        "broker/transactions/transaction.py",
        "return self.producer_epoch < _LAST_EPOCH or self.next_producer_id != NO_PRODUCER_ID",
        "return True",
        _MACHINE + "test_fenced_producer_of_version_2_is_not_taken_for_one_that_repeats_its_end",
    ),
    Rule(
        "an epoch that fences is not raised again when its record fails",
        "broker/transactions/transaction.py",
        "if not self.has_failed_fence:",
        "if True:",
        _MACHINE + "test_epoch_that_fences_is_raised_once_however_often_its_record_fails",
    ),
    Rule(
        "a transaction is limited to transaction.max.timeout.ms",
        _COORDINATOR,
        "not 0 < request.timeout_ms <= self.settings.max_timeout_ms",
        "not 0 < request.timeout_ms",
        _MACHINE + "test_producer_with_a_wrong_id_or_timeout_is_refused",
    ),
    Rule(
        "records of an earlier coordinator epoch change nothing",
        _COORDINATOR,
        "if not append.owned.is_led:",
        "if False:",
        _MACHINE + "test_record_of_an_earlier_epoch_changes_nothing",
    ),
    Rule(
        "markers are written when all in-sync replicas know the decision",
        "broker/coordinators/service.py",
        "if partition is not None and not partition.all_in_sync_have(load.end_offset):",
        "if False:",
        _SERVICE + "test_transactions_are_served_when_all_in_sync_replicas_have_them",
    ),
    Rule(
        "partitions that are not known yet are not taken for deleted",
        "broker/transactions/service.py",
        "return NO_BROKER if self._metadata.is_loading else None",
        "return None",
        _SERVICE + "test_partition_that_this_broker_has_not_heard_of_yet_is_not_taken_for_deleted",
    ),
    Rule(
        "a partition that has no answer has no marker",
        "broker/transactions/markers.py",
        "code = codes.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)",
        "code = codes.get(number, ErrorCode.NONE)",
        "test_transactions_markers.py::test_answer_that_leaves_partitions_out_is_no_success",
    ),
]
