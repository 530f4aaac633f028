"""One rule for the start of all commands: a clear error within five seconds, or within
``--timeout``, when no broker answers.

Commands that wait by nature, such as consumers, go on when one broker answers. They say what they
wait for: partitions without a leader, and leaders that do not answer.
"""

import contextlib
import math
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.client.properties.translation import CONNECT_TIMEOUT_PROPERTY, renamed_for_all, security_properties

if TYPE_CHECKING:
    from barnabas.client.cluster.admin_connection import AdminConnection
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.errors import ClientError
    from barnabas.client.network.deadline import Deadline

__all__ = [
    "ANSWER_S",
    "LIBRDKAFKA_S",
    "admin_connection",
    "bounds_of",
    "existing_partitions",
    "require_broker",
    "topics_of",
]

ANSWER_S = 5.0
"""The deadline of a command, unless the user gives another one."""
LIBRDKAFKA_S = 0.1
"""The least time of a question to librdkafka: it needs some to say what is wrong."""


def require_broker(
    bootstrap: str, properties: Mapping[str, Any], timeout_s: float = ANSWER_S, topics: Iterable[str | None] = ()
) -> None:
    """Raise `ConnectError` unless one of the brokers answers in time.

    What reading or writing ``topics`` has to wait for is said on standard error: a partition's lack
    of a leader at once, a leader's silence when it is known.
    """
    connection = admin_connection(bootstrap, properties, timeout_s)
    if connection is not None:
        names = [topic for topic in topics if topic]
        try:
            connection.describe_cluster()
            by_leader = _say_without_leader(connection, names) if names else {}
        except BaseException:
            connection.close()
            raise
        if by_leader:
            say = threading.Thread(target=_say_without_answer, args=(connection, by_leader), daemon=True)
            say.start()
        else:
            connection.close()
        return
    # librdkafka has what AdminConnection has not, Kerberos for one, and says at the end
    # of the time what is wrong.
    from barnabas.client.consumer.consumer import Consumer

    given = renamed_for_all(properties)
    servers = bootstrap or given.get("bootstrap.servers", "")
    with Consumer({**security_properties(given), "bootstrap.servers": servers}, close_timeout_s=1.0) as probe:
        probe.topics(timeout_s)


def admin_connection(bootstrap: str, properties: Mapping[str, Any], timeout_s: float) -> "AdminConnection | None":
    """A connection that ends by the deadline.

    None where only librdkafka has the protection that the properties ask for."""
    from barnabas.client.cluster.admin_connection import AdminConnection
    from barnabas.client.errors import LibrdkafkaOnlyError
    from barnabas.client.network.deadline import Deadline

    given = renamed_for_all(properties)
    secure = {**security_properties(given), CONNECT_TIMEOUT_PROPERTY: str(math.ceil(timeout_s * 1000))}
    try:
        return AdminConnection(bootstrap or given.get("bootstrap.servers", ""), secure, Deadline(timeout_s))
    except LibrdkafkaOnlyError:
        return None


def _say_without_leader(connection: "AdminConnection", topics: list[str]) -> dict[int, list[TopicPartition]]:
    """Name the partitions without a leader; the others by their leaders."""
    from barnabas.cli.connection.incomplete import Gaps
    from barnabas.client.admin.topics import no_leader

    without_leader = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for topic in connection.metadata(topics).topics:
        for item in topic.partitions:
            topic_partition = TopicPartition(topic.name or "", item.partition_index)
            if item.leader_id < 0:
                without_leader[topic_partition] = no_leader(topic_partition, item.replica_nodes)
            else:
                by_leader.setdefault(item.leader_id, []).append(topic_partition)
    gaps = Gaps()
    gaps.add_partitions(without_leader)
    gaps.report(waiting=True)
    return by_leader


def _say_without_answer(connection: "AdminConnection", by_leader: Mapping[int, list[TopicPartition]]) -> None:
    """Name the leaders that do not answer; in a thread, for the others can be read meanwhile."""
    from barnabas.cli.connection.incomplete import Gaps
    from barnabas.client.cluster.each_broker import ask_each
    from barnabas.client.errors import ConnectError
    from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest

    with connection, contextlib.suppress(BarnabasError):
        answers = ask_each(
            connection, by_leader, lambda asking, broker_id: asking.negotiated(ApiVersionsRequest, broker_id)
        )
        gaps = Gaps(connection)
        for broker_id, answer in answers.items():
            if isinstance(answer, ConnectError):
                gaps.add_partitions(dict.fromkeys(by_leader[broker_id], answer))
        gaps.report(waiting=True)


def topics_of(consumer: "Consumer[Any, Any]", deadline: "Deadline") -> dict[str, int]:
    """The topics with their numbers of partitions. Raises an error without an answer."""
    return consumer.topics(deadline.left_s(at_least=LIBRDKAFKA_S))


def existing_partitions(
    consumer: "Consumer[Any, Any]",
    properties: Mapping[str, Any],
    topic: str,
    wanted: int | None,
    deadline: "Deadline",
) -> list[TopicPartition]:
    """All partitions of a topic, or the ``wanted`` one.

    Raises an error for a topic or a partition that does not exist."""
    from barnabas.base.hints import did_you_mean
    from barnabas.cli.connection.suggestions import refuse_hidden
    from barnabas.client.errors import refusal
    from barnabas.wire.kafka.errors import ErrorCode

    topics = topics_of(consumer, deadline)
    count = topics.get(topic)
    if count is None:
        connection = admin_connection("", properties, deadline.left_s())
        if connection is not None:
            with connection:
                refuse_hidden(connection, topic)
        hint = f"topic {topic} does not exist{did_you_mean(topic, topics)}"
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, hint)
    if wanted is not None and not 0 <= wanted < count:
        raise ConfigError(f"partition {wanted}: {topic} has partitions 0 to {count - 1}")
    return [TopicPartition(topic, number) for number in (range(count) if wanted is None else [wanted])]


def bounds_of(
    consumer: "Consumer[Any, Any]",
    properties: Mapping[str, Any],
    partitions: Iterable[TopicPartition],
    deadline: "Deadline",
    *,
    waits: bool,
    is_last: bool,
) -> tuple[dict[TopicPartition, tuple[int, int]], int]:
    """The first offset and the end of each partition for which they are known at the
    deadline, and the exit code.

    The others are named; with ``waits`` as what is waited for. Raises an error where none is
    known and nothing is waited for, and what waiting does not mend. It may use all of the
    deadline if it ``is_last``.
    """
    from barnabas.cli.connection.incomplete import Gaps
    from barnabas.client.admin.offsets import bounds_in_part
    from barnabas.client.errors import AuthorizationError, ClientError, UnknownTopicError

    connection = admin_connection("", properties, deadline.left_s())
    with connection or contextlib.nullcontext():
        if connection is None:
            outcomes = _bounds_by_librdkafka(consumer, partitions, deadline)
        else:
            outcomes = bounds_in_part(connection, partitions, is_last=is_last)
    gaps = Gaps(connection)
    gaps.add_partitions(outcomes)
    known = {}
    for topic_partition, outcome in outcomes.items():
        if isinstance(outcome, AuthorizationError | UnknownTopicError):
            raise outcome
        if not isinstance(outcome, ClientError):
            known[topic_partition] = outcome
    if outcomes and not known and not waits:
        raise BarnabasError("; ".join(gaps.lines))
    return known, gaps.report(waiting=waits)


def _bounds_by_librdkafka(
    consumer: "Consumer[Any, Any]", partitions: Iterable[TopicPartition], deadline: "Deadline"
) -> "dict[TopicPartition, tuple[int, int] | ClientError]":
    from barnabas.client.errors import ClientError

    found: dict[TopicPartition, tuple[int, int] | ClientError] = {}
    for topic_partition in partitions:
        try:
            found[topic_partition] = consumer.watermarks(*topic_partition, deadline.left_s(at_least=LIBRDKAFKA_S))
        except ClientError as error:
            found[topic_partition] = error
    return found
