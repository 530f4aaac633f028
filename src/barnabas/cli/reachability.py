"""One rule for the start of all commands: a clear error within five seconds, or within ``--timeout``, when no broker answers.

Commands that wait by nature, such as consumers, go on when one broker answers. They say what they wait for: partitions
without a leader, and leaders that do not answer.
"""

import contextlib
import math
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.exit_codes import INCOMPLETE
from barnabas.client.properties import CONNECT_TIMEOUT_PROPERTY, renamed_for_all, security_properties

if TYPE_CHECKING:
    from barnabas.client.admin_connection import AdminConnection
    from barnabas.client.consumer import Consumer
    from barnabas.client.errors import ClientError

__all__ = ["ANSWER_S", "bounds_of", "known_bounds", "require_broker"]

ANSWER_S = 5.0
"""The deadline of a command, unless the user gives another one."""

_MAX_LINES = 10


def require_broker(
    bootstrap: str, properties: Mapping[str, Any], timeout_s: float = ANSWER_S, topics: Iterable[str | None] = ()
) -> None:
    """Raise `ConnectError` unless one of the brokers answers in time.

    What reading or writing ``topics`` has to wait for is said on standard error: a partition's lack of a leader at once, a
    leader's silence when it is known.
    """
    connection = _connection(bootstrap, properties, timeout_s)
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
    # librdkafka has what AdminConnection has not, Kerberos for one, and says at the end of the time what is wrong.
    from barnabas.client.consumer import Consumer

    given = renamed_for_all(properties)
    servers = bootstrap or given.get("bootstrap.servers", "")
    with Consumer({**security_properties(given), "bootstrap.servers": servers}, close_timeout_s=1.0) as probe:
        probe.topics(timeout_s)


def _connection(bootstrap: str, properties: Mapping[str, Any], timeout_s: float) -> "AdminConnection | None":
    """With the deadline; None where only librdkafka has the protection that the properties ask for."""
    from barnabas.client.admin_connection import AdminConnection
    from barnabas.client.deadline import Deadline
    from barnabas.client.errors import LibrdkafkaOnlyError

    given = renamed_for_all(properties)
    secure = {**security_properties(given), CONNECT_TIMEOUT_PROPERTY: str(math.ceil(timeout_s * 1000))}
    try:
        return AdminConnection(bootstrap or given.get("bootstrap.servers", ""), secure, Deadline(timeout_s))
    except LibrdkafkaOnlyError:
        return None


def _say_without_leader(connection: "AdminConnection", topics: list[str]) -> dict[int, list[TopicPartition]]:
    """Name the partitions without a leader; the others by their leaders."""
    from barnabas.cli.incomplete import say_warning
    from barnabas.client.topics import no_leader

    lines = []
    by_leader: dict[int, list[TopicPartition]] = {}
    for topic in connection.metadata(topics).topics:
        for item in topic.partitions:
            partition = TopicPartition(topic.name or "", item.partition_index)
            if item.leader_id < 0:
                lines.append(f"{no_leader(partition, item.replica_nodes).message}; waiting")
            else:
                by_leader.setdefault(item.leader_id, []).append(partition)
    for line in lines[:_MAX_LINES]:
        say_warning(line)
    if len(lines) > _MAX_LINES:
        say_warning(f"{len(lines) - _MAX_LINES} more partitions have no leader; waiting")
    return by_leader


def _say_without_answer(connection: "AdminConnection", by_leader: Mapping[int, list[TopicPartition]]) -> None:
    """Name the leaders that do not answer; in a thread, for the others can be read meanwhile."""
    from barnabas.cli.incomplete import say_warning, some
    from barnabas.client.each_broker import ask_each
    from barnabas.client.errors import ConnectError
    from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest

    with connection, contextlib.suppress(BarnabasError):
        answers = ask_each(
            connection, by_leader, lambda asking, broker_id: asking.negotiated(ApiVersionsRequest, broker_id)
        )
        for broker_id, answer in answers.items():
            if isinstance(answer, ConnectError):
                names = some([str(partition) for partition in by_leader[broker_id]])
                say_warning(f"broker {broker_id}, the leader of {names}: {answer}; waiting")


def bounds_of(
    consumer: "Consumer[Any, Any]", properties: Mapping[str, Any], places: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, "tuple[int, int] | ClientError"]:
    """The first offset of each partition and the end, or why they are not known at the deadline."""
    from barnabas.client.deadline import Deadline
    from barnabas.client.errors import ClientError
    from barnabas.client.offsets import EARLIEST, LATEST, FoundOffset, look_up_offsets

    wanted = list(places)
    found: dict[TopicPartition, tuple[int, int] | ClientError] = {}
    connection = _connection("", properties, timeout_s)
    if connection is None:
        deadline = Deadline(timeout_s)
        for place in wanted:
            try:
                found[place] = consumer.watermarks(*place, max(deadline.left_s(), 0.001))
            except ClientError as error:
                found[place] = error
        return found
    with connection:
        firsts, ends = (look_up_offsets(connection, dict.fromkeys(wanted, spec)) for spec in (EARLIEST, LATEST))
    for place in wanted:
        first, end = firsts[place], ends[place]
        if not isinstance(first, FoundOffset):
            found[place] = first
        else:
            found[place] = (first.offset, end.offset) if isinstance(end, FoundOffset) else end
    return found


def known_bounds(
    bounds: Mapping[TopicPartition, "tuple[int, int] | ClientError"], *, waits: bool
) -> tuple[dict[TopicPartition, tuple[int, int]], int]:
    """The partitions whose bounds are known, and the exit code at the end; the others are named.

    Raises the error where none is known and nothing is waited for, and what waiting does not mend.
    """
    from barnabas.cli.incomplete import say_incomplete, say_warning, some
    from barnabas.client.errors import AuthorizationError, ClientError, RefusedError, UnknownTopicError

    known = {place: found for place, found in bounds.items() if not isinstance(found, ClientError)}
    problems: dict[str, list[str]] = {}
    for place, found in bounds.items():
        if isinstance(found, ClientError):
            if (not known and not waits) or isinstance(found, AuthorizationError | UnknownTopicError):
                raise found
            said = found.message if isinstance(found, RefusedError) else str(found)
            problems.setdefault(said, []).append(str(place))
    for said, names in problems.items():
        subject = "" if said.startswith("partition ") else f"{some(names)}: "
        if waits:
            say_warning(f"{subject}{said}; waiting")
        else:
            say_incomplete(f"{subject}{said}")
    return known, INCOMPLETE if problems else 0
