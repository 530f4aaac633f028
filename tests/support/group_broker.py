"""A broker's group service on a real log, through dispatch and codec, with manual time."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import Runner
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from support.broker import DataPath, Wire
from support.slicing import thread_at_once

PARTITION = 3  # of group "g"
TOPIC_ID = Uuid(bytes(range(16)))
GROUP_APIS = (
    *("heartbeat", "join_group", "leave_group", "offset_commit", "offset_fetch", "sync_group"),
    *("delete_groups", "describe_groups", "find_coordinator", "list_groups", "offset_delete"),
    "update_metadata",
)


class GroupBroker(DataPath):
    """A data path with the group service; background work runs when the test says so."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"group.initial.rebalance.delay.ms": "0"})
        self.held: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] | None = None
        """What is to run in threads, while a test holds that."""
        self.is_beside = False
        """Whether the code that runs is in a thread."""
        self.spawned: list[Coroutine[Any, Any, None]] = []
        self.groups = GroupService(
            self.config,
            self.replicas,
            self.purgatory,
            self.metadata,
            clock=self.clock,
            call_later=self.timers,
            rng=self.rng,
            spawn=self.spawned.append,
            runner=Runner(self.clock, self.timers, self.in_thread),
            verifier=self.coordinators.verifier,
        )
        self.groups.start()
        self.replicas.on_leadership(self.groups.leadership_changed)
        self.metadata.on_update(self.groups.metadata_changed)
        self.serve(GROUP_APIS, groups=self.groups)
        state = UpdateMetadataPartitionState(partition_index=0, leader=0, replicas=[0], isr=[0])
        topic = UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
        self.metadata.update(UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(id=1)], topic_states=[topic]))

    def in_thread(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        def beside() -> None:
            self.is_beside = True
            try:
                work()
            finally:
                self.is_beside = False

        if self.held is None:
            thread_at_once(beside, done)
        else:
            self.held.append((beside, done))

    def release(self) -> None:
        """Let the threads run."""
        held, self.held = self.held or [], None
        for work, done in held:
            thread_at_once(work, done)

    def load(self, **options: Any) -> None:
        """Lead the group's partition, and read it."""
        self.lead(OFFSETS_TOPIC, PARTITION, **options)
        self.work()

    def follower_reads(self) -> None:
        """Broker 1 fetches at the end of the group's partition."""
        name = TopicPartition(OFFSETS_TOPIC, PARTITION)
        end_offset = self.replicas.partition(name).log.log_end_offset
        self.replicas.follower_fetched(name, 1, end_offset, 0, self.clock.monotonic_ms())
        self.timers.advance(0)

    def take_turns(self, wire: Wire) -> None:
        """Let slices pass until a client is answered."""
        for _ in range(10_000):
            if wire.sent:
                break
            self.timers.advance(0)

    def work(self) -> None:
        while self.spawned:
            asyncio.run(self._finish(self.spawned.pop(0)))

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        while not task.done():
            await asyncio.sleep(0)  # it may read beside the loop, in slices
            self.timers.advance(0)
        task.result()
