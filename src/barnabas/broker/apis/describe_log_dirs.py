"""DescribeLogDirs (key 35), versions 1 to 4.

Which partitions are in which log dir, and their sizes (KIP-113). A null topic list asks for all partitions. A replica
that moves from one dir to another is in both; the copy in its new dir is marked as future.

- 3: an error of the whole response.
- 4: the disk's total and usable bytes (KIP-827).

Errors: KAFKA_STORAGE_ERROR for a log dir that is offline.
"""

from barnabas.base.ids import TopicPartition
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(services: Services, request: Request) -> None:
    """Describe each log dir."""
    message: DescribeLogDirsRequest = request.message
    wanted: set[TopicPartition] | None = None
    if message.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in message.topics for index in topic.partitions}
    results = []
    for described in services.log_dirs.describe():
        if described.error is not None:
            results.append(_offline(described.path))
            continue
        topics: dict[str, DescribeLogDirsTopic] = {}
        for name, size_bytes, is_future in described.partitions:
            if wanted is not None and name not in wanted:
                continue
            topic = topics.setdefault(name.topic, DescribeLogDirsTopic(name=name.topic))
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=name.partition,
                    partition_size=size_bytes,
                    offset_lag=_lag(services, name, is_future=is_future),
                    is_future_key=is_future,
                )
            )
        try:
            total_bytes, usable_bytes = services.files.disk_space(described.path)
        except OSError as error:
            services.log_dirs.disk_failed(described.path, error, f"asking for the space in {described.path}")
            results.append(_offline(described.path))
            continue
        results.append(
            DescribeLogDirsResult(
                log_dir=described.path,
                topics=list(topics.values()),
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        )
    request.reply(DescribeLogDirsResponse(results=results))


def _offline(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[])


def _lag(services: Services, name: TopicPartition, *, is_future: bool) -> int:
    """How far the log's end is behind the high watermark, a future log's behind the end of the current one."""
    partition, future = services.replicas.get(name), services.log_dirs.future(name)
    if partition is None or partition.offline:
        return -1
    if is_future:
        return -1 if future is None else partition.log.log_end_offset - future.log_end_offset
    return max(partition.log.high_watermark - partition.log.log_end_offset, 0)


API = ApiHandler(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, handle)
