"""ControlledShutdown (API key 7)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, int64, string

__all__ = ["ControlledShutdownRequest", "ControlledShutdownResponse", "RemainingPartition"]


class ControlledShutdownRequest(Message, api_key=7, versions="0-3", flexible="3+"):
    """API key 7, versions 0 to 3."""

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    """``remaining_partitions[]`` of `ControlledShutdownResponse`."""

    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Message, api_key=7, versions="0-3", flexible="3+"):
    """API key 7, versions 0 to 3."""

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array_of(RemainingPartition)
