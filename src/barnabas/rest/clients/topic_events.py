"""What event streams read: each partition is fetched once, however many streams read it.

A stream has no consumer and no buffer, only its place: the next offset of each partition. It asks
for the *chunk* of records that begins there. Chunks are kept for a while, so that streams at the
same place share them, also the text of their events.

- At the end of a partition one consumer, the *tail*, reads for all streams. It makes a chunk of
  what came, and wakes those that wait.
- A stream that is behind the tail asks for a chunk from one of a few other consumers. Such a chunk
  ends where the tail was, so that the stream goes on with the tail's chunks.

A stream that does not read stays where it is, and costs nothing; what it missed meanwhile is
fetched again.

Confluent's proxy has no counterpart.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.admin.topics import describe_topics
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.client.records import Record
from barnabas.rest.clients.admin_pool import AdminPool
from barnabas.rest.errors import RestCode, RestError

__all__ = ["EventChunk", "TopicEvents"]

logger = logging.getLogger("barnabas.rest")

_CATCH_UPS = 4
_CHUNK_RECORDS = 500
_CATCH_UP_S = 10.0
_TAIL_S = 0.2
_PAUSE_S = 1.0
_UNWATCHED_S = 30.0
_MOST_KEPT_BYTES = 16 << 20
_RECORD_BYTES = 300
"""What a record costs besides its bytes."""
_LIMITS = {
    "enable.partition.eof": "true",
    "queued.max.messages.kbytes": "4096",
    "fetch.message.max.bytes": "1048576",
    "auto.offset.reset": "earliest",
    "client.id": "barnabas-rest-events",
}


@dataclass(slots=True)
class EventChunk:
    """Records of a partition, from an offset on, up to another one."""

    records: list[Record[bytes, bytes]]
    stop: int
    """The next offset."""
    texts: dict[object, list[bytes]] = field(default_factory=dict)
    """The events of the records, by the format that streams ask for."""
    size_bytes: int = 0

    def events(self, form: object, made: Callable[[Record[bytes, bytes]], bytes]) -> list[bytes]:
        """The events in a format; made for the first stream that asks."""
        found = self.texts.get(form)
        if found is None:
            found = self.texts[form] = [made(record) for record in self.records]
        return found


@dataclass(slots=True)
class _Watched:
    """A partition that streams read."""

    position: int
    """Where the tail is."""
    last: tuple[int, EventChunk] | None = None
    """The tail's last chunk and where it begins."""
    wakers: set[asyncio.Event] = field(default_factory=set)
    failure: ClientError | None = None
    unwatched_since_s: float = 0.0


class TopicEvents:
    """Chunks of all partitions that streams read."""

    def __init__(self, properties: Mapping[str, str], admin: AdminPool) -> None:
        self._properties = {**_LIMITS, **{name: text for name, text in properties.items() if name != "group.id"}}
        self._admin = admin
        self._loop = asyncio.get_running_loop()
        self._watched: dict[TopicPartition, _Watched] = {}
        self._chunks: OrderedDict[tuple[TopicPartition, int], EventChunk] = OrderedDict()
        self._kept_bytes = 0
        self._fetches: dict[tuple[TopicPartition, int], asyncio.Future[EventChunk]] = {}
        self._free: list[Consumer[bytes, bytes]] = []
        self._turns = asyncio.Semaphore(_CATCH_UPS)
        self._tail: threading.Thread | None = None
        self._tail_changed = threading.Event()
        self._tail_wanted: dict[TopicPartition, int] = {}
        self._tail_lock = threading.Lock()
        self._has_ended = False

    # For streams

    async def bounds(self, topic: str, partition: int | None) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset and the end of each partition, or of one.

        Raises `RestError` and `ClientError`."""

        def ask(connection: object) -> dict[TopicPartition, tuple[int, int]]:
            found = describe_topics(connection, [topic])[0]  # type: ignore[arg-type]
            places = [TopicPartition(topic, each.partition) for each in found.partitions]
            if partition is not None:
                places = [each for each in places if each.partition == partition]
            if not places:
                raise RestError(RestCode.PARTITION_NOT_FOUND, "Partition not found.")
            made: dict[TopicPartition, list[int]] = {each: [] for each in places}
            for spec in (EARLIEST, LATEST):
                asked = dict.fromkeys(places, spec)
                answers = list_offsets(connection, asked, read_committed=True)  # type: ignore[arg-type]
                for place, offset in answers.items():
                    if isinstance(offset, ClientError):
                        raise offset
                    made[place].append(offset.offset)
            return {place: (first, end) for place, (first, end) in made.items()}

        return await self._admin.run(ask)

    def watch(self, ends: Mapping[TopicPartition, int], waker: asyncio.Event) -> dict[TopicPartition, int]:
        """Set ``waker`` when something comes. Returns where the tail is in each partition: the
        given end, if no stream has read there before."""
        is_new = False
        for place, end in ends.items():
            watched = self._watched.get(place)
            if watched is None:
                watched = self._watched[place] = _Watched(end)
                is_new = True
            watched.wakers.add(waker)
        if is_new:
            self._tell_tail()
        return {place: self._watched[place].position for place in ends}

    def unwatch(self, places: Iterable[TopicPartition], waker: asyncio.Event) -> None:
        """A stream has ended. The tail reads on for a moment, for streams that come back."""
        now_s = time.monotonic()
        for place in places:
            watched = self._watched.get(place)
            if watched is not None:
                watched.wakers.discard(waker)
                watched.unwatched_since_s = now_s
        over = [
            place
            for place, watched in self._watched.items()
            if not watched.wakers and (watched.failure or watched.unwatched_since_s + _UNWATCHED_S < now_s)
        ]
        for place in over:
            del self._watched[place]
        if over:
            self._tell_tail()

    async def chunk(self, place: TopicPartition, offset: int) -> EventChunk | None:
        """The records from an offset on; None where there are none yet.

        Raises `ClientError` where the partition is gone, or the cluster."""
        watched = self._watched[place]
        if watched.failure is not None:
            raise watched.failure
        kept = self._chunks.get((place, offset))
        if kept is not None:
            self._chunks.move_to_end((place, offset))
            return kept
        if offset >= watched.position:
            return None
        if watched.last is not None and watched.last[0] <= offset:  # in the middle of it
            last = watched.last[1]
            rest = EventChunk([each for each in last.records if each.offset >= offset], last.stop)
            self._keep(place, offset, rest)
            return rest
        fetching = self._fetches.get((place, offset))
        if fetching is None:
            fetching = self._fetches[place, offset] = self._loop.create_task(
                self._catch_up(place, offset, watched.position)
            )
            fetching.add_done_callback(lambda done: self._fetched((place, offset), done))
        return await asyncio.shield(fetching)

    def _fetched(self, key: tuple[TopicPartition, int], done: "asyncio.Future[EventChunk]") -> None:
        self._fetches.pop(key, None)
        if not done.cancelled() and done.exception() is None:
            self._keep(*key, done.result())

    def _keep(self, place: TopicPartition, start: int, chunk: EventChunk) -> None:
        chunk.size_bytes = sum(
            # once as they are, and once as text
            3 * (len(each.key or b"") + len(each.value or b"")) + _RECORD_BYTES
            for each in chunk.records
        )
        before = self._chunks.pop((place, start), None)
        self._kept_bytes += chunk.size_bytes - (before.size_bytes if before else 0)
        self._chunks[place, start] = chunk
        while self._kept_bytes > _MOST_KEPT_BYTES and len(self._chunks) > 1:
            self._kept_bytes -= self._chunks.popitem(last=False)[1].size_bytes

    # Behind the tail

    async def _catch_up(self, place: TopicPartition, offset: int, position: int) -> EventChunk:
        async with self._turns:
            return await asyncio.to_thread(self._fetch, place, offset, position)

    def _fetch(self, place: TopicPartition, offset: int, position: int) -> EventChunk:
        """What lies between the offset and the tail's position, or its first part."""
        consumer = self._free.pop() if self._free else self._consumer()
        try:
            consumer.assign({place: offset})
            end = time.monotonic() + _CATCH_UP_S
            records: list[Record[bytes, bytes]] = []
            at: int | None = None
            while not records and time.monotonic() < end:
                records = consumer.consume(_CHUNK_RECORDS, _TAIL_S)
                at = consumer.position([place])[place]
                if at is not None and at >= position:
                    break
        except BaseException:
            consumer.close(0.1)
            raise
        consumer.assign({})
        self._free.append(consumer)
        if records:
            at = max(at or 0, records[-1].offset + 1)
        elif at is None:
            raise RestError(RestCode.KAFKA_RETRIABLE, f"{place} cannot be read from offset {offset} on at present")
        return EventChunk([each for each in records if each.offset < position], min(max(at or 0, offset), position))

    def _consumer(self) -> Consumer[bytes, bytes]:
        return Consumer(self._properties, deserializer=BYTES, key_deserializer=BYTES)

    # The tail

    def _tell_tail(self) -> None:
        with self._tail_lock:
            self._tail_wanted = {place: watched.position for place, watched in self._watched.items()}
        self._tail_changed.set()
        if self._tail is None:
            self._tail = threading.Thread(target=self._read_tail, name="barnabas-rest-events", daemon=True)
            self._tail.start()

    def _read_tail(self) -> None:
        """In a thread of its own: read, and hand chunks to the loop."""
        consumer = self._consumer()
        positions: dict[TopicPartition, int] = {}
        while not self._has_ended:
            if not positions:
                self._tail_changed.wait(_PAUSE_S)
            try:
                if self._tail_changed.is_set():
                    self._tail_changed.clear()
                    with self._tail_lock:
                        wanted = self._tail_wanted
                    positions = {place: positions.get(place, start) for place, start in wanted.items()}
                    consumer.assign(positions)
                if positions:
                    self._take(consumer, positions)
            except UnknownTopicError as error:
                self._drop_unknown(consumer, positions, error)
            except ClientError as error:
                logger.warning("Event streams wait for the cluster: %s", error)
                time.sleep(_PAUSE_S)
        consumer.close(_PAUSE_S)

    def _take(self, consumer: Consumer[bytes, bytes], positions: dict[TopicPartition, int]) -> None:
        by_place: dict[TopicPartition, list[Record[bytes, bytes]]] = {}
        for record in consumer.consume(_CHUNK_RECORDS, _TAIL_S):
            by_place.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        for place, at in consumer.position(positions).items():
            if at is not None and at > positions[place]:
                chunk = EventChunk(by_place.get(place, []), at)
                self._loop.call_soon_threadsafe(self._came, place, positions[place], chunk)
                positions[place] = at

    def _drop_unknown(
        self, consumer: Consumer[bytes, bytes], positions: dict[TopicPartition, int], error: ClientError
    ) -> None:
        """A topic is gone: its streams end, those of others go on."""
        try:
            there = consumer.topics()
        except ClientError:
            time.sleep(_PAUSE_S)
            return
        gone = [place for place in positions if place.partition >= there.get(place.topic, 0)]
        for place in gone:
            del positions[place]
            self._loop.call_soon_threadsafe(self._failed, place, error)
        consumer.assign(positions)

    # From the tail, in the loop

    def _came(self, place: TopicPartition, start: int, chunk: EventChunk) -> None:
        watched = self._watched.get(place)
        if watched is None or watched.position != start:
            return  # no stream reads it any more
        watched.position, watched.last = chunk.stop, (start, chunk)
        self._keep(place, start, chunk)
        for waker in watched.wakers:
            waker.set()

    def _failed(self, place: TopicPartition, error: ClientError) -> None:
        watched = self._watched.get(place)
        if watched is not None:
            watched.failure = error
            for waker in watched.wakers:
                waker.set()

    def wakers(self) -> set[asyncio.Event]:
        """What wakes the streams."""
        return {waker for watched in self._watched.values() for waker in watched.wakers}

    async def close(self) -> None:
        """End the threads; streams have ended before."""
        self._has_ended = True
        self._tail_changed.set()
        if self._tail is not None:
            await asyncio.to_thread(self._tail.join)
        for consumer in self._free:
            await asyncio.to_thread(consumer.close, 0.5)
