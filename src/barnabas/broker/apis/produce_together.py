"""Produce requests that arrived together on one connection: read from their bytes,
appended and answered together.

They are read by the first reader that understands them (`produce_template`, `produce_parts`), and
appended as the requests of the third are (`barnabas.broker.replication.produce_append`). What no
reader here understands is left as it came: the dispatcher has it decoded (`produce`).

- Answers leave in the order of the requests. One that waits holds those behind it, and while
  it waits its connection delivers no other. So with acks=all the followers fetch all these
  records at once.
- What is too much for one turn of the event loop, or is checked in a thread, is appended in slices.
  The requests behind it are left until it is answered.
- The answer is made by the template or from the parts if all has succeeded, else from the message.

In Kafka: `KafkaApis.handleProduceRequest` and its callback.
"""

import itertools
import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable

from barnabas.base.files import FileSlice
from barnabas.base.tasks import Beside, done_here
from barnabas.broker.apis.produce import Parts, response_to, rights_of
from barnabas.broker.apis.produce_parts import ReadProduce, read_parts
from barnabas.broker.apis.produce_template import Templates
from barnabas.broker.cluster.steps import Wait
from barnabas.broker.replication.delayed_produce import DelayedProduce
from barnabas.broker.replication.produce_append import AppendTask, Produce, append, perform_wait
from barnabas.broker.requests.purgatory import DelayedOperation
from barnabas.broker.requests.request import ClientFacts
from barnabas.log.append_run import MOST_BATCHES
from barnabas.wire.kafka.frames import encode_response
from barnabas.wire.kafka.messages.produce import ProduceResponse

__all__ = ["ProduceTogether"]

logger = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i")
_LENGTH_BYTES = 4
_MOST_BYTES = 4 << 20
"""Most bytes of a request that is read part by part in one go."""

_Bounds = tuple[int, int]
"""Where a frame begins behind its length, and where it ends."""


def _frames(data: memoryview, start: int, stop: int, max_frame_bytes: int) -> list[_Bounds]:
    """Where a request is, and the whole frames behind it."""
    frames = [(start, stop)]
    end = len(data)
    while end - stop >= _LENGTH_BYTES and len(frames) < MOST_BATCHES:
        start = stop + _LENGTH_BYTES
        (size,) = _LENGTH.unpack_from(data, stop)
        stop = start + size
        if not 0 <= size <= max_frame_bytes or stop > end:
            break
        frames.append((start, stop))
    return frames


class ProduceTogether:
    """Serves usual requests of all connections of a broker
    (`barnabas.broker.requests.dispatch.FastPath`)."""

    __slots__ = ("_parts", "_templates", "_versions", "served_count")

    def __init__(self, parts: Parts, versions: range) -> None:
        """``versions`` are those that the broker serves."""
        self._parts = parts
        self._templates = Templates(parts.metadata.topic_name)
        self._versions = versions
        self.served_count = 0

    def serve(
        self, client: ClientFacts, data: memoryview, start: int, stop: int, max_frame_bytes: int, now_ms: int
    ) -> "tuple[int, list[bytes], _Unanswered | None]":
        """See `barnabas.broker.requests.dispatch.FastPath`."""
        frames = _frames(data, start, stop, max_frame_bytes)
        requests, produced = self._read(data, frames)
        if not requests:
            return start, [], None
        parts = self._parts
        rights = rights_of(parts.auth_helper, client) if parts.auth_helper.is_enabled else None
        work = append(parts.replicas, produced, now_ms, parts.clock, parts.transaction_verifier, rights)
        is_under_way = False
        step: Beside | Wait | None = None
        for step in work:  # there is none in what is usual
            done = sum(produce.is_appended for produce in produced)
            is_under_way = step is not None or any(produce.is_under_way for produce in produced[done:])
            del requests[done + is_under_way :], produced[done + is_under_way :]
            if is_under_way:
                break
        answers: list[bytes] = []
        for correlation_id, produce, words in requests:
            if not produce.is_done:
                break
            if produce.options.acks:
                answers.append(words.encode(correlation_id, produce.outcomes))
        else:
            count = self.served_count = len(requests)
            return frames[count - 1][1], answers, None
        if not is_under_way and not produced[-1].is_appended:
            del requests[sum(produce.is_appended for produce in produced) :]
        self.served_count = len(requests)
        stop = frames[self.served_count - 1][1]
        rest = itertools.dropwhile(lambda request: request[1].is_done, requests)
        unanswered = _Unanswered(parts, client.listener, rest)
        if is_under_way:
            unanswered.append_later(step, work)
        else:
            answers += unanswered.take_settled()
        return stop, answers, unanswered if unanswered.count else None

    def _read(self, data: memoryview, frames: Iterable[_Bounds]) -> tuple[list[ReadProduce], list[Produce]]:
        """The requests up to the first that is not usual."""
        requests: list[ReadProduce] = []
        produced: list[Produce] = []
        templates = self._templates
        for start, stop in frames:
            template = templates.last
            request = None if template is None else template.read(data, start, stop)
            if request is None:
                request = self._read_another(data, start, stop)
                if request is None:
                    break
            requests.append(request)
            produced.append(request[1])
        return requests, produced

    def _read_another(self, data: memoryview, start: int, stop: int) -> ReadProduce | None:
        """A request that is not like the one before it."""
        templates = self._templates
        request = templates.read(data, start, stop)
        if request is None and stop - start <= _MOST_BYTES:
            request = read_parts(data, start, stop, self._versions, self._parts.metadata.topic_name)
            if request is not None:
                templates.learn(data, start, stop, request)
        return request


class _Unanswered:
    """Requests whose answers come later, because they or one before them wait
    (`barnabas.broker.requests.dispatch.Unanswered`)."""

    __slots__ = ("_close", "_delayed", "_listener", "_operations", "_parts", "_requests", "_send", "_work", "count")

    def __init__(self, parts: Parts, listener: str, requests: Iterable[ReadProduce]) -> None:
        self._parts = parts
        self._listener = listener
        self._requests = deque(requests)
        self._delayed: dict[int, DelayedProduce] = {}
        """By timeout."""
        self._operations: list[DelayedOperation] = []
        self._work: AppendTask[None] | None = None
        """What is left of the append, and then to do."""
        self.count = len(self._requests)
        # These refer to this object. Without them nothing is left for the garbage collector when
        # the last answer has left.
        self._send: Callable[[list[bytes], bool], None] | None = None
        self._close: Callable[[], None] | None = None

    def take_settled(self) -> list[bytes]:
        """The answers that can leave at once, now that all is appended."""
        self._acknowledge()
        answers = self._settled()
        self.count = len(self._requests)
        return answers

    def append_later(self, step: Beside | Wait | None, work: AppendTask[None]) -> None:
        """Go on with an append that waits for a thread or another broker, or gives
        others a turn."""
        self._work = self._append(step, work)

    def wait(self, send: Callable[[list[bytes], bool], None], close: Callable[[], None]) -> None:
        self._send, self._close = send, close
        if self._work is None:
            self._begin()
        else:
            self._parts.runner.start(self._work, perform_wait)

    def abandon(self) -> None:
        for operation in self._operations:
            operation.force_complete()
        self._operations.clear()
        self._requests.clear()
        self._send = self._close = None

    def _append(self, step: Beside | Wait | None, work: AppendTask[None]) -> AppendTask[None]:
        try:
            yield step
            yield from work
        except Exception:
            logger.exception("Records cannot be appended")
            if self._close is not None:
                self._close()
            return
        self._work = None
        if self._send is not None:  # else the client is gone
            self._acknowledge()
            self._begin()

    def _acknowledge(self) -> None:
        """Find out which requests must wait."""
        for _, produce, _ in self._requests:
            timeout_ms = produce.options.timeout_ms
            delayed = self._delayed.get(timeout_ms)
            if delayed is None:
                delayed = self._delayed[timeout_ms] = DelayedProduce(self._parts.replicas)
            delayed.add_request(produce)

    def _begin(self) -> None:
        for timeout_ms, delayed in self._delayed.items():
            if not delayed.is_over:
                self._operations.append(delayed.wait(self._parts.purgatory, timeout_ms, self._send_settled))
        self._send_settled()

    def _settled(self) -> list[bytes]:
        """The answers before the first request that waits, or whose only answer is
        the end of the connection."""
        waiting = self._requests
        answers = []
        while waiting:
            correlation_id, produce, words = waiting[0]
            has_failed = produce.has_failed
            if produce.waiting or (has_failed and not produce.options.acks):
                break
            waiting.popleft()
            if not produce.options.acks:
                answers.append(b"")
            elif has_failed:
                response = done_here(response_to(self._parts, self._listener, produce))
                answers.append(_join_response(response, produce.options.version, correlation_id))
            else:
                answers.append(words.encode(correlation_id, produce.outcomes))
        return answers

    def _send_settled(self) -> None:
        answers = self._settled()
        is_end = bool(self._requests) and not self._requests[0][1].waiting
        are_last = not self._requests
        send, close = self._send, self._close
        if are_last or is_end:
            self._operations.clear()
            self._send = self._close = None
        if send is not None and (answers or is_end):
            send([*answers, b""] if is_end else answers, are_last)
        if is_end and close is not None:
            close()


def _join_response(response: ProduceResponse, version: int, correlation_id: int) -> bytes:
    """The frame of a response."""
    parts = encode_response(response, version, correlation_id)
    return b"".join(bytes(part) for part in parts if not isinstance(part, FileSlice))
