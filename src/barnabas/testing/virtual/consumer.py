"""`VirtualConsumer`: the methods of `barnabas.client.AsyncConsumer` in virtual time.

A task for each broker fetches what its partitions have; `VirtualConsumer.poll` hands records out
one by one, and serves what the group decided: callbacks are called inside it. A record counts as
processed when the next one is asked for.
"""

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.channels import ChannelError
from barnabas.client.aio.calls import ConsumerCalls
from barnabas.client.arguments import (
    check_offsets,
    check_partitions,
    check_start,
    check_subscription,
    check_times,
)
from barnabas.client.codecs import Deserializer, decoder
from barnabas.client.consumer.consumer import CLOSE_CONSUMER_TIMEOUT_S, OnCommit
from barnabas.client.consumer.rebalances import OnPartitions
from barnabas.client.errors import (
    ClientError,
    ClosedError,
    ConfigurationError,
)
from barnabas.client.records import Record
from barnabas.client.type_variables import K, V
from barnabas.testing.virtual.commits import Commits
from barnabas.testing.virtual.fetching import Position
from barnabas.testing.virtual.link import ClusterLink
from barnabas.testing.virtual.membership import Membership
from barnabas.testing.virtual.polls import Polls
from barnabas.testing.virtual.properties import consumer_settings
from barnabas.testing.virtual.reading import SubscriptionState, deserialize_waiting
from barnabas.testing.virtual.transactions import GroupMetadata

__all__ = ["VirtualConsumer"]


_WAKE_S = 0.05
_LOOK_UP_S = 60.0
_EARLIEST = -2
_LATEST = -1


class VirtualConsumer(ConsumerCalls[K, V]):
    """Reads records of a simulated cluster, alone or in a group.

    See `barnabas.client.AsyncConsumer`. The callbacks of `subscribe` may be coroutine functions,
    which are awaited: ``before_revoke`` can commit.
    """

    def __init__(
        self,
        link: ClusterLink,
        properties: Mapping[str, Any],
        *,
        deserializer: Deserializer[V] | None = None,
        key_deserializer: Deserializer[K] | None = None,
        on_commit: OnCommit | None = None,
        close_timeout_s: float = CLOSE_CONSUMER_TIMEOUT_S,
    ) -> None:
        self._link = link
        self._channels = link.channels()
        self._settings = consumer_settings(properties)
        plan = self._settings.plan
        self._decode = decoder(deserializer or plan.deserializer)
        self._decode_key = decoder(key_deserializer or plan.key_deserializer, "key.deserializer.class")
        self._iteration_timeout_s = None if plan.iteration_timeout_ms is None else plan.iteration_timeout_ms / 1000
        self._close_timeout_s = close_timeout_s
        self._closed = False
        self._commits = Commits(self._with_group, on_commit)
        self._subscription = SubscriptionState(link, link.channels(), self._settings, self._fetch_committed)
        self._tasks: list[asyncio.Task[None]] = []
        self._polls = Polls(self._settings.max_poll_ms)
        self._membership: Membership | None = None
        self._before_revoke: Callable[[], Any] | None = None
        self._on_assign: OnPartitions | None = None
        self._on_revoke: OnPartitions | None = None

    # What is read

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        before_revoke: Callable[[], Any] | None = None,
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
    ) -> None:
        """Share these topics with the group.

        A name that starts with ``^`` is a regular expression, looked up once."""
        self._check_open()
        check_subscription(topics)
        if not self._settings.group:
            raise ConfigurationError("group.id is missing: subscribe needs a group, assign does not")
        self.unsubscribe()
        self._before_revoke, self._on_assign, self._on_revoke = before_revoke, on_assign, on_revoke
        membership = self._membership = self._make_membership()
        self._begin(self._be_member(membership, list(topics)))
        if self._settings.auto_commit:
            self._begin(self._commits.commit_regularly(self._settings.commit_interval_ms))
        self._begin(*self._subscription.tasks())

    def _make_membership(self) -> Membership:
        return Membership(
            self._link,
            self._settings,
            on_assigned=lambda committed: self._polls.serve(lambda: self._take(committed)),
            on_revoked=lambda is_lost: self._polls.serve(lambda: self._revoke(is_lost=is_lost)),
            is_polled=lambda: self._polls.are_regular,
        )

    async def _be_member(self, membership: Membership, names: list[str]) -> None:
        try:
            for name in names:
                if name.startswith("^"):
                    found = await self._link.topics(60.0)
                    membership.topics |= {topic: n for topic, n in found.items() if re.match(name, topic)}
                else:
                    membership.topics[name] = await self._link.partitions_of(name, 60.0)
        except ClientError as error:
            membership.failure = error
            return
        await membership.run()

    def unsubscribe(self) -> None:
        """Leave the group, or give up what is assigned."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        if self._membership is not None:
            self._begin(self._leave(self._membership))
        self._membership = None
        self._polls.forget_changes()
        self._forget_positions()

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, from these offsets, or where the group committed, or
        by ``auto.offset.reset``."""
        self._check_open()
        self.unsubscribe()
        given = dict(partitions) if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        check_partitions(given)
        for (topic, number), start in given.items():
            check_start(topic, number, 0 if start is None else start)
        for topic_partition, offset in given.items():
            self._subscription.add(TopicPartition(*topic_partition), Position(offset))
        if self._settings.group:
            self._membership = self._make_membership()  # which is not run: for offsets only
            if self._settings.auto_commit:
                self._begin(self._commits.commit_regularly(self._settings.commit_interval_ms))
        self._begin(*self._subscription.tasks())

    def _forget_positions(self) -> None:
        self._subscription.clear()
        self._commits.clear()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads now."""
        self._check_open()
        return sorted(self._subscription.positions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`; the consumer stays in its group."""
        self._check_open()
        for topic_partition in partitions:
            self._subscription.position(topic_partition).is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with paused partitions."""
        self._check_open()
        for topic_partition in partitions:
            self._subscription.position(topic_partition).is_paused = False

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return sorted(
            topic_partition for topic_partition, position in self._subscription.positions.items() if position.is_paused
        )

    def position(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The offset of each partition's next record to be handed out; None before it is known."""
        return {
            topic_partition: self._subscription.positions[topic_partition].offset
            if topic_partition in self._subscription.positions
            else None
            for topic_partition in partitions
        }

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at ``offset`` in a partition that is assigned.

        -2 is its first record, -1 its end."""
        self._check_open()
        check_start(topic, partition, offset)
        topic_partition = TopicPartition(topic, partition)
        position = self._subscription.position(topic_partition)
        if offset < 0:
            offset = await self._list_offset(topic_partition, offset, _LOOK_UP_S)
        position.move(offset)
        self._commits.handed_out.pop(topic_partition, None)

    # Records

    async def poll(self, timeout_s: float = 0.0) -> Record[K, V] | None:
        """The next record, or None when there is none within ``timeout_s``; also
        serves rebalances."""
        self._check_open()
        loop = asyncio.get_running_loop()
        self._commits.store()  # everything handed out is processed by now
        end = loop.time() + timeout_s
        with self._polls:
            while True:
                await self._polls.serve_changes()
                if self._membership is not None and self._membership.failure is not None:
                    raise self._membership.failure
                found = self._subscription.next()
                if found is not None:
                    topic_partition, waiting = found
                    position = self._subscription.positions[topic_partition]
                    position.offset = waiting.offset + 1
                    position.step_over()
                    self._commits.handed_out[topic_partition] = waiting.offset + 1
                    return deserialize_waiting(topic_partition, waiting, self._decode_key, self._decode)
                if loop.time() >= end or self._closed:
                    return None
                await asyncio.sleep(min(_WAKE_S, end - loop.time()))

    async def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        """Records for ever, or until none came for ``consumer.timeout.ms``."""
        while not self._closed:
            record = await self.poll(1.0 if self._iteration_timeout_s is None else self._iteration_timeout_s)
            if record is not None:
                yield record
            elif self._iteration_timeout_s is not None:
                return

    # The group

    async def _take(self, committed: dict[TopicPartition, int | None]) -> None:
        self._forget_positions()
        self._commits.committed = {
            topic_partition: offset for topic_partition, offset in committed.items() if offset is not None
        }
        for topic_partition, offset in committed.items():
            self._subscription.add(topic_partition, Position(offset, is_new=False))
        await _call(self._on_assign, sorted(committed))

    async def _revoke(self, *, is_lost: bool) -> None:
        gone = sorted(self._subscription.positions)
        try:
            if not is_lost:
                await _call(self._before_revoke)
                if self._settings.auto_commit:
                    self._commits.store()
                    await self._commits.commit_last()
            await _call(self._on_revoke, gone)
        finally:
            self._forget_positions()

    async def _leave(self, membership: Membership) -> None:
        with contextlib.suppress(ChannelError, TimeoutError):
            async with asyncio.timeout(self._close_timeout_s):
                await membership.leave()

    # Offsets

    async def _fetch_committed(self, topic_partition: TopicPartition) -> int | None:
        return (await self._with_group().committed([topic_partition], _LOOK_UP_S))[topic_partition]

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, wait: bool = True) -> None:
        """Commit everything that was handed out, or these ``offsets``: the next ones to read.

        Raises `CommitError` and others; without ``wait`` its end is reported to ``on_commit``.
        """
        self._check_open()
        if offsets is None:
            self._commits.store()
        else:
            check_offsets(offsets)
        wanted = self._commits.news() if offsets is None else dict(offsets)
        if wait:
            await self._commits.commit(wanted)
        else:
            self._begin(self._commits.commit_behind(wanted))

    def _with_group(self) -> Membership:
        if not self._settings.group:
            raise ConfigurationError("group.id is missing: offsets are committed for a group")
        if self._membership is None:
            self._membership = self._make_membership()
        return self._membership

    async def group_metadata(self) -> GroupMetadata:
        """The membership, for `VirtualProducer.send_offsets_to_transaction`."""
        self._check_open()
        return self._with_group().metadata

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float = 30.0
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none."""
        self._check_open()
        return await self._with_group().committed(list(partitions), timeout_s)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float = 30.0
    ) -> dict[TopicPartition, int | None]:
        """For each partition the offset of the first record that is not older than its time.

        None without one."""
        self._check_open()
        check_times(times_ms)
        return await self._link.list_offsets(self._channels, times_ms, timeout_s)

    async def watermarks(self, topic: str, partition: int, timeout_s: float = 30.0) -> tuple[int, int]:
        """The first offset of a partition and the one that the next record will get."""
        self._check_open()
        topic_partition = TopicPartition(topic, partition)
        first = await self._list_offset(topic_partition, _EARLIEST, timeout_s)
        return first, await self._list_offset(topic_partition, _LATEST, timeout_s)

    async def _list_offset(self, topic_partition: TopicPartition, when: int, timeout_s: float) -> int:
        found = await self._link.list_offsets(
            self._channels, {topic_partition: when}, timeout_s, read_committed=self._settings.read_committed
        )
        return found[topic_partition] or 0

    async def lag(self, timeout_s: float = 30.0) -> dict[TopicPartition, int]:
        """How many records of each assigned partition were not handed out yet."""
        lags = {}
        for topic_partition in self.assignment():
            first, end = await self.watermarks(*topic_partition, timeout_s)
            here = self.position([topic_partition])[topic_partition]
            lags[topic_partition] = max(0, end - (first if here is None else max(first, here)))
        return lags

    async def topics(self, timeout_s: float = 30.0) -> dict[str, int]:
        """The cluster's topics, internal ones included, with their numbers of partitions."""
        self._check_open()
        return await self._link.topics(timeout_s)

    # Tasks, and the end

    def _forget(self) -> None:
        self._commits.handed_out.clear()

    def _begin(self, *works: Any) -> None:
        self._tasks += [asyncio.get_running_loop().create_task(work) for work in works]

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("consumer")

    async def close(self, timeout_s: float | None = None) -> None:
        """Commit what was handed out, if commits are automatic, and leave the group.

        A second call does nothing."""
        if self._closed:
            return
        limit_s = self._close_timeout_s if timeout_s is None else timeout_s
        for task in self._tasks:
            task.cancel()
        self._commits.store()
        try:
            if self._settings.auto_commit:
                await self._commits.commit(self._commits.news(), limit_s)
            if self._membership is not None:
                await self._leave(self._membership)
        finally:
            self._closed = True
            self._forget_positions()
            self._link.close()


async def _call(callback: Callable[..., Any] | None, *arguments: Any) -> None:
    """Call what the user gave; wait for it where it is a coroutine function."""
    if callback is not None:
        result = callback(*arguments)
        if inspect.isawaitable(result):
            await result
