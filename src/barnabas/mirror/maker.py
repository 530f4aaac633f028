"""`MirrorMaker`: copies topics from one cluster to another until it is stopped.

Each stream is a thread with a consumer of the source, all in one group, and a producer to the
target. The promise is at least once: a stream flushes its producer before it commits its consumer's
offsets, at intervals, before partitions go to another member, and when it stops. Keys, values,
headers and timestamps are kept; the target's partitions are chosen again, because it may have more
or fewer of them, so records with equal keys stay together.
"""

import logging
import threading
import time
from dataclasses import replace
from functools import partial

from confluent_kafka import TopicPartition as ClientPartition

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import BufferFullError, ClientError, UnknownTopicError
from barnabas.client.producer.producer import Producer
from barnabas.client.properties.config_providers import resolved
from barnabas.client.records import Delivery, Record
from barnabas.mirror.figures import MirrorFigures
from barnabas.mirror.link import MirrorLink
from barnabas.mirror.replication_policy import HEARTBEATS
from barnabas.mirror.settings import (
    MirrorSettings,
    bootstrap_servers,
    consumer_properties,
    ignored_properties,
    producer_properties,
)
from barnabas.net.metrics_thread import MetricsThread

__all__ = ["MirrorMaker"]

logger = logging.getLogger("barnabas.mirror")

_TURN_S = 0.2
_NO_TOPICS_S = 1.0
_FLUSH_TURN_S = 1.0
_STOP_FLUSH_S = 10.0
_FIRST_LIST_S = 10.0
_LIST_S = 5.0
_LOOK_S = 1.0


class MirrorMaker:
    """Runs a mirror's streams.

    ``copied`` counts the records that the target acknowledged, ``dropped`` those that it did not
    (``abort.on.send.failure=false``).
    """

    def __init__(self, settings: MirrorSettings) -> None:
        settings = replace(settings, consumer=resolved(settings.consumer), producer=resolved(settings.producer))
        self._settings = settings
        self._stop = threading.Event()
        self._streams_ended = threading.Event()
        self._link_thread: threading.Thread | None = None
        self._errors: list[Exception] = []
        self._figures = _figures(settings)
        self._link = MirrorLink(settings, settings.link, self._figures.failed) if settings.link else None
        self._streams = [
            _Stream(settings, number, self._stop, self._figures, self._link) for number in range(settings.streams)
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(stream,), name=f"mirror-{stream.number}", daemon=True)
            for stream in self._streams
        ]

        self._figures.streams = lambda: sum(thread.is_alive() for thread in self._threads)
        self._page: MetricsThread | None = None

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics page; None without one."""
        return None if self._page is None else self._page.port

    @property
    def copied(self) -> int:
        return sum(stream.copied for stream in self._streams)

    @property
    def dropped(self) -> int:
        return sum(stream.dropped for stream in self._streams)

    @property
    def is_running(self) -> bool:
        """Whether all streams run."""
        return all(thread.is_alive() for thread in self._threads)

    def start(self) -> None:
        """Start the streams.

        Raises `BarnabasError` where the address of the metrics page cannot be opened."""
        for warning in ignored_properties(self._settings):
            logger.warning("%s", warning)
        if self._settings.metrics_http_address is not None:
            self._page = MetricsThread(self._figures.lines, *self._settings.metrics_http_address)
        if self._link is not None:
            self._link.start()
            self._link_thread = threading.Thread(
                target=self._link.run, args=(self._streams_ended,), name="mirror-link", daemon=True
            )
            self._link_thread.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask the streams to flush, commit and end; `wait` returns when they have."""
        self._stop.set()

    def wait(self) -> None:
        """Return when all streams have ended.

        Raises what ended one of them, if it was not `stop`."""
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_TURN_S)  # in turns, so that Ctrl-C takes effect
        self._streams_ended.set()
        if self._link_thread is not None:
            self._link_thread.join(_STOP_FLUSH_S)  # its last checkpoints
        if self._page is not None:
            self._page.close()
        if self._errors:
            raise self._errors[0]

    def _run(self, stream: "_Stream") -> None:
        try:
            stream.run()
        except BarnabasError as error:
            logger.error("Stream %d ended: %s", stream.number, error)
            self._errors.append(error)
        except Exception as error:
            logger.exception("Stream %d ended", stream.number)
            self._errors.append(error)
        finally:
            # The end of one stream ends all: a partial mirror would be noticed too late.
            self._stop.set()


class _Stream:
    """One consumer and one producer, in one thread."""

    def __init__(
        self,
        settings: MirrorSettings,
        number: int,
        stop: threading.Event,
        figures: MirrorFigures,
        link: MirrorLink | None = None,
    ) -> None:
        self._figures = figures
        self._link = link
        self.number = number
        self.copied = 0
        self.dropped = 0
        self._settings = settings
        self._stop = stop
        properties = consumer_properties(settings.consumer, number)
        if settings.metrics_http_address is not None:
            properties["enable.partition.eof"] = "true"  # else markers of transactions at an end look like lag
        self._consumer = Consumer(properties, deserializer=BYTES, key_deserializer=BYTES)
        self._producer = Producer(producer_properties(settings.producer), serializer=BYTES, key_serializer=BYTES)
        self._topics: frozenset[str] = frozenset()
        self._has_listed = self._has_found_none = False
        self._failure: ClientError | None = None
        self._uncommitted = 0
        self._next_commit = self._next_refresh = self._next_look = 0.0
        self._looked_at: set[TopicPartition] = set()

    def run(self) -> None:
        """Copy until stopped or until a record cannot be delivered."""
        try:
            self._next_commit = time.monotonic() + self._settings.commit_interval_ms / 1000
            while not self._stop.is_set():
                self._turn()
            self._flush_and_commit()
        finally:
            self._consumer.forget()
            self._consumer.close()
            self._producer.purge()

    def _turn(self) -> None:
        now = time.monotonic()
        if now >= self._next_refresh:
            self._refresh_topics()
            self._next_refresh = now + self._settings.topic_refresh_ms / 1000
        if not self._topics:
            self._stop.wait(_NO_TOPICS_S)
            self._next_refresh = 0.0
            return
        if self._wait():
            while self._consumer.has_record and not self._stop.is_set():
                record = self._consumer.poll()
                if record is not None:
                    self._copy(record)
        else:
            self._producer.poll(0)
        self._raise_failure()
        if self._settings.metrics_http_address is not None and now >= self._next_look:
            self._look_at_ends()
            self._next_look = now + _LOOK_S
        if time.monotonic() >= self._next_commit:
            self._flush_and_commit()
            self._next_commit = time.monotonic() + self._settings.commit_interval_ms / 1000

    def _look_at_ends(self) -> None:
        """Report how much is not read, by what the last fetches said of the ends of partitions."""
        assigned = self._consumer.assignment()
        found: dict[TopicPartition, int | None] = dict.fromkeys(self._looked_at.difference(assigned))
        for partition, position in self._consumer.position(assigned).items():
            _, end = self._consumer.librdkafka.get_watermark_offsets(ClientPartition(*partition), cached=True)
            if partition.topic != HEARTBEATS and end >= 0 and position is not None:
                found[partition] = max(0, end - position)
        self._looked_at = set(assigned)
        self._figures.unread(found)

    def _wait(self) -> bool:
        try:
            return self._consumer.wait(_TURN_S)
        except UnknownTopicError as error:  # deleted meanwhile: look again which there are
            logger.warning("%s", error)
            self._figures.failed("topics")
            self._next_refresh = 0.0
            return False

    def _refresh_topics(self) -> None:
        known = self._list_topics()
        if known is None:
            return
        wanted = self._settings.topics.choose(known)
        if not wanted and not self._has_found_none:
            logger.warning(
                "Stream %d: no topic that it has the right to describe matches %s yet",
                self.number,
                self._settings.topics,
            )
        self._has_found_none = not wanted
        if self._link is not None:
            wanted = frozenset(filter(self._link.policy.may_copy, wanted | ({HEARTBEATS} & known.keys())))
            try:
                self._link.prepare({topic: known[topic] for topic in wanted})
            except ClientError as error:
                # The target is away: what is copied already goes on, new topics wait.
                logger.warning("The target's topics cannot be made yet: %s", error)
                self._figures.failed("topics")
                return
        if wanted == self._topics:
            return
        logger.info("Stream %d mirrors %s", self.number, ", ".join(sorted(wanted)) or "nothing yet")
        if not wanted:
            self._flush_and_commit()  # giving up a subscription does not wait for that
        self._topics = wanted
        self._consumer.subscribe(sorted(wanted), before_revoke=self._flush_and_commit)

    def _list_topics(self) -> dict[str, int] | None:
        """The source's topics; None while it is away.

        Raises `ClientError` when it has not answered even once."""
        try:
            known = self._consumer.topics(_LIST_S if self._has_listed else _FIRST_LIST_S)
        except ClientError as error:
            if not self._has_listed:
                raise
            logger.warning("The source's topics cannot be listed now: %s", error)
            self._figures.failed("topics")
            return None
        self._has_listed = True
        return known

    def _copy(self, record: Record[bytes, bytes]) -> None:
        self._uncommitted += 1
        source = TopicPartition(record.topic, record.partition)
        size_bytes = len(record.key or b"") + len(record.value or b"")
        on_delivery = partial(self._delivered, source, record.offset, size_bytes, record.timestamp_ms)
        topic, partition, headers = record.topic, None, record.headers
        if topic != HEARTBEATS:
            self._figures.read(source, record.timestamp_ms)
        if self._link is not None:
            policy = self._link.policy
            if policy.came_from_target(headers):
                self._figures.left_out(source)
                return
            topic, partition, headers = policy.remote(topic), record.partition, policy.headers(headers)
        while True:
            try:
                self._producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=partition,
                    # librdkafka replaces a timestamp of 0 by the current time, and has none before.
                    timestamp_ms=None if record.timestamp_ms is None else max(1, record.timestamp_ms),
                    headers=headers,
                    on_delivery=on_delivery,
                )
                return
            except BufferFullError:  # the target is slow, or away: the source waits
                if self._stop.is_set():
                    raise BarnabasError("stopped while the target took no records; they will be copied again") from None

    def _delivered(
        self,
        source: TopicPartition,
        offset: int,
        size_bytes: int,
        timestamp_ms: int | None,
        delivery: Delivery | None,
        error: ClientError | None,
    ) -> None:
        """The fate of a record of the source is known.

        Heartbeats that are copied are not counted."""
        if error is None:
            if source.topic == HEARTBEATS and self._link is not None:
                return
            if self._link is not None and delivery is not None and delivery.offset >= 0:
                self._link.copied(source.topic, delivery.partition, offset, delivery.offset)
            self.copied += 1
            self._figures.copied(source, size_bytes, timestamp_ms)
            return
        self.dropped += 1
        self._figures.dropped(source)
        if self._settings.abort_on_send_failure:
            self._failure = self._failure or error
        else:
            logger.error("Not mirrored: %s", error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise BarnabasError(f"{self._failure}; stopped, so that nothing is skipped (abort.on.send.failure)")

    def _flush_and_commit(self) -> None:
        """Commit only what the target has; nothing is committed after a failure that aborts."""
        if not self._uncommitted:
            return
        self._flush()
        self._raise_failure()
        if self._link is not None:
            self._link.mark()
        try:
            self._consumer.commit()
            self._uncommitted = 0
        except ClientError as error:
            # The group has moved on: the new owner starts at the last commit and
            # copies some records again.
            logger.warning("Stream %d could not commit: %s", self.number, error)
            self._figures.failed("commit")

    def _flush(self) -> None:
        patience_s = _STOP_FLUSH_S
        while True:
            try:
                self._producer.flush(_FLUSH_TURN_S)
                return
            except TimeoutError:
                patience_s -= _FLUSH_TURN_S if self._stop.is_set() else 0
            if patience_s <= 0:
                raise BarnabasError(
                    f"stopped, but the target has not acknowledged {len(self._producer)} records; they will be copied again"
                )


def _figures(settings: MirrorSettings) -> MirrorFigures:
    if settings.link is not None:
        return MirrorFigures(settings.link.policy.source, settings.link.policy.target)
    return MirrorFigures(bootstrap_servers(settings.consumer), bootstrap_servers(settings.producer))
