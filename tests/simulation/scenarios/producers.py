"""Producers of a simulated cluster: acks 0, 1 or all, idempotent or not.

What acks=all acknowledged must stay (`History.acknowledged`). With acks 0 and 1 records may be lost
with their leader; what of them was read must stay all the same. Without idempotence a record that
is sent again may stand twice.

Some have several requests under way, which brokers may serve together. Behind one that failed all
are sent again. Some join what goes to one broker within some time into requests for several
partitions, as Java's do.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.network import Connection
from barnabas.broker.cluster.channels import ChannelError
from barnabas.testing.simulation.history import key_of
from barnabas.testing.simulation.simulation import BROKER_PORT, broker_name
from barnabas.testing.virtual.sending import init_producer_id, produce_request
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.frames import encode_request
from barnabas.wire.kafka.messages.produce import PartitionProduceResponse, ProduceRequest
from barnabas.wire.kafka.records.records import Record, build_batch
from simulation.scenarios.clients import ClusterClient

__all__ = ["ProducerKind", "SimulatedProducer"]

_ALL = -1
_PRODUCE_TIMEOUT_MS = 2000
_UNANSWERED_VERSION = 9
_MAX_FRAME_BYTES = 1 << 20
_LINGER_S = 0.1
_IDENTIFY_S = 3600.0  # a run is shorter
_PADDED_SHARE = 0.05
_MAX_PADDING_BYTES = 3000


@dataclass(frozen=True, slots=True)
class ProducerKind:
    """What a producer asks for."""

    acks: int = _ALL
    is_idempotent: bool = True
    most_under_way: int = 1
    """Requests for a partition. At most 5, of which brokers remember the sequence numbers; without
    idempotence and with acks=all only 1, or records could change their order."""
    joins_partitions: bool = False
    """Whether requests may have batches of several partitions."""


class _Unacknowledged(NamedTuple):
    """A request without an answer that counts."""

    values: list[bytes]
    sequence: int
    batch: bytes


class SimulatedProducer:
    """In each of its partitions batch after batch, each sent until its fate is known
    (acks 0: sent once)."""

    def __init__(
        self,
        client: ClusterClient,
        number: int,
        partitions: Sequence[TopicPartition],
        kind: ProducerKind,
        *,
        mean_pause_s: float,
    ) -> None:
        self._client = client
        self._number = number
        self._kind = kind
        self._mean_pause_s = mean_pause_s
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[tuple[int, TopicPartition], int] = {}
        """The next, by producer id and partition."""
        self._renewing = asyncio.Lock()
        self._one_way: dict[int, _OneWay] = {}
        self._joined: dict[int, _JoinedRequests] = {}
        self.is_stopping = False
        if not kind.is_idempotent:
            client.history.repeating.add(number)
        self.tasks = [client.spawn(self._run(name)) for name in partitions]

    @property
    def is_done(self) -> bool:
        return all(task.done() for task in self.tasks)

    async def _identify(self) -> None:
        async with self._renewing:
            if self._producer_id < 0:
                self._producer_id, self._producer_epoch = await init_producer_id(self._client.link, _IDENTIFY_S)

    async def _run(self, topic_partition: TopicPartition) -> None:
        client = self._client
        count = 0
        rng = client.rng
        most = self._kind.most_under_way
        while not self.is_stopping:
            requests: list[list[bytes]] = []
            for _ in range(1 if most == 1 else rng.randint(1, most)):
                size = rng.choice((1, 1, 2, 5))
                values = [f"{self._number}:{topic_partition}:{count + n}".encode() for n in range(size)]
                if rng.random() < _PADDED_SHARE:
                    values[0] += b"." * rng.randrange(_MAX_PADDING_BYTES)
                count += size
                client.history.sent(topic_partition, values)
                requests.append(values)
            if self._kind.acks:
                await self._send(topic_partition, requests)
            else:
                await self._throw(topic_partition, requests)
            await asyncio.sleep(rng.expovariate(1 / self._mean_pause_s))

    def _batch(
        self, topic_partition: TopicPartition, values: list[bytes], identity: tuple[int, int], sequence: int
    ) -> bytes:
        now_ms = self._client.machine.clock.wall_ms()
        keyed = self._client.history.partition(topic_partition).is_compacted
        batch = build_batch(
            [Record(n, now_ms, key_of(value) if keyed else None, value) for n, value in enumerate(values)],
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
        )
        return bytes(batch)

    async def _send(self, topic_partition: TopicPartition, requests: Sequence[list[bytes]]) -> None:
        client, history = self._client, self._client.history
        partition = history.partition(topic_partition)
        identity, sequence = (-1, -1), -1
        if self._kind.is_idempotent:
            if self._producer_id < 0:
                await self._identify()
            identity = self._producer_id, self._producer_epoch
            sequence = self._sequences.get((self._producer_id, topic_partition), 0)
        waiting: deque[_Unacknowledged] = deque()
        for values in requests:
            batch = self._batch(topic_partition, values, identity, sequence)
            waiting.append(_Unacknowledged(values, sequence, batch))
            if self._kind.is_idempotent:
                sequence += len(values)
        is_first_try = True
        while waiting:
            losses = partition.losses
            batches = [each.batch for each in waiting]
            if self._kind.is_idempotent and (identity[0], topic_partition) not in self._sequences:
                # A broker takes any number for the first of a producer: the second
                # must not come first.
                del batches[1:]
            answers = await self._ask(topic_partition, batches)
            for code, base_offset, is_valid in answers:
                if code is not ErrorCode.NONE and code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    break  # the answers behind it say nothing, or come again
                done = waiting.popleft()
                if self._kind.acks != _ALL:
                    history.count("acknowledged by the leader alone", len(done.values))
                elif partition.losses == losses and is_valid:
                    offset = base_offset if code is ErrorCode.NONE else -1
                    history.acknowledged(topic_partition, self._number, done.values, offset)
                self._sequences[identity[0], topic_partition] = done.sequence + len(done.values)
            else:
                continue
            # A broker that started again remembers the last batch of a producer only, for
            # its snapshots hold no more.
            may_be_unknown = len(requests) > 1 and not is_first_try
            if not self._is_worth_another_try(topic_partition, code, identity, waiting[0].sequence, may_be_unknown):
                return
            is_first_try = False
            history.count("produce retries")
            client.forget_leader(topic_partition)
            await client.pause()

    def _is_worth_another_try(
        self,
        topic_partition: TopicPartition,
        code: ErrorCode | None,
        identity: tuple[int, int],
        sequence: int,
        may_be_unknown: bool,
    ) -> bool:
        """Whether the requests from a failed one on are to be sent again."""
        history = self._client.history
        partition = history.partition(topic_partition)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or code is ErrorCode.UNKNOWN_PRODUCER_ID:
            if may_be_unknown:
                history.count("batches unknown after a restart")
            elif not partition.losses and not partition.is_unclean:
                history.violation(f"{topic_partition}: {code.name} for sequence {sequence} of {identity}, nothing lost")
            # Start again, without those before if they are lost with the disks. Whether
            # these were stored is unknown.
            if self._producer_id == identity[0]:
                self._producer_id = -1
            return False
        if code is not None and not code.retriable:
            history.violation(f"{topic_partition}: produce was answered with {code.name}")
            return False
        return True

    def _request(self, batches: Mapping[TopicPartition, bytes]) -> ProduceRequest:
        topic_ids = self._client.topic_ids
        return produce_request(batches, topic_ids, acks=self._kind.acks, timeout_ms=_PRODUCE_TIMEOUT_MS)

    async def _ask(
        self, topic_partition: TopicPartition, batches: Sequence[bytes]
    ) -> list[tuple[ErrorCode | None, int, bool]]:
        """Of each request the error (None without an answer), the base offset, and
        whether the answer counts."""
        leader = await self._client.leader(topic_partition)
        return await asyncio.gather(*(self._ask_one(topic_partition, leader, batch) for batch in batches))

    async def _ask_one(
        self, topic_partition: TopicPartition, leader: int, batch: bytes
    ) -> tuple[ErrorCode | None, int, bool]:
        client = self._client
        try:
            if self._kind.joins_partitions:
                answer = await self._joined_requests(leader).send(topic_partition, batch)
            else:
                response = await client.channels.send(leader, self._request({topic_partition: batch}))
                answer = response.responses[0].partition_responses[0]
        except ChannelError:
            return None, -1, False
        client.history.reconsider(topic_partition)
        return (
            ErrorCode.of(answer.error_code),
            answer.base_offset,
            client.observer.is_leader_now(leader, topic_partition),
        )

    def _joined_requests(self, leader: int) -> "_JoinedRequests":
        if leader not in self._joined:
            self._joined[leader] = _JoinedRequests(self._client, leader, self._request)
        return self._joined[leader]

    async def _throw(self, topic_partition: TopicPartition, requests: Sequence[list[bytes]]) -> None:
        """Acks 0: nothing is ever answered; a refusal closes the connection."""
        client = self._client
        leader = await client.leader(topic_partition)
        way = self._one_way.setdefault(leader, _OneWay(client, leader))
        batches = [self._batch(topic_partition, values, (-1, -1), -1) for values in requests]
        if not await way.send([self._request({topic_partition: batch}) for batch in batches]):
            client.forget_leader(topic_partition)
        client.history.count("sent with acks 0", sum(map(len, requests)))


class _JoinedRequests:
    """Requests to one broker that fill for some time before they leave, each with one
    batch of a partition at most."""

    def __init__(
        self,
        client: ClusterClient,
        broker_id: int,
        request_of: Callable[[Mapping[TopicPartition, bytes]], ProduceRequest],
    ) -> None:
        self._client = client
        self._broker_id = broker_id
        self._request_of = request_of
        self._filling: list[dict[TopicPartition, tuple[bytes, asyncio.Future[PartitionProduceResponse]]]] = []

    async def send(self, topic_partition: TopicPartition, batch: bytes) -> PartitionProduceResponse:
        """Send a batch behind those of the same partition. Raises `ChannelError`."""
        filling = self._filling
        if not filling:
            self._client.spawn(self._leave())
        number = sum(topic_partition in request for request in filling)
        if number == len(filling):
            filling.append({})
        answer: asyncio.Future[PartitionProduceResponse] = asyncio.get_running_loop().create_future()
        filling[number][topic_partition] = batch, answer
        return await answer

    async def _leave(self) -> None:
        await asyncio.sleep(_LINGER_S)
        requests, self._filling = self._filling, []
        await asyncio.gather(*map(self._ask, requests))

    async def _ask(
        self, request: Mapping[TopicPartition, tuple[bytes, "asyncio.Future[PartitionProduceResponse]"]]
    ) -> None:
        client = self._client
        if len(request) > 1:
            client.history.count("requests for several partitions")
        batches = {topic_partition: batch for topic_partition, (batch, _) in request.items()}
        try:
            response = await client.channels.send(self._broker_id, self._request_of(batches))
        except ChannelError as error:
            for _, answer in request.values():
                if not answer.done():
                    answer.set_exception(ChannelError(str(error)))
            return
        for topic in response.responses:
            name = topic.name or next(name for name, known in client.topic_ids.items() if known == topic.topic_id)
            for answered in topic.partition_responses:
                _, answer = request[TopicPartition(name, answered.index)]
                if not answer.done():
                    answer.set_result(answered)


class _OneWay:
    """A connection without an answer."""

    def __init__(self, client: ClusterClient, broker_id: int) -> None:
        self._client = client
        self._host = broker_name(broker_id)
        self._connection: Connection | None = None

    async def send(self, requests: Sequence[ProduceRequest]) -> bool:
        """Whether the bytes are on their way."""
        if self._connection is None:
            try:
                self._connection = await self._client.machine.network().connect(
                    self._host, BROKER_PORT, lambda _: self, max_frame_bytes=_MAX_FRAME_BYTES, timeout_ms=1000
                )
            except (OSError, TimeoutError):
                return False
        frames = (encode_request(request, _UNANSWERED_VERSION, 0, "simulation") for request in requests)
        self._connection.send([part for frame in frames for part in frame])
        return True

    def frame(self, data: memoryview) -> None:
        """Something is answered all the same."""
        self._client.history.violation(f"{len(data)} bytes answer a produce with acks 0")

    def bad_length(self, prefix: bytes) -> None:
        self._client.history.violation(f"{prefix!r} answers a produce with acks 0")

    def closed(self, error: Exception | None) -> None:  # the seam's signature
        self._connection = None
