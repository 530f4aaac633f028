"""Answers of the fast path of Produce: those that leave at once, and those that wait for in-sync replicas.

Answers leave in the order of the requests, so one that waits holds those behind it, and no other.

In Kafka: the callback of `KafkaApis.handleProduceRequest`, and `DelayedProduce`.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from barnabas.base.ids import TopicPartition
from barnabas.broker.apis.services import Services
from barnabas.broker.replication.delayed_produce import ALL_IN_SYNC, acknowledgement, wait_for_acknowledgements
from barnabas.broker.requests.purgatory import DelayedOperation
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["AppendedRequests", "UnacknowledgedRequests", "answers_of"]


class AppendedRequests(Protocol):
    """Requests, one or more, whose records are in the logs, and which are answered together."""

    @property
    def acks(self) -> int: ...

    @property
    def count(self) -> int:
        """How many requests."""
        ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def has_failed(self) -> bool:
        """Whether some of the records could not be written."""
        ...

    def last_offsets(self) -> dict[TopicPartition, int]:
        """The last offset of what was written to each partition."""
        ...

    def encode_answers(self) -> list[bytes]:
        """The answers if nothing has failed."""
        ...

    def encode_errors(
        self, services: Services, listener: str, errors: Mapping[TopicPartition, ErrorCode]
    ) -> list[bytes]:
        """The answers if something has failed, before or, with these ``errors``, while it waited."""
        ...


class _Answer:
    """The answer to one of `AppendedRequests`."""

    __slots__ = ("encoded", "errors", "requests", "waits_for")

    def __init__(self, requests: AppendedRequests) -> None:
        self.requests = requests
        self.waits_for: dict[TopicPartition, int] = {}
        """The last offset of each partition whose records are not acknowledged yet."""
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.encoded: list[bytes] | None = None

    @property
    def closes(self) -> bool:
        """Whether the end of the connection is the only answer: with acks 0, something has failed."""
        return not self.requests.acks and self.requests.has_failed


def answers_of(
    services: Services, appended: Sequence[AppendedRequests]
) -> "tuple[list[bytes], UnacknowledgedRequests | None]":
    """The answers up to the first that waits or has errors, and what is behind them."""
    answers: list[bytes] = []
    later: UnacknowledgedRequests | None = None
    for requests in appended:
        acks = requests.acks
        if not acks and not requests.has_failed:
            continue
        if acks != ALL_IN_SYNC and later is None and not requests.has_failed:
            answers += requests.encode_answers()
            continue
        answer = _Answer(requests)
        if acks == ALL_IN_SYNC:
            for topic_partition, last_offset in requests.last_offsets().items():
                code = acknowledgement(services.replicas, topic_partition, last_offset, ALL_IN_SYNC)
                if code is None:
                    answer.waits_for[topic_partition] = last_offset
                elif code is not ErrorCode.NONE:
                    answer.errors[topic_partition] = code
        if not (answer.waits_for or answer.errors or requests.has_failed):
            encoded = requests.encode_answers()
            if later is None:
                answers += encoded
                continue
            answer.encoded = encoded
        if later is None:
            later = UnacknowledgedRequests(services)
        later.add(answer)
    return answers, later


class UnacknowledgedRequests:
    """Requests that wait for in-sync replicas, and those behind them (`barnabas.broker.requests.dispatch.Unanswered`).

    An answer leaves when those before it have left: as long as one partition makes no progress, only the answers behind it wait.
    """

    __slots__ = ("_answers", "_close", "_listener", "_operations", "_send", "_services", "count")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._answers: deque[_Answer] = deque()
        self._operations: list[DelayedOperation] = []
        self._listener = ""
        self.count = 0
        # These refer to this object. Without them nothing is left for the garbage collector when the last answer has left.
        self._send: Callable[[list[bytes], bool], None] | None = None
        self._close: Callable[[], None] | None = None

    def add(self, answer: _Answer) -> None:
        self._answers.append(answer)
        self.count += answer.requests.count

    def wait(self, listener: str, send: Callable[[list[bytes], bool], None], close: Callable[[], None]) -> None:
        self._listener, self._send, self._close = listener, send, close
        services = self._services
        for answer in tuple(self._answers):
            if answer.encoded is None and answer.waits_for:
                self._operations.append(
                    wait_for_acknowledgements(
                        services.replicas,
                        services.purgatory,
                        answer.waits_for,
                        ALL_IN_SYNC,
                        partial(self._acknowledged, answer),
                        answer.requests.timeout_ms,
                    )
                )
            elif answer.encoded is None:
                self._acknowledged(answer, {})

    def abandon(self) -> None:
        for operation in self._operations:
            operation.force_complete()
        self._operations.clear()
        self._answers.clear()
        self._send = self._close = None

    def _acknowledged(self, answer: _Answer, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        requests = answer.requests
        if answer.closes:
            answer.encoded = []
        elif errors or answer.errors or requests.has_failed:
            answer.encoded = requests.encode_errors(self._services, self._listener, {**answer.errors, **errors})
        else:
            answer.encoded = requests.encode_answers()
        self._send_first()

    def _send_first(self) -> None:
        """Send the answers before the first that waits."""
        waiting = self._answers
        encoded: list[bytes] = []
        is_end = False
        while waiting and waiting[0].encoded is not None and not is_end:
            answer = waiting.popleft()
            encoded += answer.encoded or ()
            is_end = answer.closes
        send, close = self._send, self._close
        if not waiting:
            self._operations.clear()
            self._send = self._close = None
        if send is not None and (encoded or not (waiting or is_end)):
            send(encoded, not (waiting or is_end))
        if is_end and close is not None:
            close()
