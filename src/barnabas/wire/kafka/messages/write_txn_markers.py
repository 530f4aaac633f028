"""WriteTxnMarkers (API key 27)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int8, int16, int32, int64, string

__all__ = [
    "WritableTxnMarker",
    "WritableTxnMarkerPartitionResult",
    "WritableTxnMarkerResult",
    "WritableTxnMarkerTopic",
    "WritableTxnMarkerTopicResult",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]


class WritableTxnMarkerTopic(Struct):
    """``markers[].topics[]`` of `WriteTxnMarkersRequest`."""

    name: str = string()
    partition_indexes: list[int] = array_of("int32")


class WritableTxnMarker(Struct):
    """``markers[]`` of `WriteTxnMarkersRequest`."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array_of(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


class WriteTxnMarkersRequest(Message, api_key=27, versions="0-2", flexible="1+"):
    """API key 27, versions 0 to 2."""

    markers: list[WritableTxnMarker] = array_of(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """``markers[].topics[].partitions[]`` of `WriteTxnMarkersResponse`."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    """``markers[].topics[]`` of `WriteTxnMarkersResponse`."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array_of(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """``markers[]`` of `WriteTxnMarkersResponse`."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array_of(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, api_key=27, versions="0-2", flexible="1+"):
    """API key 27, versions 0 to 2."""

    markers: list[WritableTxnMarkerResult] = array_of(WritableTxnMarkerResult)
