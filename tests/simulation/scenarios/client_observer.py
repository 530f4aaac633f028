"""What the requests of one simulated client and their responses prove: the material of the checks,
and checks at once.

It stands beside the client, and sees what goes over its connections. A response to a request during
which records of the partition were lost with their disks proves nothing and is ignored, and so is
one of a broker that was restarted meanwhile.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.testing.simulation.history import History
from barnabas.testing.simulation.simulation import Simulation, broker_name
from barnabas.testing.virtual.link import Answered, OnRequest
from barnabas.wire.kafka.consumer_protocol import decode_assignment
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.wire.kafka.messages.fetch import FetchRequest
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsRequest
from barnabas.wire.kafka.messages.metadata import MetadataRequest
from barnabas.wire.kafka.messages.offset_commit import OffsetCommitRequest
from barnabas.wire.kafka.messages.offset_fetch import OffsetFetchRequest
from barnabas.wire.kafka.messages.produce import ProduceRequest
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest
from barnabas.wire.kafka.records.batch_header import check_batch
from barnabas.wire.kafka.records.records import read_records
from simulation.scenarios.group_facts import GroupFacts
from simulation.scenarios.transaction_facts import TransactionFacts

__all__ = ["ClientObserver"]

_LEAST_CUT_BYTES = 12
_LEAVES_ADDING_SINCE_VERSION = 12
_LATEST = -1


class ClientObserver:
    """Notes in the `History`, and in the facts of the client's group, what it is to watch; leader
    epochs always."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._history: History = simulation.history
        self._losses_at_join = 0
        self.positions: dict[TopicPartition, int] = {}
        """What the client has read of each partition, in responses that count."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """The last ones seen."""
        self._others: list[OnRequest] = []
        self._watched: dict[type, Callable[[int, Any], Answered | None]] = {MetadataRequest: self._metadata}

    def watch_records(self) -> None:
        """Note what the client reads, and where partitions end by the answers that it gets."""
        self._watched |= {FetchRequest: self._fetch, ListOffsetsRequest: self._list_offsets}

    def watch_group(self, facts: GroupFacts) -> None:
        """Note what the client is given and commits as a member of a group."""
        self._watched |= {
            JoinGroupRequest: partial(self._join, facts),
            SyncGroupRequest: partial(self._sync, facts),
            OffsetFetchRequest: partial(self._offset_fetch, facts),
            OffsetCommitRequest: partial(self._offset_commit, facts),
        }

    def watch_transactions(self, facts: TransactionFacts, on_request: OnRequest) -> None:
        """Note which partitions become part of transactions; ``on_request`` sees every request,
        too."""
        self._watched |= {AddPartitionsToTxnRequest: partial(self._add_partitions, facts)}
        self._others += [on_request, partial(self._leave_adding, facts)]

    def on_request(self, broker_id: int, message: Any, version: int | None) -> Answered | None:
        """A request is about to leave."""
        for other in self._others:
            other(broker_id, message, version)
        watch = self._watched.get(type(message))
        return None if watch is None else watch(broker_id, message)

    # Leaders

    def led_epoch(self, broker_id: int, topic_partition: TopicPartition) -> int | None:
        """The leader epoch in which a broker leads a partition by its own account; None if it does
        not."""
        machine = self._simulation.machine(broker_name(broker_id))
        found = machine.server.components.replicas.get(topic_partition) if machine.is_serving else None
        if found is None or not found.is_leader:
            return None
        epoch: int = found.leader_epoch
        return epoch

    def is_leader_now(self, broker_id: int, topic_partition: TopicPartition) -> bool:
        """Whether a broker's answer counts: after a loss, only the leaders' since then."""
        known = self._history.partition(topic_partition)
        if not known.losses:
            return True
        epoch = self.led_epoch(broker_id, topic_partition)
        return epoch is not None and epoch >= known.loss_epoch

    def _metadata(self, _: int, request: MetadataRequest) -> Answered | None:
        if request.topics is None:
            return None

        def answered(response: Any) -> None:
            for topic in response.topics:
                for each in () if topic.error_code or topic.name is None else topic.partitions:
                    self._history.leader(TopicPartition(topic.name, each.partition_index), each.leader_epoch)

        return answered

    # Records

    def _fetch(self, broker_id: int, request: FetchRequest) -> Answered:
        asked: dict[TopicPartition, tuple[int, int]] = {}
        names: dict[Uuid, str] = {}
        for topic in request.topics:
            names[topic.topic_id] = topic.topic
            for each in topic.partitions:
                topic_partition = TopicPartition(topic.topic, each.partition)
                asked[topic_partition] = each.fetch_offset, self._history.partition(topic_partition).losses
        lives = self._simulation.machine(broker_name(broker_id)).lives

        def answered(response: Any) -> None:
            is_same = lives == self._simulation.machine(broker_name(broker_id)).lives
            for topic in () if response.error_code or not is_same else response.responses:
                for answer in topic.partitions:
                    topic_partition = TopicPartition(topic.topic or names[topic.topic_id], answer.partition_index)
                    position, losses = asked[topic_partition]
                    self._history.reconsider(topic_partition)
                    if losses == self._history.partition(topic_partition).losses and self.is_leader_now(
                        broker_id, topic_partition
                    ):
                        self._fetched(topic_partition, answer, position, (broker_id, lives))

        return answered

    def _fetched(self, topic_partition: TopicPartition, answer: Any, position: int, source: tuple[int, int]) -> None:
        history = self._history
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(topic_partition, position, source[0])
            return
        if code:
            if not code.retriable:
                history.violation(f"{topic_partition}: fetch was answered with {code.name}")
            return
        epoch = self.led_epoch(source[0], topic_partition)
        if epoch is not None:
            history.watermarks(
                topic_partition,
                (*source, epoch),
                answer.log_start_offset,
                answer.last_stable_offset,
                answer.high_watermark,
            )
        self.high_watermarks[topic_partition] = answer.high_watermark
        data = bytes(answer.records or b"")
        reached = self._records(topic_partition, data, position, answer.high_watermark, answer.last_stable_offset)
        self.positions[topic_partition] = reached
        known = history.partition(topic_partition)
        known.polled_upto = max(known.polled_upto, reached)

    def _out_of_range(self, topic_partition: TopicPartition, position: int, broker_id: int) -> None:
        """A follower may be behind; a leader has all that was read, unless retention or a loss took
        it."""
        known = self._history.partition(topic_partition)
        epoch = self.led_epoch(broker_id, topic_partition)
        if epoch is None or epoch < known.leader_epoch:
            return
        machine = self._simulation.machine(broker_name(broker_id))
        log = machine.server.components.replicas.get(topic_partition).log
        if position < log.log_start_offset:
            known.start_offset = max(known.start_offset, log.log_start_offset)
        elif not known.is_unclean and position <= known.polled_upto:
            self._history.violation(
                f"{topic_partition}: {position} is out of range at broker {broker_id}, and nothing was lost"
            )

    @staticmethod
    def _is_cut(data: bytes, at: int) -> bool:
        """Whether the response ends in the middle of a batch, as it may."""
        length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        return length > 0 and at + 12 + length > len(data)

    def _records(
        self, topic_partition: TopicPartition, data: bytes, position: int, high_watermark: int, stable_offset: int
    ) -> int:
        """Check a response's records; the offset behind them."""
        history = self._history
        known = history.partition(topic_partition)
        at = 0
        while at < len(data):
            try:
                header = check_batch(data, at, len(data))
            except KafkaError as error:
                if len(data) - at > _LEAST_CUT_BYTES and not self._is_cut(data, at):
                    history.violation(f"{topic_partition}: the batch for offset {position} cannot be read: {error}")
                break
            if header.is_transactional and header.last_offset >= stable_offset:
                history.violation(
                    f"{topic_partition}: {header.last_offset} of a transaction is not below "
                    f"the last stable offset {stable_offset}"
                )
            for record in read_records(data, at):
                if record.offset < position:
                    continue
                if record.offset != position and not known.is_compacted:
                    history.violation(f"{topic_partition}: offset {position} was expected, {record.offset} came")
                if record.offset >= high_watermark:
                    history.violation(
                        f"{topic_partition}: {record.offset} is not below the high watermark {high_watermark}"
                    )
                if not header.is_control:
                    history.read(topic_partition, record.offset, record.value or b"", record.key)
                position = record.offset + 1
            position = max(position, header.last_offset + 1)
            at += header.size_bytes
        return position

    def _list_offsets(self, broker_id: int, request: ListOffsetsRequest) -> Answered | None:
        asked: dict[TopicPartition, tuple[int, int]] = {}
        for topic in request.topics if request.isolation_level else ():
            for each in topic.partitions:
                if each.timestamp == _LATEST:
                    topic_partition = TopicPartition(topic.name, each.partition_index)
                    known = self._history.partition(topic_partition)
                    asked[topic_partition] = known.end_offset, known.losses

        def answered(response: Any) -> None:
            for topic in response.topics:
                for answer in topic.partitions:
                    topic_partition = TopicPartition(topic.name, answer.partition_index)
                    if answer.error_code or topic_partition not in asked:
                        continue
                    end_offset, losses = asked[topic_partition]
                    self._history.reconsider(topic_partition)
                    if losses == self._history.partition(topic_partition).losses and self.is_leader_now(
                        broker_id, topic_partition
                    ):
                        self._history.listed(topic_partition, answer.offset, end_offset)

        return answered if asked else None

    # Transactions

    def _add_partitions(self, facts: TransactionFacts, _: int, request: AddPartitionsToTxnRequest) -> None:
        for topic in request.v3_and_below_topics:
            for number in topic.partitions:
                facts.added.add((request.v3_and_below_producer_id, TopicPartition(topic.name, number)))

    @staticmethod
    def _leave_adding(facts: TransactionFacts, _: int, request: Any, version: int | None) -> None:
        """In version 2 brokers add the partitions of a Produce request themselves."""
        if not isinstance(request, ProduceRequest) or version is None or version < _LEAVES_ADDING_SINCE_VERSION:
            return
        for topic in request.topic_data:
            for each in topic.partition_data:
                assert isinstance(each.records, bytes)  # as the virtual producer makes it
                producer_id = check_batch(each.records, 0, len(each.records)).producer_id
                facts.added.add((producer_id, TopicPartition(topic.name, each.index)))

    # The group

    def _join(self, facts: GroupFacts, *_: object) -> None:
        self._losses_at_join = facts.losses

    def _sync(self, facts: GroupFacts, _: int, request: SyncGroupRequest) -> Answered:
        losses = self._losses_at_join

        def answered(response: Any) -> None:
            self._reconsider()
            if response.error_code or losses != facts.losses:
                return
            assigned = decode_assignment(response.assignment).assigned_partitions
            owned = [TopicPartition(topic.topic, n) for topic in assigned for n in topic.partitions]
            facts.assigned(self._history, request.generation_id, request.member_id, owned)

        return answered

    def _offset_fetch(self, facts: GroupFacts, broker_id: int, request: OffsetFetchRequest) -> Answered:
        losses, known = facts.losses, dict(facts.commits)
        names = {topic.topic_id: topic.name for group in request.groups for topic in group.topics or ()}

        def answered(response: Any) -> None:
            self._reconsider()
            group = response.groups[0]
            if group.error_code or losses != facts.losses or not self._is_coordinated(broker_id, group.group_id):
                return
            for topic in group.topics:
                for each in topic.partitions:
                    topic_partition = TopicPartition(topic.name or names[topic.topic_id], each.partition_index)
                    if not each.error_code and each.committed_offset < known.get(topic_partition, -1):
                        self._history.violation(
                            f"group {group.group_id} starts {topic_partition} at {each.committed_offset}, "
                            f"{known[topic_partition]} was committed"
                        )

        return answered

    def _offset_commit(self, facts: GroupFacts, _: int, request: OffsetCommitRequest) -> Answered:
        losses = facts.losses
        offsets = {
            TopicPartition(topic.name, each.partition_index): each.committed_offset
            for topic in request.topics
            for each in topic.partitions
        }

        def answered(response: Any) -> None:
            self._reconsider()
            if losses == facts.losses and not any(
                each.error_code for topic in response.topics for each in topic.partitions
            ):
                facts.committed(self._history, request.generation_id_or_member_epoch, offsets)

        return answered

    def _is_coordinated(self, broker_id: int, group: str) -> bool:
        """Whether the broker leads the group's partition.

        A coordinator that was replaced unnoticed (a pause, a cut) answers from memory, as Apache's
        does; it cannot commit anything.
        """
        machine = self._simulation.machine(broker_name(broker_id))
        if not machine.is_serving:
            return False
        number = machine.server.components.groups.coordinator.partition_for(group)
        return any(
            self._history.true_leader(topic_partition) == broker_id
            for topic_partition in self._history.groups_partitions
            if topic_partition.partition == number
        )

    def _reconsider(self) -> None:
        """Ask whether records of groups were lost with their disks a moment ago."""
        for topic_partition in self._history.groups_partitions:
            self._history.reconsider(topic_partition)
