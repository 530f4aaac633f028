"""DescribeTransactions (API key 65)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string

__all__ = ["DescribeTransactionsRequest", "DescribeTransactionsResponse", "TopicData", "TransactionState"]


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    """API key 65, versions 0."""

    transactional_ids: list[str] = array_of("string")


class TopicData(Struct):
    """``transaction_states[].topics[]`` of `DescribeTransactionsResponse`."""

    topic: str = string()
    partitions: list[int] = array_of("int32")


class TransactionState(Struct):
    """``transaction_states[]`` of `DescribeTransactionsResponse`."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array_of(TopicData)


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    """API key 65, versions 0."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array_of(TransactionState)
