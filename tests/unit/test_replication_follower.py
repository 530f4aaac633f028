"""What a follower decides: sessions, truncation, and a fetcher that copies from a real
leader's dispatch and log."""

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.broker.replication import fetch_session_handler, fetcher
from barnabas.broker.replication.fetch_session_handler import MAX_NEW_PARTITIONS, FetchSessionHandler
from barnabas.broker.replication.offset_truncation import Truncation, truncation_for
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition_fetch_state import (
    FETCH_TRANSITIONS,
    FetchEvent,
    FetchState,
    IllegalTransitionError,
    PartitionFetchState,
    PartitionFetchStates,
)
from barnabas.log.lost_data import LostData
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from support.acl_entries import auth_helper, on_cluster
from support.broker import DATA_PATH_APIS, START_MS, batch
from support.following import LIMITS, VERSION, Pair

T0 = TopicPartition("t", 0)
TOPIC_ID = Uuid(bytes(15) + b"\x07")


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def bytes_of(log: PartitionLog) -> bytes:
    return b"".join(segment.file.read_at(0, segment.size) for segment in log.segments)


def write(log: PartitionLog, epoch: int, *values: bytes) -> None:
    log.append_as_leader(batch(*values), leader_epoch=epoch, now_ms=START_MS)


# Copying


@pytest.mark.parametrize(
    ("highest", "topic_id", "version"),
    [(17, ZERO_UUID, 12), (12, ZERO_UUID, 12), (11, ZERO_UUID, 11), (17, TOPIC_ID, 17), (12, TOPIC_ID, 12)],
)
def test_topics_are_fetched_by_id_only_when_every_id_is_known(
    pair: Pair, highest: int, topic_id: Uuid, version: int
) -> None:
    """Fetch names topics by their ids from version 13 on; a controller before Kafka
    2.8 gives them none."""
    for name, its_id in (("known", TOPIC_ID), ("other", topic_id)):
        topic_partition = TopicPartition(name, 0)
        log = pair.log_dirs.get_or_create(topic_partition, its_id, LogConfig(), START_MS)
        pair.fetcher.follow(Partition(topic_partition, 1, log))
    assert pair.fetcher.fetch_version(highest) == version
    pair.fetcher.unfollow(TopicPartition("other", 0))
    assert pair.fetcher.fetch_version(highest) == highest


def test_a_follower_has_the_leaders_bytes_and_learns_what_is_committed(pair: Pair) -> None:
    """The fetch after the copy is the acknowledgement, and its answer has the high watermark."""
    leader = pair.lead(0)
    write(leader, 0, b"a", b"b")
    pair.follow(0)
    pair.turn()
    follower = pair.follower_log()
    assert bytes_of(follower) == bytes_of(leader)
    assert (leader.high_watermark, follower.high_watermark) == (0, 0)
    pair.turn()
    assert (leader.high_watermark, follower.high_watermark) == (2, 2)
    assert pair.changed == [T0]


def test_a_request_after_the_first_names_only_what_moved(pair: Pair) -> None:
    """Of two partitions the one that got records is asked for again, the other stays
    in the session."""
    other = TopicPartition("t", 1)
    pair.lead(0)
    pair.lead(0, other)
    pair.follow(0)
    pair.follow(0, other)
    pair.turn()
    pair.leader.replicas.append(T0, batch(b"a"), acks=1, now_ms=START_MS)
    pair.turn()
    request = done_here(pair.fetcher.request(VERSION, -1, 0))
    assert [(topic.topic, [p.partition for p in topic.partitions]) for topic in request.topics] == [("t", [0])]
    assert request.session_epoch == 2


def test_an_answer_to_what_was_asked_before_a_change_of_role_is_not_applied(pair: Pair) -> None:
    """Between question and answer the partition moved to another epoch: the records
    may be another leader's."""
    leader = pair.lead(0)
    write(leader, 0, b"a")
    pair.follow(0)
    response = pair.wire.ask(done_here(pair.fetcher.request(VERSION, -1, 0)), VERSION)
    pair.lead(1)
    pair.follow(1)
    done_here(pair.fetcher.handle_response(response, VERSION, 0, START_MS))
    assert pair.follower_log().log_end_offset == 0
    pair.turn()
    assert bytes_of(pair.follower_log()) == bytes_of(leader)


def test_roles_that_change_while_an_answer_is_handled_in_slices_count_for_what_is_left_of_it(pair: Pair) -> None:
    """Of three partitions one is copied, one is led here by then, one moved to another
    epoch and is asked for again."""
    names = [TopicPartition("t", number) for number in range(3)]
    for name in names:
        write(pair.lead(0, name), 0, b"a")
        pair.follow(0, name)
    response = pair.wire.ask(done_here(pair.fetcher.request(VERSION, -1, 0)), VERSION)
    handling = pair.fetcher.handle_response(response, VERSION, 0, START_MS)
    next(handling)
    next(handling)
    pair.fetcher.unfollow(names[1])
    pair.lead(1, names[2])
    pair.follow(1, names[2])
    done_here(handling)
    assert [pair.follower_log(name).log_end_offset for name in names] == [1, 0, 0]
    pair.turn()
    assert [pair.follower_log(name).log_end_offset for name in names] == [1, 0, 1]


def test_a_partition_that_leaves_while_a_request_is_made_in_slices_is_not_asked_for(pair: Pair) -> None:
    """One that comes back in a new epoch is asked for by the next request."""
    names = [TopicPartition("t", number) for number in range(3)]
    for name in names:
        write(pair.lead(0, name), 0, b"a")
        pair.follow(0, name)
    asking = pair.fetcher.request(VERSION, -1, 0)
    next(asking)
    next(asking)
    pair.fetcher.unfollow(names[1])
    pair.lead(1, names[2])
    pair.follow(1, names[2])
    request = done_here(asking)
    assert [partition.partition for topic in request.topics for partition in topic.partitions] == [0]
    done_here(pair.fetcher.handle_response(pair.wire.ask(request, VERSION), VERSION, 0, START_MS))
    pair.turn()
    assert [pair.follower_log(name).log_end_offset for name in names] == [1, 0, 1]


def test_a_request_that_is_made_while_a_partition_comes_does_not_wait_at_the_leader(pair: Pair) -> None:
    """The next one has it."""
    for number in range(2):
        pair.lead(0, TopicPartition("t", number))
        pair.follow(0, TopicPartition("t", number))
    copying = pair.fetcher = pair.another_fetcher(limits=replace(LIMITS, wait_ms=500))
    for partition in pair.partitions.values():
        copying.follow(partition)
    asking = copying.request(VERSION, -1, 500)
    next(asking)
    pair.lead(0, TopicPartition("t", 2))
    pair.follow(0, TopicPartition("t", 2))
    request = done_here(asking)
    assert request.max_wait_ms == 0
    assert done_here(copying.handle_response(pair.wire.ask(request, VERSION), VERSION, 0, START_MS))
    assert [partition.partition for partition in done_here(copying.request(VERSION, -1, 500)).topics[0].partitions] == [
        2
    ]


def test_the_contents_of_an_answer_that_was_not_applied_are_sent_again(pair: Pair) -> None:
    """The leader believes that the follower has the high watermark; the follower was in
    another role when it came."""
    write(pair.lead(0), 0, b"a")
    pair.follow(0)
    pair.turn()
    response = pair.wire.ask(done_here(pair.fetcher.request(VERSION, -1, 0)), VERSION)
    pair.lead(1)
    pair.follow(1)
    done_here(pair.fetcher.handle_response(response, VERSION, 0, START_MS))
    assert pair.follower_log().high_watermark == 0
    pair.turn()
    assert pair.follower_log().high_watermark == 1


def test_a_follower_without_the_right_says_so_once_and_copies_when_it_has_it(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """In one line for all partitions, once a minute."""
    names = [TopicPartition("t", number) for number in range(3)]
    for name in names:
        write(pair.lead(0, name), 0, b"a")
        pair.follow(0, name)
    pair.leader.serve(DATA_PATH_APIS, auth_helper=auth_helper())
    pair.wire = pair.leader.connect()
    for _ in range(3):
        pair.turn()
        pair.now_ms += 1000
        pair.fetcher.wake(pair.now_ms)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "3 partitions cannot be copied: the principal of this broker needs ClusterAction on the cluster and Describe "
        "on the topics, by ACLs or as one of super.users: t-0, t-1, t-2"
    ]
    pair.leader.serve(DATA_PATH_APIS, auth_helper=auth_helper(on_cluster(AclOperation.CLUSTER_ACTION)))
    pair.wire = pair.leader.connect()
    pair.turn()
    assert [pair.follower_log(name).log_end_offset for name in names] == [1, 1, 1]


def test_a_later_epoch_at_the_leader_makes_the_follower_wait_for_the_controller(pair: Pair) -> None:
    """FENCED_LEADER_EPOCH: asking again is of no use until LeaderAndIsr comes, and
    then all goes on."""
    leader = pair.lead(0)
    pair.follow(0)
    pair.lead(3)
    write(leader, 3, b"a")
    pair.turn()
    assert pair.fetcher.state_of(T0) is FetchState.FAILED
    assert not pair.fetcher.wants_fetch
    pair.follow(3)
    pair.turn()
    assert bytes_of(pair.follower_log()) == bytes_of(leader)


def test_a_leader_that_does_not_know_it_yet_is_asked_again_soon_then_less_often(pair: Pair) -> None:
    """The back-off begins small, doubles and is bounded."""
    pair.lead(0)
    pair.follow(1)
    waits = []
    for _ in range(5):
        pair.turn()
        assert pair.fetcher.state_of(T0) is FetchState.DELAYED
        waits.append(pair.fetcher.wake(pair.now_ms))
        pair.now_ms += waits[-1]
        assert pair.fetcher.wake(pair.now_ms) is None
        assert pair.fetcher.state_of(T0) is FetchState.STARTING
    assert waits == [20, 40, 80, 100, 100]


def test_a_follower_before_the_leaders_start_begins_there(pair: Pair) -> None:
    """What the leader deleted cannot be had: the log starts again at the leader's start."""
    leader = pair.lead(0)
    write(leader, 0, b"a", b"b", b"c")
    leader.update_high_watermark(3)
    leader.delete_records_before(3)
    write(leader, 0, b"d")
    pair.follow(0)
    pair.turn()
    assert pair.fetcher.state_of(T0) is FetchState.LOCATING
    pair.locate()
    pair.turn()
    follower = pair.follower_log()
    assert (follower.log_start_offset, follower.log_end_offset) == (3, 4)


def test_an_epoch_without_records_that_the_leader_does_not_know_is_forgotten(pair: Pair) -> None:
    """The follower led in it; a leader that knows no epoch, or none so late, cannot say where it
    ended."""
    pair.lead(2).leader_epochs.clear()
    pair.follower_log().leader_epochs.begin_unwritten(1, 0)
    pair.follow(2)
    pair.turn()
    assert pair.fetcher.state_of(T0) is FetchState.LOCATING
    pair.locate()
    pair.turn()
    assert pair.fetcher.state_of(T0) is FetchState.FETCHING
    progress = pair.leader.replicas.partition(T0).leading().followers[1]
    assert progress.log_end_offset == 0


def test_a_leader_that_does_not_know_the_epoch_of_our_last_record_is_asked_less_and_less_often(pair: Pair) -> None:
    """Until it knows an epoch."""
    leader = pair.lead(2)
    for log in (leader, pair.follower_log()):
        write(log, 1, b"a")
    leader.leader_epochs.clear()
    pair.follow(2)
    waits = []
    for _ in range(3):
        pair.turn()
        pair.locate()
        assert pair.fetcher.state_of(T0) is FetchState.DELAYED
        wait_ms = pair.fetcher.wake(pair.now_ms)
        assert wait_ms is not None
        waits.append(wait_ms)
        pair.now_ms += wait_ms
        pair.fetcher.wake(pair.now_ms)
    assert waits == [20, 40, 80]
    write(leader, 2, b"b")
    pair.turn()
    assert bytes_of(pair.follower_log()) == bytes_of(leader)


def test_a_start_inside_a_batch_is_taken_with_the_whole_batch(pair: Pair) -> None:
    """DeleteRecords may cut within a batch; a new replica gets the batch and begins
    where the leader begins."""
    leader = pair.lead(0)
    write(leader, 0, b"a", b"b", b"c")
    leader.update_high_watermark(3)
    leader.delete_records_before(2)
    pair.follow(0)
    pair.turn()
    pair.locate()
    pair.turn()
    pair.turn()
    follower = pair.follower_log()
    assert bytes_of(follower) == bytes_of(leader)
    assert (follower.log_start_offset, follower.log_end_offset) == (2, 3)


def test_a_partition_whose_disk_failed_is_dropped_alone(pair: Pair) -> None:
    """The others of the same leader are copied on."""
    other = TopicPartition("t", 1)
    for name in (T0, other):
        write(pair.lead(0, name), 0, b"a")
        pair.follow(0, name)
    pair.follower_log().availability.take_offline("gone")
    pair.turn()
    assert pair.fetcher.state_of(T0) is FetchState.FAILED
    assert pair.follower_log(other).log_end_offset == 1


def test_a_corrupt_batch_is_not_appended_and_asked_for_again(pair: Pair) -> None:
    """A CRC that does not hold is a reason to try again, not to store it."""
    pair.lead(0)
    pair.follow(0)
    done_here(pair.fetcher.request(VERSION, -1, 0))
    broken = batch(b"a")
    broken[-1] ^= 1
    data = PartitionData(partition_index=0, high_watermark=0, records=memoryview(broken))
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    done_here(pair.fetcher.handle_response(response, VERSION, 0, START_MS))
    assert pair.follower_log().log_end_offset == 0
    assert pair.fetcher.state_of(T0) is FetchState.DELAYED


# What was lost


def test_a_batch_that_can_never_be_appended_is_asked_for_less_and_less_often_and_reported_once(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Each pause is twice the one before, up to the limit; the line comes again after a minute,
    with the number of attempts."""
    leader_log = pair.lead(1)
    pair.append(T0, b"a")
    file = Path(leader_log.segments.active.path)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    pair.follow(1)
    pauses = []
    for _ in range(10):
        pair.turn()
        pause = pair.fetcher.wake(pair.now_ms)
        assert pause is not None
        pauses.append(pause)
        pair.now_ms += pause
        pair.fetcher.wake(pair.now_ms)
    assert pauses == [20, 40, 80, *[pair.limits.backoff_ms] * 7]
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(lines) == 1
    assert "t-0 cannot be copied from offset 0 on (attempt 1)" in lines[0]
    pair.now_ms += 60_000
    pair.turn()
    assert "(attempt 11)" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("epoch", [0, 9])
def test_a_batch_of_an_epoch_that_cannot_be_is_not_appended(
    pair: Pair, epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is older than the record before it, and one that is later than the leader's own."""
    leader_log = pair.lead(2)
    pair.append(T0, b"a")
    pair.append(T0, b"b")
    file = Path(leader_log.segments.active.path)
    data = bytearray(file.read_bytes())
    data[len(data) // 2 + 15] = epoch
    file.write_bytes(data)
    pair.follow(2)
    pair.turn()
    assert pair.follower_log().log_end_offset <= 1
    assert f"has leader epoch {epoch}" in caplog.text


def test_records_of_a_later_epoch_than_the_partitions_are_copied_again(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged epoch at the end of the log would keep the follower asking for ever."""
    leader_log = pair.lead(1)
    pair.append(T0, b"a")
    pair.follow(1)
    pair.turn()
    pair.follower_log().append_as_leader(batch(b"b"), leader_epoch=9, now_ms=START_MS)
    pair.append(T0, b"b")
    pair.lead(2)
    pair.follow(2)
    assert "leader epoch 9, and the partition is in epoch 2" in caplog.text
    pair.turn()
    pair.turn()
    assert pair.follower_log().log_end_offset == leader_log.log_end_offset == 2
    assert pair.follower_log().leader_epochs.latest_epoch == 1


def test_a_replica_that_lost_records_forgets_it_when_it_has_them_all_again(pair: Pair) -> None:
    """Not while the leader's high watermark alone, which may lag after an election, is reached."""
    leader = pair.lead(0)
    write(leader, 0, b"a", b"b")
    write(leader, 0, b"c")
    follower = pair.follower_log()
    follower.note_lost_data(LostData("cut", 0, 3))
    pair.limits = replace(LIMITS, partition_bytes=1)
    pair.fetcher = pair.another_fetcher()
    pair.follow(0)
    pair.turn()
    assert follower.log_end_offset == 2
    assert follower.lost_data is not None
    pair.turn()
    assert follower.log_end_offset == 3
    assert follower.lost_data is None


def test_a_high_watermark_that_has_not_moved_does_not_show_that_a_replica_has_all_again(pair: Pair) -> None:
    """The leader started just now and does not know it; the checkpoint that shows the loss
    was some seconds old, too."""
    leader = pair.lead(0)
    write(leader, 0, b"a", b"b")
    write(leader, 0, b"c")
    follower = pair.follower_log()
    follower.note_lost_data(LostData("cut", 0, 2))
    pair.limits = replace(LIMITS, partition_bytes=1)
    pair.fetcher = pair.another_fetcher()
    pair.follow(0)
    pair.turn()
    assert (follower.log_end_offset, leader.high_watermark) == (2, 0)
    assert follower.lost_data is not None
    pair.turn()
    assert (follower.log_end_offset, leader.high_watermark) == (3, 2)
    assert follower.lost_data is None


def test_an_answer_full_of_records_of_others_does_not_show_that_the_leader_has_no_more(pair: Pair) -> None:
    """They may have left no room for the partition's own records."""
    other = TopicPartition("t", 1)
    for name in (T0, other):
        write(pair.lead(0, name), 0, b"a")
    follower = pair.follower_log()
    follower.note_lost_data(LostData("cut", 0, 9))
    for name in (T0, other):
        pair.follow(0, name)
    full = PartitionData(partition_index=1, high_watermark=0, records=memoryview(batch(b"a")))
    empty = PartitionData(partition_index=0, high_watermark=0)
    for others, is_known in (([full], True), ([], False)):
        done_here(pair.fetcher.request(VERSION, -1, 0))
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[empty, *others])])
        done_here(pair.fetcher.handle_response(response, 12, 0, START_MS))
        assert (follower.lost_data is not None) is is_known


def test_a_replica_forgets_what_it_lost_when_its_leader_has_no_more_either(pair: Pair) -> None:
    """After an unclean election the records are gone everywhere: its length of
    before is never reached."""
    write(pair.lead(0), 0, b"a")
    follower = pair.follower_log()
    follower.note_lost_data(LostData("cut", 0, 9))
    pair.follow(0)
    pair.turn()
    assert follower.lost_data is not None
    pair.turn()
    assert follower.high_watermark == follower.log_end_offset == 1
    assert follower.lost_data is None


def test_a_replica_that_gets_all_it_lost_at_once_forgets_it_by_a_response_that_does_not_name_it(pair: Pair) -> None:
    """In a fetch session the leader is silent about a partition whose records and
    high watermark are known."""
    pair.lead(0, isr=(0,))
    pair.append(T0, b"a")
    follower = pair.follower_log()
    follower.note_lost_data(LostData("cut", 0, 1))
    pair.follow(0)
    pair.turn()
    assert follower.high_watermark == follower.log_end_offset == 1
    assert follower.lost_data is not None
    pair.turn()
    assert follower.lost_data is None


# What is behind goes its own way


def test_a_partition_that_is_behind_changes_fetchers_and_comes_back_in_sync(tmp_path: Path) -> None:
    """Only what lies beyond one answer is behind; nothing is copied twice or left
    out on either way."""
    other = TopicPartition("t", 1)
    pair = Pair(tmp_path, limits=replace(LIMITS, partition_bytes=1), for_in_sync=True)
    for name in (T0, other):
        pair.lead(0, name, isr=(0,))
        pair.append(name, b"a")
        pair.follow(0, name)
    pair.append(T0, b"b")
    pair.append(T0, b"c")
    pair.turn()
    pair.turn()
    first, second = pair.fetcher, pair.another_fetcher(for_in_sync=False)
    assert first.leaving() == [T0]
    second.take_over(first, T0)
    assert (len(first), len(second)) == (1, 1)
    pair.fetcher, pair.wire = second, pair.leader.connect()
    for _ in range(3):
        pair.turn()
    assert pair.follower_log().log_end_offset == 3
    assert second.leaving() == [T0]
    first.take_over(second, T0)
    assert (len(first), len(second)) == (2, 0)
    pair.append(T0, b"d")
    pair.fetcher, pair.wire = first, pair.leader.connect()
    pair.turn()
    pair.turn()
    assert bytes_of(pair.follower_log()) == bytes_of(pair.leader.replicas.partition(T0).log)
    assert first.leaving() == []


def test_an_answer_to_the_fetcher_that_had_a_partition_before_is_not_applied(tmp_path: Path) -> None:
    """It may come after the other one has gone on."""
    pair = Pair(tmp_path, for_in_sync=True)
    pair.lead(0)
    pair.append(T0, b"a")
    pair.follow(0)
    first, second = pair.fetcher, pair.another_fetcher(for_in_sync=False)
    response = pair.wire.ask(done_here(first.request(VERSION, -1, 0)), VERSION)
    second.take_over(first, T0)
    done_here(first.handle_response(response, VERSION, 0, START_MS))
    assert pair.follower_log().log_end_offset == 0


# Truncation


@pytest.mark.parametrize(
    ("leader_epoch", "end_offset", "expected"),
    [
        (2, 3, Truncation(3, True)),  # the leader's epoch ended before ours
        (2, 9, Truncation(4, True)),  # ours ended before the leader's
        # An unknown epoch: truncate to the end of our epoch before it, and ask again.
        (3, 5, Truncation(4, False)),
        (0, 1, Truncation(1, True)),
        (-1, 2, Truncation(2, True)),  # the leader knows no epoch for it
        (-1, -1, Truncation(1, True)),  # nor an end: the high watermark
    ],
)
def test_the_truncation_point_follows_the_epochs_of_both(
    pair: Pair, leader_epoch: int, end_offset: int, expected: Truncation
) -> None:
    """Our log: epoch 0 at [0, 2), epoch 2 at [2, 4), epoch 5 at [4, 5); high watermark 1."""
    log = pair.follower_log()
    for epoch, values in ((0, (b"a", b"b")), (2, (b"c", b"d")), (5, (b"e",))):
        write(log, epoch, *values)
    log.update_high_watermark(1)
    assert truncation_for(log, leader_epoch, end_offset) == expected


def aligning(pair: Pair) -> None:
    """A follower with epochs 0 and 2 behind a source that speaks Fetch 11 and leads in epoch 3."""
    for log in (pair.lead(0), pair.follower_log()):
        write(log, 0, b"a")
    write(pair.follower_log(), 2, b"b")
    pair.lead(3)
    pair.follow(3)
    pair.fetcher.speak(11)
    assert pair.fetcher.state_of(T0) is FetchState.TRUNCATING


def test_an_old_source_is_asked_where_our_last_epoch_ended_before_any_fetch(pair: Pair) -> None:
    """Fetch before version 12 cannot report that the logs differ: what the source
    lacks goes first."""
    aligning(pair)
    assert not pair.fetcher.wants_fetch
    request = pair.fetcher.epochs.request()
    assert [(p.current_leader_epoch, p.leader_epoch) for p in request.topics[0].partitions] == [(3, 2)]
    pair.fetcher.epochs.handle_response(pair.wire.ask(request, 4), 0)
    assert pair.follower_log().log_end_offset == 1
    pair.turn()
    assert pair.fetcher.state_of(T0) is FetchState.FETCHING


@pytest.mark.parametrize("topics", [[], [OffsetForLeaderTopicResult(topic="t", partitions=[])]])
def test_a_source_that_leaves_a_partition_out_is_asked_again_after_a_pause(
    pair: Pair, topics: list[OffsetForLeaderTopicResult]
) -> None:
    """Not at once: it would never stop."""
    aligning(pair)
    pair.fetcher.epochs.handle_response(OffsetForLeaderEpochResponse(topics=topics), 0)
    assert pair.fetcher.state_of(T0) is FetchState.DELAYED
    pair.fetcher.wake(20)
    pair.fetcher.speak(11)
    assert pair.fetcher.state_of(T0) is FetchState.TRUNCATING


counts = st.lists(st.integers(1, 3), max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    common=counts,
    ours=counts,
    theirs=counts,
    interleaving=st.lists(st.booleans(), min_size=8, max_size=8),
    version=st.sampled_from((11, 12)),
)
def test_diverged_logs_become_equal_and_keep_what_they_shared(
    common: Sequence[int], ours: Sequence[int], theirs: Sequence[int], interleaving: Sequence[bool], version: int
) -> None:
    """However epochs fell on the two sides: the follower cuts what the leader lacks,
    and not one record more.

    A source of version 12 reports in its answers where the logs differ; one of version 11 is
    asked before the first fetch.
    """
    with tempfile.TemporaryDirectory() as directory:
        pair = Pair(Path(directory), version=version)
        leader, follower = pair.lead(0), pair.follower_log()
        for epoch, count in enumerate(common):
            for log in (leader, follower):
                write(log, epoch, *[b"x"] * count)
        epoch = len(common)
        left, right = list(ours), list(theirs)
        for turn in interleaving:
            side, log = (left, follower) if turn else (right, leader)
            if side:
                write(log, epoch, *[b"%d" % epoch] * side.pop())
                epoch += 1
        pair.lead(epoch + 1)
        shared = sum(common)
        least = follower.log_end_offset
        pair.follow(epoch + 1)
        for _ in range(12):
            pair.turn()
            least = min(least, follower.log_end_offset)
        assert bytes_of(follower) == bytes_of(leader)
        assert least >= shared
        assert follower.high_watermark == leader.log_end_offset


# States


def test_every_state_but_the_first_is_entered_from_another_and_only_failed_has_no_way_out() -> None:
    """The table has no state that a partition cannot reach, and none that it cannot
    leave without the controller."""
    entered = {after for events in FETCH_TRANSITIONS.values() for after in events.values()}
    assert entered == set(FetchState)
    assert [state for state in FetchState if not FETCH_TRANSITIONS[state]] == [FetchState.FAILED]


@pytest.mark.parametrize("state", FetchState)
@pytest.mark.parametrize("event", FetchEvent)
def test_a_partition_moves_as_the_table_says_and_no_other_way(pair: Pair, state: FetchState, event: FetchEvent) -> None:
    """An event that a state does not know raises, and leaves the partition where it was."""
    states, fetched = PartitionFetchStates(), PartitionFetchState(Partition(T0, 1, pair.follower_log()))
    states.add(fetched)
    for step in PATHS[state]:
        states.move(fetched, step)
    assert fetched.state is state
    if event in FETCH_TRANSITIONS[state]:
        states.move(fetched, event)
        assert fetched.state is FETCH_TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalTransitionError):
            states.move(fetched, event)
        assert fetched.state is state
    assert [found for found in FetchState if T0 in states.within(found)] == [fetched.state]


PATHS = {
    FetchState.STARTING: (),
    FetchState.TRUNCATING: (FetchEvent.DIVERGENCE_IS_UNKNOWN,),
    FetchState.FETCHING: (FetchEvent.DIVERGENCE_IS_REPORTED,),
    FetchState.LOCATING: (FetchEvent.DIVERGENCE_IS_REPORTED, FetchEvent.OFFSET_OUT_OF_RANGE),
    FetchState.DELAYED: (FetchEvent.DIVERGENCE_IS_REPORTED, FetchEvent.ERROR),
    FetchState.FAILED: (FetchEvent.DIVERGENCE_IS_REPORTED, FetchEvent.FENCED),
}


# Sessions

A, B, C = (TopicPartition(topic, 0) for topic in "abc")


def session_of(*wanted: TopicPartition) -> FetchSessionHandler:
    session = FetchSessionHandler()
    for topic_partition in wanted:
        session.add(topic_partition, ZERO_UUID)
    return session


def test_a_session_is_whole_first_then_incremental_then_whole_after_a_lost_answer() -> None:
    """A lost answer leaves it open what the other side knows."""
    session = session_of(A, B)
    assert session.next() == (0, 0, [A, B], [], True)
    assert session.handle_response(7, ErrorCode.NONE)
    session.remove(B)
    session.add(C, ZERO_UUID)
    assert session.next() == (7, 1, [C], [(B, ZERO_UUID)], True)
    assert session.handle_response(7, ErrorCode.NONE)
    assert session.next() == (7, 2, [], [], True)
    session.lost()
    assert session.next() == (7, 0, [A, C], [], True)


def test_an_incremental_request_names_what_changed_and_costs_no_look_at_the_rest() -> None:
    """With thousands of partitions in a session, a request for one that moved on names that one."""
    wanted = [TopicPartition("t", index) for index in range(5000)]
    session = session_of(*wanted)
    while not session.next().names_all:
        session.handle_response(7, ErrorCode.NONE)
    session.handle_response(7, ErrorCode.NONE)
    session.change(wanted[4321])
    assert session.changed_partitions() == [wanted[4321]]
    assert session.next() == (7, 5, [wanted[4321]], [], True)
    assert session.changed_partitions() == []


def test_thousands_of_new_partitions_are_named_in_several_requests_of_a_session() -> None:
    """Whether the session is new or was lost; what moved on is named at once, for the other
    side would send it again."""
    wanted = [TopicPartition("t", index) for index in range(2 * MAX_NEW_PARTITIONS + 1)]
    session = session_of(*wanted)
    for _ in range(2):
        assert session.next() == (session._id, 0, wanted[:MAX_NEW_PARTITIONS], [], False)
        session.handle_response(7, ErrorCode.NONE)
        session.change(wanted[0])
        session.remove(wanted[-1])
        session.add(wanted[-1], ZERO_UUID)
        assert session.next() == (7, 1, [wanted[0], *wanted[MAX_NEW_PARTITIONS : 2 * MAX_NEW_PARTITIONS]], [], False)
        session.handle_response(7, ErrorCode.NONE)
        assert session.next() == (7, 2, [wanted[-1]], [], True)
        session.lost()


def test_without_a_session_each_request_names_all() -> None:
    """The other side remembers nothing, so what is not named is not fetched."""
    wanted = [TopicPartition("t", index) for index in range(2 * MAX_NEW_PARTITIONS)]
    session = session_of(*wanted)
    assert not session.next().names_all
    session.handle_response(0, ErrorCode.NONE)
    assert session.next() == (0, 0, wanted, [], True)
    session.handle_response(7, ErrorCode.NONE)
    session.lost()
    assert not session.next().names_all


def test_a_fetch_that_leaves_partitions_out_does_not_wait_at_the_leader(pair: Pair) -> None:
    """The rest is asked for at once."""
    names = [TopicPartition("t", number) for number in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        for module in (fetcher, fetch_session_handler):
            patch.setattr(module, "MAX_NEW_PARTITIONS", 2)
        pair.fetcher = pair.another_fetcher(limits=replace(LIMITS, wait_ms=500))
        for name in names:
            write(pair.lead(0, name), 0, b"a")
            pair.follow(0, name)
        for named, wait_ms in ((2, 0), (3, 500)):
            request = done_here(pair.fetcher.request(VERSION, -1, 500))
            assert (sum(len(topic.partitions) for topic in request.topics), request.max_wait_ms) == (named, wait_ms)
            done_here(pair.fetcher.handle_response(pair.wire.ask(request, VERSION), VERSION, 0, START_MS))
    assert [pair.follower_log(name).log_end_offset for name in names] == [1, 1, 1]


def test_a_topic_with_another_id_under_the_same_name_ends_the_session() -> None:
    """The other side knows the partition by the id of the deleted topic, and cannot
    forget it by the new one."""
    session = session_of(A, B)
    session.next()
    session.handle_response(7, ErrorCode.NONE)
    session.remove(A)
    session.add(A, Uuid(bytes(15) + b"\5"))
    assert session.next() == (7, 0, [B, A], [], True)


@pytest.mark.parametrize(
    ("error", "session_id"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)],
)
def test_after_a_refused_session_the_next_request_is_whole(error: ErrorCode, session_id: int) -> None:
    """A session that the other side forgot is not named; one out of step is, so that
    it is dropped there."""
    session = session_of(A)
    session.next()
    session.handle_response(7, ErrorCode.NONE)
    session.next()
    assert not session.handle_response(0, error)
    assert session.next() == (session_id, 0, [A], [], True)
