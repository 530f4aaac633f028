"""`Consumer`: reads records through librdkafka, alone or as a member of a group.

Records are fetched many at a time and handed out one by one. A record counts as processed when the
next one is asked for, as with Java's poll: only then may automatic commits include it, so that a
crash in the middle repeats records and loses none.

In Kafka: `KafkaConsumer`.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self

import confluent_kafka

from barnabas.base.ids import TopicPartition
from barnabas.client.arguments import (
    check_assigned,
    check_offsets,
    check_partitions,
    check_start,
    check_subscription,
    check_times,
)
from barnabas.client.codecs import Deserializer, decoder
from barnabas.client.consumer.fetched import FetchedRecords, Place
from barnabas.client.consumer.rebalances import OnPartitions, Rebalances
from barnabas.client.consumer.rights import ConsumerRights
from barnabas.client.errors import (
    ClientError,
    ClosedError,
    ConfigurationError,
    TimedOutError,
    from_librdkafka,
)
from barnabas.client.librdkafka.clients import new_client
from barnabas.client.librdkafka.interrupts import interruptible
from barnabas.client.librdkafka.logs import ErrorLog, librdkafka_logger, logger
from barnabas.client.librdkafka.statistics import ClientStatistics, MetricName
from barnabas.client.librdkafka.unknown_topics import UNKNOWN_TOPIC_NAMES, UnknownTopics
from barnabas.client.network.bootstrap import check_hosts
from barnabas.client.properties.names import check_properties, property_hint
from barnabas.client.properties.translation import ConsumerPlan, plan_consumer
from barnabas.client.records import Record
from barnabas.client.type_variables import K, V

__all__ = ["CLOSE_CONSUMER_TIMEOUT_S", "Consumer", "OnCommit"]


OnCommit = Callable[[dict[TopicPartition, int], ClientError | None], None]
"""Receives the offsets of a commit in the background and, where it failed, why."""

CLOSE_CONSUMER_TIMEOUT_S = 10.0
"""How long `Consumer.close` waits for the group's coordinator unless it is given another limit."""

_BATCH_RECORDS = 500
_NO_START = confluent_kafka.OFFSET_INVALID
_STARTS = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), confluent_kafka.OFFSET_BEGINNING),
    **dict.fromkeys(("", "largest", "latest", "end"), confluent_kafka.OFFSET_END),
}
"""Where partitions without a committed offset begin, by ``auto.offset.reset``."""
_WAKE_S = 0.1  # so that Ctrl-C and close take effect soon
# What passes without the caller's help: librdkafka tries on, the group is joined again.
_PASSING = frozenset(
    ("_PARTITION_EOF", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_MAX_POLL_EXCEEDED")
)

# A batch that cannot be opened, or whose records cannot be read.
_DAMAGE = frozenset(("_BAD_COMPRESSION", "_BAD_MSG"))


class Consumer(Generic[K, V]):
    """Reads records. Not for several threads at once.

    ``properties`` are sorted by `barnabas.client.properties.translation.plan_consumer`;
    ``deserializer`` and ``key_deserializer`` are ``deserializer.class`` and
    ``key.deserializer.class`` as objects; keys and values are ``str`` without them. ``on_commit``
    is called after each commit in the background. ``close_timeout_s`` limits `close` and the end of
    a ``with`` block. Without ``group.id`` it can `assign` but not `subscribe`.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        deserializer: Deserializer[V] | None = None,
        key_deserializer: Deserializer[K] | None = None,
        on_commit: OnCommit | None = None,
        close_timeout_s: float = CLOSE_CONSUMER_TIMEOUT_S,
    ) -> None:
        check_properties(properties, "Consumer")
        plan = plan_consumer(properties)
        if plan.zookeeper_connect is not None:
            from barnabas.client.cluster.discovery import brokers_in_zookeeper

            plan.librdkafka["bootstrap.servers"] = brokers_in_zookeeper(
                plan.zookeeper_connect, plan.zookeeper_timeout_ms
            )
        for warning in plan.warnings:
            logger.warning(warning)
        self._fetched = FetchedRecords(
            decoder(key_deserializer or plan.key_deserializer, "key.deserializer.class"),
            decoder(deserializer or plan.deserializer),
        )
        self.iteration_timeout_s = None if plan.iteration_timeout_ms is None else plan.iteration_timeout_ms / 1000
        self._rebalances = Rebalances(incremental=_is_incremental(plan.librdkafka))
        self._errors = ErrorLog()
        self._unknown = UnknownTopics()
        self._close_timeout_s = close_timeout_s
        self.closed = False
        self._has_group = bool(plan.librdkafka.get("group.id"))
        # Without a group there are no committed offsets, and no coordinator to ask for them.
        reset = str(plan.librdkafka.get("auto.offset.reset", ""))
        self._start = _NO_START if self._has_group else _STARTS.get(reset, _NO_START)
        self._rights = ConsumerRights(plan.librdkafka)
        self._statistics = ClientStatistics("consumer", plan.librdkafka)
        self._underneath: Any = _librdkafka_consumer(plan, self._errors, on_commit)
        self.metrics_port = self._statistics.serve(plan.metrics_address)
        """The port of ``metrics.http.address``; None without one."""

    @property
    def librdkafka(self) -> Any:
        """The consumer underneath, for what this class does not wrap; while `close` runs,
        callbacks may use it, too."""
        if self._underneath is None:
            raise ClosedError("consumer")
        return self._underneath

    # What to read

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        before_revoke: Callable[[], None] | None = None,
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
    ) -> None:
        """Share these topics with the group; a name that starts with ``^`` is a regular expression.

        Without any topic this is `unsubscribe`, as in Kafka's client. Raises `ClientError` for
        names that cannot be topics.

        ``on_assign`` and ``on_revoke`` receive the partitions that come and go. ``before_revoke``
        is called before partitions go to another member, all that was handed out of them being
        processed by then: the last moment to `commit`. All three are called from within `poll`,
        `consume`, iteration and `close`.
        """
        check_subscription(topics)
        if not self._has_group:
            raise ConfigurationError(
                "group.id is missing: a consumer without a group can assign partitions, not subscribe"
            )
        if not topics:
            self.unsubscribe()
            return
        self._store()
        self._fetched.clear()
        self._unknown.begin(topics)
        hooks = self._rebalances
        # With a listener a rebalance waits until we ask for more, that is until what was
        # handed out is processed.
        hooks.before_revoke, hooks.on_assign, hooks.on_revoke = before_revoke, on_assign, on_revoke
        try:
            self.librdkafka.subscribe(
                list(topics), on_assign=hooks.assigned, on_revoke=hooks.revoking, on_lost=hooks.lost
            )
        except confluent_kafka.KafkaException as error:
            raise from_librdkafka(error.args[0], f"cannot subscribe to {', '.join(map(repr, topics))}") from error

    def unsubscribe(self) -> None:
        """Leave the group, or give up what is assigned."""
        self._store()
        self._fetched.clear()
        self._unknown.begin()
        self.librdkafka.unsubscribe()
        self.librdkafka.unassign()

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, from the given offsets, or from where
        ``auto.offset.reset`` says."""
        given = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, self._start)
        check_partitions(given)
        for (topic, number), offset in given.items():
            check_start(topic, number, offset)
        self._unknown.begin(assigned=given)
        self._fetched.clear()
        self._fetched.handed_out.clear()
        self.librdkafka.assign([confluent_kafka.TopicPartition(t, p, offset) for (t, p), offset in given.items()])

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads now."""
        return [TopicPartition(item.topic, item.partition) for item in self.librdkafka.assignment()]

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`; the consumer stays in its group."""
        given: set[Place] = {(topic, partition) for topic, partition in partitions}
        check_assigned(given, self._assigned_or_coming())
        self.librdkafka.pause(_plain(given))
        self._fetched.pause(given)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with paused partitions."""
        given: set[Place] = {(topic, partition) for topic, partition in partitions}
        check_assigned(given, self._assigned_or_coming())
        self._fetched.resume(given)
        self.librdkafka.resume(_plain(given))

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return [TopicPartition(topic, partition) for topic, partition in sorted(self._fetched.paused)]

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at ``offset`` in a partition that is assigned; -2 is its first record, -1 its end.

        In ``on_assign`` it says from where a partition that comes is read, such as an offset
        that is kept in a database.
        """
        check_start(topic, partition, offset)
        coming = self._rebalances.coming
        check_assigned([(topic, partition)], self._assigned_or_coming())
        if (topic, partition) in coming:
            coming[topic, partition] = offset
            return
        self._fetched.drop({(topic, partition)})
        try:
            self.librdkafka.seek(confluent_kafka.TopicPartition(topic, partition, offset))
        except confluent_kafka.KafkaException as error:
            raise from_librdkafka(error.args[0], f"cannot seek in {topic}-{partition}") from error

    def _assigned_or_coming(self) -> set[Place]:
        """What is assigned, or will be when the callback that runs has ended."""
        return {*((item.topic, item.partition) for item in self.assignment()), *self._rebalances.coming}

    # Records

    def poll(self, timeout_s: float = 0.0) -> Record[K, V] | None:
        """The next record, or None when there is none within ``timeout_s``.

        Raises `DeserializationError`, `UnknownTopicError`, `AuthorizationError`,
        `AuthenticationError` and others.
        """
        return self._fetched.hand_out_next() if self.wait(timeout_s) else None

    def consume(self, max_records: int = _BATCH_RECORDS, timeout_s: float = 1.0) -> list[Record[K, V]]:
        """Up to ``max_records``: what comes until the first of them has waited ``timeout_s``."""
        records: list[Record[K, V]] = []
        while len(records) < max_records and (record := self.poll(0.0 if records else timeout_s)) is not None:
            records.append(record)
        return records

    def __iter__(self) -> Iterator[Record[K, V]]:
        """Records for ever, or until none came for ``consumer.timeout.ms``."""
        while not self.closed and self.wait(self.iteration_timeout_s):
            yield self._fetched.hand_out_next()

    def wait(self, timeout_s: float | None) -> bool:
        """Whether there is a record to hand out, at once or within ``timeout_s``
        (None: wait for ever)."""
        if self._fetched.waiting:
            return True
        _check_open(closed=self.closed)
        self._store()  # everything handed out is processed by now
        self._fetched.check_damage()
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.closed:
            wait_s = _WAKE_S if end is None else max(0.0, min(_WAKE_S, end - time.monotonic()))
            for message in self._consume(wait_s):
                error = message.error()
                if error is None:
                    self._fetched.add(message)
                    continue
                if error.name() == "_PARTITION_EOF":
                    self._fetched.add_end((message.topic(), message.partition()), message.offset())
                    continue
                if error.name() in _DAMAGE:
                    self._fetched.add_damage(message)
                    continue
                self._errors(error)
                if error.name() in UNKNOWN_TOPIC_NAMES:
                    self._unknown.add(message.topic() or "")
                elif not (error.name() in _PASSING or error.retriable() or self._rights.is_of_no_group(error)):
                    raise self._rights.reading_error(error, message.topic() or "")
            if self._fetched.waiting:
                return True
            self._fetched.check_damage()
            self._unknown.check(self.librdkafka)
            if self._errors.refusal is not None:
                raise self._errors.refusal
            if end is not None and time.monotonic() >= end:
                return False
        return False

    def _consume(self, wait_s: float) -> list[Any]:
        """One message as soon as there is one, and those that wait behind it."""
        revoked = self._rebalances.revoked
        first = interruptible(self.librdkafka.poll, wait_s)
        if revoked:
            self._fetched.drop(revoked)
        revoked.clear()
        if first is None:
            return []
        batch = [first, *interruptible(self.librdkafka.consume, _BATCH_RECORDS, 0)]
        if revoked:
            # The second call served a rebalance: records of these partitions that are in hand
            # belong to their new owner.
            self._fetched.drop(revoked)
            batch = [message for message in batch if (message.topic(), message.partition()) not in revoked]
        return batch

    # Offsets

    def _store(self) -> None:
        """Let automatic commits include what was handed out."""
        if self._has_group:
            for message in self._fetched.handed_out.values():
                try:
                    self.librdkafka.store_offsets(message)
                except confluent_kafka.KafkaException as error:
                    # The partition went to another member meanwhile.
                    if error.args[0].name() != "_STATE":
                        raise from_librdkafka(error.args[0], "cannot store offsets") from error
        self._fetched.handed_out.clear()

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, wait: bool = True) -> None:
        """Commit everything that was handed out, or these ``offsets``: the next ones to read.

        Waits for the coordinator and raises `CommitError` and others; without ``wait`` the
        commit runs in the background, and its end is reported to ``on_commit``. A consumer with
        a group.id that is not a member first opens a connection to ask for the group's
        coordinator, which takes up to 5 s.
        """
        if offsets is None:
            self._store()
        else:
            check_offsets(offsets)
        if wait:
            self._rights.check_group(self.librdkafka)
        wanted = {} if offsets is None else {"offsets": _plain(offsets.items())}
        try:
            self.librdkafka.commit(asynchronous=not wait, **wanted)
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() != "_NO_OFFSET":  # nothing new since the last commit
                raise from_librdkafka(error.args[0], "the commit failed") from error

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float = 30.0
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none."""
        self._rights.check_group(self.librdkafka)
        try:
            found = self.librdkafka.committed(_plain(partitions), timeout=timeout_s)
        except confluent_kafka.KafkaException as error:
            raise from_librdkafka(error.args[0], "cannot read committed offsets") from error
        return _offsets(found)

    def position(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The offset of each partition's next record to be handed out; None before the first.

        With ``enable.partition.eof`` it passes markers of transactions that lie before the end.
        """
        found = self._fetched.positions((topic, number) for topic, number in partitions)
        return {TopicPartition(*place): offset for place, offset in found.items()}

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float = 30.0
    ) -> dict[TopicPartition, int | None]:
        """For each partition the offset of the first record that is not older than its time.

        None without one."""
        check_times(times_ms)
        try:
            found = self.librdkafka.offsets_for_times(_plain(times_ms.items()), timeout=timeout_s)
        except confluent_kafka.KafkaException as error:
            topics = {topic for topic, _ in times_ms}
            what = "cannot look offsets up by time"
            raise self._rights.lookup_error(error.args[0], what, self.librdkafka, topics) from error
        return _offsets(found)

    def lag(self, timeout_s: float = 30.0) -> dict[TopicPartition, int]:
        """How many records of each assigned partition were not handed out yet."""
        assigned = self.assignment()
        at = self.position(assigned)
        unknown = [partition for partition in assigned if at[partition] is None]
        if unknown and self._has_group:
            at |= self.committed(unknown, timeout_s)
        lags = {}
        for partition in assigned:
            first, end = self.watermarks(*partition, timeout_s)
            here = at[partition]
            lags[partition] = max(0, end - (first if here is None else max(first, here)))
        return lags

    def watermarks(self, topic: str, partition: int, timeout_s: float = 30.0) -> tuple[int, int]:
        """The first offset of a partition and the one that the next record will get."""
        try:
            low, high = self.librdkafka.get_watermark_offsets(
                confluent_kafka.TopicPartition(topic, partition), timeout=timeout_s
            )
        except confluent_kafka.KafkaException as error:
            what = f"cannot read the offsets of {topic}-{partition}"
            raise self._rights.lookup_error(error.args[0], what, self.librdkafka, [topic]) from error
        return low, high

    # The cluster, and the end

    def topics(self, timeout_s: float = 30.0) -> dict[str, int]:
        """The cluster's topics, internal ones included, with their numbers of partitions."""
        try:
            found = self.librdkafka.list_topics(timeout=timeout_s).topics
        except confluent_kafka.KafkaException as error:
            raise from_librdkafka(error.args[0], "cannot list the topics") from error
        return {name: len(found[name].partitions) for name in sorted(found)}

    def group_metadata(self) -> Any:
        """The membership, for `Producer.send_offsets_to_transaction`."""
        return self.librdkafka.consumer_group_metadata()

    def metrics(self) -> dict[MetricName, float]:
        """The consumer's figures by Kafka's names, such as records-lag-max, as of the last report.

        It needs ``statistics.interval.ms``, or ``metrics.http.address``, which shows them to
        Prometheus; a report is taken by `poll`, `consume` and iteration. Raises
        `ConfigurationError` without. In Kafka: KafkaConsumer.metrics().
        """
        return self._statistics.metrics()

    def close(self, timeout_s: float | None = None) -> None:
        """Commit what was handed out, if commits are automatic, and leave the group.

        A second call does nothing. Raises what a callback of `subscribe` raised, and
        `TimedOutError` when the coordinator has not answered within ``timeout_s`` (None:
        ``close_timeout_s``): then the group notices the loss of its member by itself, and what was
        not committed is read again.
        """
        if self.closed:
            return
        self.closed = True
        self._statistics.close()
        limit_s = self._close_timeout_s if timeout_s is None else timeout_s
        problems = self._rebalances.problems = []
        try:
            self._store()
        finally:
            closing = threading.Thread(target=self.librdkafka.close, name="barnabas-consumer-close", daemon=True)
            closing.start()
            closing.join(limit_s)
            self._underneath = None
        if problems:
            raise problems[0]
        if closing.is_alive():
            raise TimedOutError(
                f"the consumer did not leave its group within {limit_s:g} s; records since its last commit will be read "
                f"again{self._errors.because()}"
            )

    def forget(self) -> None:
        """Take back what was handed out since the last wait: it was not processed,
        so it is not committed."""
        self._fetched.handed_out.clear()

    @property
    def has_record(self) -> bool:
        """Whether the next record can be had without waiting."""
        return bool(self._fetched.waiting)

    @property
    def last_problem(self) -> ClientError | None:
        """The last problem with a broker, such as a refused connection."""
        return self._errors.last

    def __enter__(self) -> Self:
        _check_open(closed=self.closed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        self.forget()
        try:
            self.close()
        except ClientError as problem:  # it must not hide the error that is under way
            logger.warning("%s", problem)


def _check_open(*, closed: bool) -> None:
    if closed:
        raise ClosedError("consumer")


def _librdkafka_consumer(plan: ConsumerPlan, errors: ErrorLog, on_commit: OnCommit | None) -> Any:
    def committed(error: Any, partitions: list[Any]) -> None:
        if error is not None and error.name() == "_NO_OFFSET":  # nothing new since the last commit
            return
        problem = None if error is None else from_librdkafka(error, "the commit failed")
        if on_commit is not None:
            on_commit({TopicPartition(item.topic, item.partition): item.offset for item in partitions}, problem)
        elif problem is not None:
            logger.warning("%s", problem)

    check_hosts(str(plan.librdkafka["bootstrap.servers"]))
    settings = {
        "logger": librdkafka_logger,
        "error_cb": errors,
        "on_commit": committed,
        "group.id": "barnabas-without-a-group",  # librdkafka insists; see subscribe
        **plan.librdkafka,
        "enable.auto.offset.store": False,
    }
    if not plan.librdkafka.get("group.id"):
        settings["enable.auto.commit"] = False
    try:
        return new_client(confluent_kafka.Consumer, settings)
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        cause = error.args[0] if error.args else error
        reason = cause.str() if hasattr(cause, "str") else cause
        raise ConfigurationError(
            f"these consumer properties cannot be used: {str(reason).strip()}{property_hint(reason)}"
        ) from error


def _is_incremental(properties: Mapping[str, Any]) -> bool:
    """Whether rebalances of the group only add and remove partitions."""
    strategy = str(properties.get("partition.assignment.strategy", ""))
    return "cooperative" in strategy or str(properties.get("group.protocol", "")).lower() == "consumer"


def _plain(partitions: Iterable[Any]) -> list[Any]:
    """librdkafka's partitions, of pairs of topic and number, or of such pairs with an offset."""
    made = []
    for item in partitions:
        (topic, number), *offset = item if isinstance(item[0], tuple) else (item,)
        made.append(confluent_kafka.TopicPartition(topic, number, *offset))
    return made


def _offsets(found: list[Any]) -> dict[TopicPartition, int | None]:
    return {TopicPartition(item.topic, item.partition): item.offset if item.offset >= 0 else None for item in found}
