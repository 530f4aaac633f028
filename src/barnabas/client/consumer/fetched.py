"""Records that a consumer has fetched: those that wait, those held back while their partition is
paused, and how far each partition was handed out. Pure.

In Kafka: `FetchBuffer`, `FetchCollector`, `SubscriptionState`.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from barnabas.base.record_times import known_time
from barnabas.client.codecs import Decoder, RecordDecoder, decoded
from barnabas.client.errors import DamagedBatchError, DeserializationError
from barnabas.client.records import Record

__all__ = ["FetchedRecords", "Place"]

Place = tuple[str, int]
"""A topic and a partition's number."""


class FetchedRecords:
    """librdkafka's messages between their arrival and their commit."""

    def __init__(self, decode_key: Decoder | None, decode: Decoder | None) -> None:
        self._decode_key, self._decode = decode_key, decode
        self._asks_places = isinstance(decode_key, RecordDecoder) or isinstance(decode, RecordDecoder)
        self._held: list[Any] = []
        self.waiting: deque[Any] = deque()
        self.paused: set[Place] = set()
        self.handed_out: dict[Place, Any] = {}
        """Each partition's last message that was handed out, until its offset is stored."""
        self._positions: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._damage: DamagedBatchError | None = None
        """To be raised when all that waits is handed out."""

    def add_damage(self, message: Any) -> None:
        """A batch came that cannot be read, in place of its records. It comes again and again."""
        if self._damage is None:
            error = message.error()
            self._damage = DamagedBatchError(
                error.str(), *_place(message), message.offset(), name=error.name(), code=error.code()
            )

    def check_damage(self) -> None:
        """Raise `DamagedBatchError` if a partition has ended at such a batch.

        The records before it have been handed out."""
        damage, self._damage = self._damage, None
        if damage is not None:
            raise damage

    def add(self, message: Any) -> None:
        """A message arrived."""
        (self._held if _place(message) in self.paused else self.waiting).append(message)

    def add_end(self, place: Place, offset: int) -> None:
        """All up to ``offset`` was fetched: behind the last record, markers of transactions and
        gaps of compaction may lie."""
        self._ends[place] = offset

    def pause(self, places: set[Place]) -> None:
        """Hold back what waits of these partitions."""
        self.paused |= places
        self._held += [message for message in self.waiting if _place(message) in places]
        self.waiting = deque(message for message in self.waiting if _place(message) not in places)

    def resume(self, places: set[Place]) -> None:
        """Let what was held back wait again, before what came later."""
        self.paused -= places
        self.waiting.extendleft(reversed([message for message in self._held if _place(message) in places]))
        self._held = [message for message in self._held if _place(message) not in places]

    def drop(self, places: set[Place]) -> None:
        """Drop what was fetched of these partitions."""
        self.waiting = deque(message for message in self.waiting if _place(message) not in places)
        self._held = [message for message in self._held if _place(message) not in places]
        self.paused -= places
        self._forget_damage(places)
        for place in places:
            self.handed_out.pop(place, None)
            self._positions.pop(place, None)
            self._ends.pop(place, None)

    def clear(self) -> None:
        """Drop everything that was fetched; what was handed out stays until it is stored."""
        self.waiting.clear()
        self._held.clear()
        self.paused.clear()
        self._positions.clear()
        self._ends.clear()
        self._damage = None

    def _forget_damage(self, places: set[Place]) -> None:
        if self._damage is not None and (self._damage.topic, self._damage.partition) in places:
            self._damage = None

    def positions(self, places: Iterable[Place]) -> dict[Place, int | None]:
        """The offset of each partition's next record to be handed out; None before the first."""
        fetched = {_place(message): message.offset() for message in reversed((*self._held, *self.waiting))}
        found = {place: self._positions.get(place, fetched.get(place)) for place in places}
        for place in found.keys() - fetched.keys():
            end, at = self._ends.get(place), found[place]
            if end is not None and (at is None or at < end):
                found[place] = end
        return found

    def hand_out_next(self) -> Record[Any, Any]:
        """The record of the first message that waits; raises `DeserializationError`."""
        message = self.waiting.popleft()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        self.handed_out[topic, partition] = message
        self._positions[topic, partition] = offset + 1
        kind, timestamp_ms = message.timestamp()
        headers = message.headers() or ()
        rest = (known_time(timestamp_ms) if kind else None, kind - 1, headers, message.leader_epoch())
        key, value = message.key(), message.value()
        try:
            if self._asks_places:
                read_key = decoded(self._decode_key, key, topic, headers)
            else:
                read_key = key if key is None or self._decode_key is None else self._decode_key(key)
        except Exception as error:  # the user's code may raise anything
            raise _unreadable("key", Record(topic, partition, offset, key, value, *rest), error) from error
        try:
            if self._asks_places:
                read = decoded(self._decode, value, topic, headers)
            else:
                read = value if value is None or self._decode is None else self._decode(value)
        except Exception as error:
            raise _unreadable("value", Record(topic, partition, offset, key, value, *rest), error) from error
        return Record(topic, partition, offset, read_key, read, *rest)


def _place(message: Any) -> Place:
    return message.topic(), message.partition()


def _unreadable(what: str, raw: Record[bytes, bytes], error: Exception) -> DeserializationError:
    remedy = "read it with deserializer=BYTES" if isinstance(error, UnicodeDecodeError) else ""
    return DeserializationError(
        f"the {what} of {raw.topic}-{raw.partition} offset {raw.offset} cannot be read: {error}", raw, remedy=remedy
    )
