"""Offsets that are committed in transactions: whose, when they count, and what is left of them."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import ZERO_UUID, TopicPartition
from barnabas.broker.groups.commits import CommitSender, OffsetCommit, TopicOffsets
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.broker.replication.produce_append import perform_wait
from barnabas.broker.replication.transaction_markers import TransactionMarker, TransactionMarkers
from barnabas.broker.replication.transaction_verification import TransactionalProducer
from barnabas.wire.kafka.errors import ErrorCode as E
from barnabas.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.group_broker import PARTITION, GroupBroker
from support.transaction_coordinators import name_coordinators

GROUP_PARTITION = TopicPartition(OFFSETS_TOPIC, PARTITION)
T = TopicPartition("t", 0)
DAY_MS = 24 * 3_600_000


class TransactionBroker(GroupBroker):
    """A group coordinator whose transaction coordinator confirms what it is asked about."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        name_coordinators(self.metadata, 0)
        self.wire = self.connect()

    def begin_commit(self, offset: int, **sender: Any) -> list[E]:
        """Commit an offset of t-0 in a transaction.

        The codes of the answer, empty until it comes."""
        options = {"producer_id": 7, "epoch": 0, "generation_id": -1, "member_id": "", "instance_id": None, **sender}
        commit = OffsetCommit(
            CommitSender("g", options["generation_id"], options["member_id"], options["instance_id"]),
            [TopicOffsets("t", ZERO_UUID, [0], [offset], [-1], None)],
        )
        producer = TransactionalProducer("copy", options["producer_id"], options["epoch"], True)
        codes: list[E] = []
        self.groups._runner.start(
            self.groups.commit_in_transaction(commit, producer, lambda done: codes.extend(done.codes)), perform_wait
        )
        return codes

    def commit(self, offset: int, **sender: Any) -> E:
        codes = self.begin_commit(offset, **sender)
        while self.coordinators.asked:
            self.coordinators.confirm()
        (code,) = codes
        return code

    def begin_end(self, *, is_commit: bool, producer_id: int = 7, epoch: int = 0) -> TransactionMarkers:
        """Append a marker to the group's partition, and wait for the replicas."""

        def replicated(marker: TransactionMarker, topic_partition: TopicPartition, offset: int) -> None:
            self.groups.transaction_ended(
                topic_partition.partition, marker.producer_id, offset, is_commit=marker.is_commit
            )

        markers = TransactionMarkers(self.replicas, replicated)
        markers.append(TransactionMarker(producer_id, epoch, is_commit, 0), GROUP_PARTITION, self.clock.wall_ms())
        if not markers.are_written:
            markers.wait(self.purgatory, 30_000, lambda: None)
        return markers

    def end(self, **options: Any) -> E:
        return self.begin_end(**options).codes[options.get("producer_id", 7)][GROUP_PARTITION]

    def commit_plainly(self, offset: int) -> E:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
        return E(self.wire.ask(request, 8).topics[0].partitions[0].error_code)

    def committed(self, *, require_stable: bool = False) -> tuple[E, int]:
        """The error and the offset of t-0."""
        request = OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
            require_stable=require_stable,
        )
        (found,) = self.wire.ask(request, 7).topics[0].partitions
        return E(found.error_code), found.committed_offset

    def reload(self, isr: tuple[int, ...] = (0,)) -> None:
        """Lose the group's partition, and lead it again."""
        partition = self.replicas.partition(GROUP_PARTITION)
        epoch = partition.leader_epoch
        replicas = (0, 1)
        self.lead(OFFSETS_TOPIC, PARTITION, epoch=epoch + 1, leader=1, replicas=replicas)
        self.lead(OFFSETS_TOPIC, PARTITION, epoch=epoch + 2, replicas=replicas, isr=isr)

    def expire_old_offsets(self) -> None:
        """Let eight days pass, and the check of offsets that follows them."""
        self.timers.advance(8 * DAY_MS)
        for _ in range(3):  # the process seems to have been paused: members get a grace
            self.timers.advance(300)

    def member(self) -> tuple[str, int]:
        """The id of the only member of a stable group, and its generation."""
        joining = JoinGroupRequest(
            group_id="g",
            member_id="",
            group_instance_id="one",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        wire = self.connect()
        wire.post(joining, 9)
        self.timers.advance(0)
        joined = wire.answer()
        request = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="one",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        )
        assert wire.ask(request, 5).error_code == E.NONE
        return joined.member_id, joined.generation_id


@pytest.fixture
def broker(tmp_path: Path) -> TransactionBroker:
    made = TransactionBroker(tmp_path / "first")
    made.load()
    return made


def test_offsets_of_a_transaction_count_when_it_is_committed(broker: TransactionBroker) -> None:
    """Until then the earlier ones do, and who wants stable ones is to ask again."""
    assert broker.commit_plainly(1) == E.NONE
    assert broker.commit(5) == E.NONE
    assert broker.committed() == (E.NONE, 1)
    assert broker.committed(require_stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert broker.end(is_commit=True) == E.NONE
    assert broker.committed(require_stable=True) == (E.NONE, 5)


def test_offsets_of_an_aborted_transaction_are_dropped(broker: TransactionBroker) -> None:
    """As if they had never been there."""
    assert broker.commit_plainly(1) == E.NONE
    assert broker.commit(5) == E.NONE
    assert broker.end(is_commit=False) == E.NONE
    assert broker.committed(require_stable=True) == (E.NONE, 1)


def test_a_transaction_is_verified_before_its_first_offsets_are_stored(broker: TransactionBroker) -> None:
    """By the partition in which the group's offsets are; its later ones are stored at once."""
    codes = broker.begin_commit(5)
    ((_, request),) = broker.coordinators.asked
    (transaction,) = request.transactions
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [(OFFSETS_TOPIC, [PARTITION])]
    assert (codes, broker.replicas.partition(GROUP_PARTITION).log.log_end_offset) == ([], 0)
    broker.coordinators.confirm()
    assert codes == [E.NONE]
    assert broker.begin_commit(6) == [E.NONE]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        (E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (E.NETWORK_EXCEPTION, E.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_offsets_of_a_transaction_that_is_not_verified_are_refused(
    broker: TransactionBroker, code: E, expected: E
) -> None:
    """Nothing is stored; errors that old clients do not know become one that they repeat after."""
    codes = broker.begin_commit(5)
    broker.coordinators.confirm({GROUP_PARTITION: code})
    assert codes == [expected]
    assert broker.replicas.partition(GROUP_PARTITION).log.log_end_offset == 0
    assert broker.committed(require_stable=True) == (E.NONE, -1)


def test_a_commit_that_is_confirmed_after_its_transaction_ended_is_refused(broker: TransactionBroker) -> None:
    """It would begin a transaction that no coordinator knows."""
    codes = broker.begin_commit(5)
    assert broker.end(is_commit=False) == E.NONE
    broker.coordinators.confirm()
    assert codes == [E.INVALID_TXN_STATE]


def test_only_the_current_member_of_the_generation_commits(broker: TransactionBroker) -> None:
    """One that says nothing of itself, as old clients do, is fenced by its
    transactional id alone."""
    member_id, generation = broker.member()
    member = {"member_id": member_id, "generation_id": generation, "instance_id": "one"}
    assert broker.commit(1, **member) == E.NONE
    assert broker.commit(2) == E.NONE
    assert broker.commit(3, **{**member, "generation_id": generation - 1}) == E.ILLEGAL_GENERATION
    assert broker.commit(3, **{**member, "generation_id": -1}) == E.ILLEGAL_GENERATION
    assert broker.commit(3, **{**member, "member_id": "another"}) == E.FENCED_INSTANCE_ID
    assert broker.commit(3, **{**member, "instance_id": "two"}) == E.UNKNOWN_MEMBER_ID
    assert broker.commit(3, member_id="another", generation_id=generation) == E.UNKNOWN_MEMBER_ID
    assert broker.end(is_commit=True) == E.NONE
    assert broker.committed() == (E.NONE, 2)


def test_a_group_without_members_takes_offsets_without_a_generation(broker: TransactionBroker) -> None:
    """A generation that it has not had is that of a member it does not know."""
    assert broker.commit(1, member_id="another") == E.NONE
    assert broker.commit(1, generation_id=0) == E.UNKNOWN_MEMBER_ID


def test_a_fenced_producer_commits_nothing(broker: TransactionBroker) -> None:
    """The marker with which its successor ended its transaction is of a later epoch."""
    assert broker.end(is_commit=False, epoch=1) == E.NONE
    assert broker.commit(5, epoch=0) == E.INVALID_PRODUCER_EPOCH
    assert broker.commit(5, epoch=1) == E.NONE


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_open_transaction_is_there_after_the_partition_was_loaded_again(
    broker: TransactionBroker, is_commit: bool
) -> None:
    """Its marker may come to another broker than its offsets."""
    assert broker.commit_plainly(1) == E.NONE
    assert broker.commit(5) == E.NONE
    broker.reload()
    broker.work()
    assert broker.committed(require_stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert broker.end(is_commit=is_commit) == E.NONE
    assert broker.committed(require_stable=True) == (E.NONE, 5 if is_commit else 1)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "behind what was read"])
def test_a_marker_that_comes_while_the_partition_is_loaded_counts(
    tmp_path: Path, is_commit: bool, is_read: bool
) -> None:
    """Exactly once, before the group is served."""
    broker = TransactionBroker(tmp_path)
    broker.load(replicas=(0, 1))
    broker.begin_commit(5)
    broker.coordinators.confirm()
    broker.reload(isr=(0, 1))
    if is_read:
        broker.begin_end(is_commit=is_commit)
        broker.work()
    else:
        broker.work()
        broker.begin_end(is_commit=is_commit)
    assert broker.groups.coordinator.is_loading  # until the follower has what was read
    broker.follower_reads()
    assert not broker.groups.coordinator.is_loading
    assert broker.committed(require_stable=True) == (E.NONE, 5 if is_commit else -1)


def test_a_plain_commit_after_the_transactions_offsets_holds(broker: TransactionBroker) -> None:
    """What stands furthest in the log, also after it was loaded again."""
    assert broker.commit(5) == E.NONE
    assert broker.commit_plainly(9) == E.NONE
    assert broker.end(is_commit=True) == E.NONE
    assert broker.committed() == (E.NONE, 9)
    broker.reload()
    broker.work()
    assert broker.committed() == (E.NONE, 9)


def test_a_late_marker_does_not_end_the_next_transaction(broker: TransactionBroker) -> None:
    """A marker ends what stands before it in the log."""
    assert broker.commit(5) == E.NONE
    assert broker.end(is_commit=True) == E.NONE
    marker_offset = 1
    assert broker.commit(6) == E.NONE
    broker.groups.transaction_ended(PARTITION, 7, marker_offset, is_commit=True)
    assert broker.committed(require_stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert broker.end(is_commit=False) == E.NONE
    assert broker.committed(require_stable=True) == (E.NONE, 5)


def test_transactions_of_several_producers_are_apart(broker: TransactionBroker) -> None:
    """The marker of one leaves the others open."""
    assert broker.commit(5, producer_id=7) == E.NONE
    assert broker.commit(6, producer_id=8) == E.NONE
    assert broker.end(is_commit=True, producer_id=7) == E.NONE
    assert broker.committed(require_stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert broker.end(is_commit=False, producer_id=8) == E.NONE
    assert broker.committed(require_stable=True) == (E.NONE, 5)


def test_a_marker_counts_when_it_is_replicated(tmp_path: Path) -> None:
    """A marker that is in one log only may be lost with it."""
    broker = TransactionBroker(tmp_path)
    broker.load(replicas=(0, 1))
    broker.follower_reads()
    codes = broker.begin_commit(5)
    broker.coordinators.confirm()
    assert (codes, broker.committed()) == ([], (E.NONE, -1))
    broker.follower_reads()
    assert codes == [E.NONE]
    markers = broker.begin_end(is_commit=True)
    assert broker.committed() == (E.NONE, -1)
    broker.follower_reads()
    assert markers.codes[7][GROUP_PARTITION] == E.NONE
    assert broker.committed() == (E.NONE, 5)


def test_a_transaction_that_is_ended_while_its_offsets_are_not_replicated_is_whole(tmp_path: Path) -> None:
    """The coordinator may abort a transaction at any time: nothing of it stays behind."""
    broker = TransactionBroker(tmp_path)
    broker.load(replicas=(0, 1))
    broker.follower_reads()
    broker.begin_commit(5)
    broker.coordinators.confirm()
    broker.timers.advance(6000)  # the commit is answered with a timeout; its records are in the log
    broker.begin_end(is_commit=False)
    broker.follower_reads()
    assert broker.committed(require_stable=True) == (E.NONE, -1)


def test_the_offset_of_an_open_transaction_does_not_expire(broker: TransactionBroker) -> None:
    """Nor does the one before it; the group stays as long."""
    assert broker.commit_plainly(1) == E.NONE
    assert broker.commit(5) == E.NONE
    broker.expire_old_offsets()
    assert broker.committed() == (E.NONE, 1)
    assert broker.end(is_commit=True) == E.NONE
    assert broker.committed() == (E.NONE, 5)
    broker.expire_old_offsets()
    assert broker.committed() == (E.NONE, -1)


def test_a_group_that_is_deleted_takes_the_offsets_of_open_transactions_with_it(broker: TransactionBroker) -> None:
    """Their marker brings nothing back, nor does a load."""
    assert broker.commit(5) == E.NONE
    response = broker.wire.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert [result.error_code for result in response.results] == [E.NONE]
    for _ in range(2):
        assert broker.end(is_commit=True) == E.NONE
        assert broker.committed(require_stable=True) == (E.NONE, -1)
        broker.reload()
        broker.work()


def test_a_tombstone_drops_what_an_open_transaction_had_written_before_it_also_after_a_load(
    broker: TransactionBroker,
) -> None:
    """The tables are the same whether they were loaded or not."""
    assert broker.commit(5) == E.NONE
    broker.wire.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    broker.reload()
    broker.work()
    assert broker.committed(require_stable=True) == (E.NONE, -1)
    assert broker.end(is_commit=True) == E.NONE
    assert broker.committed() == (E.NONE, -1)


def test_a_coordinator_that_lost_the_partition_refuses(broker: TransactionBroker) -> None:
    """Also while it is loaded."""
    broker.reload()
    assert broker.begin_commit(5) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    broker.work()
    broker.lead(OFFSETS_TOPIC, PARTITION, epoch=9, leader=1, replicas=(0, 1))
    assert broker.begin_commit(5) == [E.NOT_COORDINATOR]
