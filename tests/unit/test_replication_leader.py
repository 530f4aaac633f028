"""What a leader decides: who may join the in-sync set, who must leave it, and what the
controller's answers mean."""

from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import done_here
from barnabas.broker.replication.delayed_produce import DelayedProduce
from barnabas.broker.replication.partition import FollowerProgress, Leader, Partition
from barnabas.log.lost_data import LostData
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from support.broker import DataPath, batch

T0 = TopicPartition("t", 0)
VERSION = 1
LAG_MS = 30_000


@pytest.fixture
def broker(tmp_path: Path) -> DataPath:
    return DataPath(tmp_path)


def lead(broker: DataPath, isr: tuple[int, ...] = (0, 1), epoch: int = 0) -> Partition:
    return broker.lead("t", replicas=(0, 1, 2), isr=isr, epoch=epoch)


def write(broker: DataPath, *values: bytes, acks: int = 1) -> None:
    broker.replicas.append(T0, batch(*values), acks=acks, now_ms=broker.clock.wall_ms())


def when_committed(broker: DataPath, codes: list[ErrorCode], timeout_ms: int) -> None:
    """Wait as a producer with acks=all for the first record; ``codes`` gets the result."""
    delayed = DelayedProduce(broker.replicas)
    delayed.add(T0, 0, -1, codes.append)
    delayed.wait(broker.purgatory, timeout_ms, lambda: None)


def fetched(broker: DataPath, replica: int, offset: int) -> None:
    broker.replicas.follower_fetched(T0, replica, offset, 0, broker.clock.wall_ms(), 70 + replica)


def answer(broker: DataPath, error: ErrorCode = ErrorCode.NONE, isr: tuple[int, ...] = (), partition_epoch: int = 1):
    """Take the request that is to be sent, and answer it."""
    changes = broker.replicas.alter_partition
    assert changes.request(VERSION, 5) is not None
    partition = AlterPartitionResponsePartitionData(
        partition_index=0, error_code=error, leader_id=0, leader_epoch=0, isr=list(isr), partition_epoch=partition_epoch
    )
    topics = [AlterPartitionResponseTopicData(topic_name="t", partitions=[partition])]
    return broker.replicas.handle_alter_partition_response(
        AlterPartitionResponse(topics=topics), VERSION, broker.clock.wall_ms()
    )


@pytest.mark.parametrize(
    ("end", "high_watermark", "expected"),
    [(4, 3, False), (5, 3, True), (5, 6, False), (6, 6, True)],
)
def test_a_follower_may_join_with_all_that_is_committed_and_older_than_the_epoch(
    end: int, high_watermark: int, expected: bool
) -> None:
    """The leader's epoch began at 5."""
    role = Leader(5, frozenset({0}), followers={1: FollowerProgress(log_end_offset=end)})
    assert role.can_join(1, high_watermark) is expected


def test_no_replica_joins_while_a_change_is_under_way() -> None:
    """One change at a time."""
    role = Leader(0, frozenset({0}), frozenset({0, 2}), {1: FollowerProgress(log_end_offset=9)})
    assert not role.can_join(1, 0)


def test_a_follower_that_caught_up_joins_when_the_controller_says_so(broker: DataPath) -> None:
    """Until the answer both sets bind the high watermark; the request carries the
    followers' broker epochs."""
    partition = lead(broker, isr=(0,))
    write(broker, b"a")
    fetched(broker, 2, 0)
    assert partition.role.pending_isr is None
    fetched(broker, 1, 1)
    assert partition.role.pending_isr == {0, 1}
    assert answer(broker, isr=(0, 1))
    assert (partition.role.isr, partition.role.pending_isr, partition.partition_epoch) == ({0, 1}, None, 1)


def test_the_request_names_the_set_in_the_order_of_the_assignment_with_broker_epochs(broker: DataPath) -> None:
    """As of version 3 (KIP-903); our own epoch is the one of our registration."""
    lead(broker, isr=(0,))
    fetched(broker, 1, 0)
    request = broker.replicas.alter_partition.request(3, 5)
    (entry,) = request.topics[0].partitions
    assert [(member.broker_id, member.broker_epoch) for member in entry.new_isr_with_epochs] == [(0, 5), (1, 71)]
    assert (entry.leader_epoch, entry.partition_epoch, request.broker_epoch) == (0, 0, 5)


def test_a_laggard_is_left_out_and_the_watermark_moves_on_only_when_that_is_confirmed(broker: DataPath) -> None:
    """replica.lag.time.max.ms after it was last caught up, and not before the
    controller wrote it."""
    partition = lead(broker, isr=(0, 1))
    fetched(broker, 1, 0)
    fetched(broker, 2, 0)
    answer(broker, isr=(0, 1, 2))
    write(broker, b"a")
    fetched(broker, 2, 1)
    broker.clock.now_ms += LAG_MS + 1
    fetched(broker, 2, 1)
    done_here(broker.replicas.shrink_isrs(broker.clock.wall_ms()))
    assert partition.role.pending_isr == {0, 2}
    assert partition.log.high_watermark == 0
    answer(broker, isr=(0, 2), partition_epoch=2)
    assert partition.log.high_watermark == 1


@pytest.mark.parametrize(
    ("error", "pending", "again"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, None, False),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, None, False),
        (ErrorCode.FENCED_LEADER_EPOCH, {0, 1}, False),
        (ErrorCode.INVALID_UPDATE_VERSION, {0, 1}, False),
        (ErrorCode.INVALID_REQUEST, {0, 1}, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, {0, 1}, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, {0, 1}, True),
        (ErrorCode.NOT_CONTROLLER, {0, 1}, True),
    ],
)
def test_an_error_for_a_partition_ends_the_change_or_repeats_it(
    broker: DataPath, error: ErrorCode, pending: set[int] | None, again: bool
) -> None:
    """What certainly was not written is taken back; what may have been binds us
    until LeaderAndIsr says more."""
    partition = lead(broker, isr=(0,))
    fetched(broker, 1, 0)
    answer(broker, error)
    assert partition.role.pending_isr == pending
    assert broker.replicas.alter_partition.waiting is again


def test_a_follower_that_is_refused_and_goes_silent_holds_no_producer_up(broker: DataPath) -> None:
    """It had all when it asked to join; nothing but time, and the look at who lags,
    happens after that."""
    partition = lead(broker, isr=(0,))
    fetched(broker, 1, 0)
    write(broker, b"a")
    assert partition.log.high_watermark == 0
    answer(broker, ErrorCode.INELIGIBLE_REPLICA)
    assert partition.log.high_watermark == 0, "it may be let in at its next fetch"
    waiting: list[ErrorCode] = []
    when_committed(broker, waiting, 10 * LAG_MS)
    assert waiting == []
    broker.clock.now_ms += LAG_MS + 1
    done_here(broker.replicas.shrink_isrs(broker.clock.wall_ms()))
    broker.purgatory.try_complete_actions()
    assert waiting == [ErrorCode.NONE]


def test_a_refused_join_of_a_dead_follower_lets_the_watermark_go_on_at_once(tmp_path: Path) -> None:
    """The set that was asked for binds us only until the answer."""
    alive = {0, 1, 2}
    broker = DataPath(tmp_path, is_alive=alive.__contains__)
    partition = lead(broker, isr=(0,))
    fetched(broker, 1, 0)
    alive.remove(1)
    write(broker, b"a")
    assert partition.log.high_watermark == 0
    answer(broker, ErrorCode.INELIGIBLE_REPLICA)
    assert partition.log.high_watermark == 1


def test_a_request_that_failed_as_a_whole_is_asked_again_with_what_came_meanwhile(broker: DataPath) -> None:
    """NOT_CONTROLLER, a lost connection: nothing is known, so all of it is asked again."""
    lead(broker, isr=(0,))
    fetched(broker, 1, 0)
    changes = broker.replicas.alter_partition
    first = changes.request(VERSION, 5)
    assert not broker.replicas.handle_alter_partition_response(
        AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER), VERSION, broker.clock.wall_ms()
    )
    assert changes.request(VERSION, 5) == first


def test_a_change_that_the_controller_overtook_is_not_sent(broker: DataPath) -> None:
    """LeaderAndIsr of a new epoch settles the set; what we wanted before is void."""
    lead(broker, isr=(0,))
    fetched(broker, 1, 0)
    lead(broker, isr=(0, 1, 2), epoch=1)
    assert broker.replicas.alter_partition.request(VERSION, 5) is None


def test_a_dead_follower_neither_joins_nor_holds_up_the_watermark(tmp_path: Path) -> None:
    """It was caught up a moment ago, but it is not alive: the leader does not wait for it."""
    broker = DataPath(tmp_path)
    broker.replicas._is_alive = lambda broker_id: broker_id != 2
    partition = lead(broker, isr=(0, 1))
    fetched(broker, 2, 0)
    assert partition.role.pending_isr is None
    write(broker, b"a")
    fetched(broker, 1, 1)
    assert partition.log.high_watermark == 1


def test_in_a_new_epoch_of_the_same_leader_the_followers_positions_stay_known(broker: DataPath) -> None:
    """A member died: the rest goes on at once, without waiting for the survivors' next fetch."""
    partition = lead(broker, isr=(0, 1, 2))
    write(broker, b"a")
    fetched(broker, 1, 1)
    assert partition.log.high_watermark == 0
    lead(broker, isr=(0, 1), epoch=1)
    broker.replicas._is_alive = lambda broker_id: broker_id != 2
    fetched(broker, 1, 1)
    assert partition.log.high_watermark == 1


def test_a_member_that_is_no_replica_any_more_holds_the_watermark_until_it_leaves_the_set(broker: DataPath) -> None:
    """The end of a reassignment: the controller's next write takes it out of the set."""
    partition = lead(broker, isr=(0, 1, 2))
    write(broker, b"a")
    for replica in (1, 2):
        fetched(broker, replica, 1)
    write(broker, b"b")
    fetched(broker, 1, 2)
    broker.lead("t", replicas=(0, 1), isr=(0, 1, 2), epoch=1)
    broker.replicas.follower_fetched(T0, 1, 2, 1, broker.clock.wall_ms(), 71)
    assert partition.log.high_watermark == 1
    broker.lead("t", replicas=(0, 1), isr=(0, 1), epoch=2)
    broker.replicas.follower_fetched(T0, 1, 2, 2, broker.clock.wall_ms(), 71)
    assert partition.log.high_watermark == 2


def test_all_in_sync_have_what_the_slowest_of_both_sets_has(broker: DataPath) -> None:
    """The replicas that an election may choose now, or after the change that is under way."""
    partition = lead(broker)
    write(broker, b"a")
    assert not partition.all_in_sync_have(1)
    fetched(broker, 1, 1)
    assert partition.all_in_sync_have(1)
    partition.role.pending_isr = frozenset({0, 1, 2})
    write(broker, b"b")
    fetched(broker, 1, 2)
    assert not partition.all_in_sync_have(2)
    fetched(broker, 2, 2)
    assert partition.all_in_sync_have(2)
    broker.lead("t", replicas=(0, 1, 2), leader=1, epoch=1)
    assert not partition.all_in_sync_have(1)


def test_a_member_that_is_no_replica_any_more_must_have_what_all_in_sync_have(broker: DataPath) -> None:
    """A new controller could still elect it."""
    partition = lead(broker)
    write(broker, b"a")
    broker.lead("t", replicas=(0, 2), isr=(0, 1), epoch=1)
    assert not partition.all_in_sync_have(1)
    broker.lead("t", replicas=(0, 2), isr=(0,), epoch=2)
    assert partition.all_in_sync_have(1)


def test_with_flush_before_ack_all_in_sync_have_what_the_leader_has_on_stable_storage(broker: DataPath) -> None:
    """A loss of all power would take the rest."""
    partition = lead(broker, isr=(0,))
    write(broker, b"a")
    partition.log.configure(LogConfig({"flush.before.ack": "true"}))
    partition.log.bounds.high_watermark = 0
    assert not partition.all_in_sync_have(1)
    partition.log.flusher.flush(broker.clock.wall_ms())
    assert partition.all_in_sync_have(1)


def test_below_min_insync_replicas_nothing_is_appended_or_committed(broker: DataPath) -> None:
    """acks -1 is refused before the append; what was appended before the set shrank
    is refused after it."""
    broker.configs["t"] = LogConfig({"min.insync.replicas": "2"})
    partition = lead(broker, isr=(0, 1))
    write(broker, b"a", acks=-1)
    codes: list[ErrorCode] = []
    when_committed(broker, codes, 1000)
    partition.role.isr = frozenset({0})
    fetched(broker, 1, 1)
    assert partition.log.high_watermark == 0
    with pytest.raises(KafkaError) as refused:
        write(broker, b"b", acks=-1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    write(broker, b"c", acks=1)
    broker.timers.advance(1000)
    assert codes == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_parked_produce_is_answered_when_the_followers_have_it_and_not_before(broker: DataPath) -> None:
    """Every fetch of the last member that counts completes it; no timer is involved."""
    lead(broker, isr=(0, 1, 2))
    write(broker, b"a", acks=-1)
    codes: list[ErrorCode] = []
    when_committed(broker, codes, 1000)
    for replica in (1, 2):
        assert codes == []
        fetched(broker, replica, 1)
        broker.purgatory.try_complete_actions()
    assert codes == [ErrorCode.NONE]


def test_a_replica_that_lost_records_and_must_lead_says_so_and_forgets_it(
    broker: DataPath, caplog: pytest.LogCaptureFixture
) -> None:
    """It was alone in the in-sync set, or was elected uncleanly: its log is the
    partition from now on."""
    log = lead(broker).log
    broker.lead("t", replicas=(0, 1, 2), leader=1, epoch=1)
    log.note_lost_data(LostData("the log was cut", 0, 5))
    lead(broker, isr=(0,), epoch=2)
    assert log.lost_data is None
    assert "Leading t-0 from offset 0, although its log has lost records: the log was cut" in caplog.text
