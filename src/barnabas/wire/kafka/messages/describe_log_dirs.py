"""DescribeLogDirs (API key 35)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int16, int32, int64, string

__all__ = [
    "DescribableLogDirTopic",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
]


class DescribableLogDirTopic(Struct):
    """``topics[]`` of `DescribeLogDirsRequest`."""

    topic: str = string()
    partitions: list[int] = array_of("int32")


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    """API key 35, versions 1 to 5."""

    topics: list[DescribableLogDirTopic] | None = array_of(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    """``results[].topics[].partitions[]`` of `DescribeLogDirsResponse`."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    """``results[].topics[]`` of `DescribeLogDirsResponse`."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array_of(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """``results[]`` of `DescribeLogDirsResponse`."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array_of(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    """API key 35, versions 1 to 5."""

    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array_of(DescribeLogDirsResult)
