"""AddPartitionsToTxn (API key 24)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int16, int32, int64, string

__all__ = [
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
]


class AddPartitionsToTxnTopic(Struct):
    """``transactions[].topics[]``; ``v3_and_below_topics[]`` of `AddPartitionsToTxnRequest`."""

    name: str = string()
    partitions: list[int] = array_of("int32")


class AddPartitionsToTxnTransaction(Struct):
    """``transactions[]`` of `AddPartitionsToTxnRequest`."""

    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: list[AddPartitionsToTxnTopic] = array_of(AddPartitionsToTxnTopic, "4+")


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    """API key 24, versions 0 to 5."""

    transactions: list[AddPartitionsToTxnTransaction] = array_of(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array_of(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    """``results_by_transaction[].topic_results[].results_by_partition[]``.

    ``results_by_topic_v3_and_below[].results_by_partition[]`` of `AddPartitionsToTxnResponse`."""

    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    """``results_by_transaction[].topic_results[]``.

    ``results_by_topic_v3_and_below[]`` of `AddPartitionsToTxnResponse`."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array_of(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResult(Struct):
    """``results_by_transaction[]`` of `AddPartitionsToTxnResponse`."""

    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array_of(AddPartitionsToTxnTopicResult, "4+")


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    """API key 24, versions 0 to 5."""

    throttle_time_ms: int = int32()
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array_of(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array_of(AddPartitionsToTxnTopicResult, "0-3")
