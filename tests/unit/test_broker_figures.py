"""What a metrics page counts of partitions in tight passes is what each of them says of itself."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import in_pieces
from barnabas.broker.cluster.znodes import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from barnabas.broker.controller.context import ControllerContext, PartitionState
from barnabas.broker.monitoring.figures import _imbalanced, _offline, _Replicas
from barnabas.broker.replication.partition import Follower, FollowerProgress, Leader, Partition
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producer_state import WITHOUT_VERIFICATION
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.records import Record, build_batch

LOGS = 5
LATE_MS = 1000
BROKERS = st.lists(st.integers(1, 4), unique=True, min_size=1).map(tuple)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[PartitionLog]]:
    """Logs in two dirs, of several segments each; some know producers with open transactions."""
    folders = [str(tmp_path_factory.mktemp("dir")) for _ in range(2)]
    config = LogConfig({"segment.bytes": "200"})
    dirs = LogDirs(OsFiles(), folders, config, broker_id=1, cluster_id="cluster", rng=random.Random(7))
    dirs.load(LATE_MS, {})
    found = [dirs.get_or_create(TopicPartition("t", number), Uuid(bytes(16)), config, 0) for number in range(LOGS)]
    for number, log in enumerate(found):
        for _ in range(3 * number):
            data = build_batch([Record(0, LATE_MS, b"k", b"v" * 50)])
            log.append_as_leader(data, leader_epoch=0, now_ms=LATE_MS, guard=WITHOUT_VERIFICATION)
        for producer in range(number):
            log.producers.add_batch(producer, 0, 0, 100 + producer, 100 + producer, LATE_MS - 2 + number, True)
    assert len({len(log.segments) for log in found}) > 2
    yield found
    dirs.close(clean=False)


@st.composite
def partitions(draw: st.DrawFn, log: PartitionLog) -> Partition:
    partition = Partition(log.topic_partition, 1, log)
    partition.replicas = draw(BROKERS)
    partition.adding_replicas, partition.removing_replicas = draw(st.sampled_from([((), ()), ((4,), ()), ((), (1,))]))
    followers = {broker: FollowerProgress() for broker in partition.replicas if broker != 1}
    leader = Leader(0, frozenset(draw(BROKERS)), followers=followers)
    partition.role = draw(st.sampled_from([None, Follower(2), leader, leader]))
    log.configure(LogConfig({"min.insync.replicas": str(draw(st.integers(1, 3)))}))
    log.availability.reason = draw(st.sampled_from([None, None, None, "lost"]))
    return partition


@given(data=st.data())
def test_partitions_are_counted_together_as_each_describes_itself(
    logs: list[PartitionLog], data: st.DataObject
) -> None:
    """Whatever their roles, in-sync sets, settings, segments and log dirs."""
    each = [data.draw(partitions(log)) for log in logs]
    found = _Replicas(LATE_MS)
    for piece in in_pieces(each, 2):
        found.add(piece)
    online = [partition for partition in each if not partition.offline]
    leaders = [(partition, partition.leading()) for partition in online if partition.is_leader]
    sizes: dict[str, int] = {}
    for partition in online:
        folder = str(Path(partition.log.directory).parent)
        sizes[folder] = sizes.get(folder, 0) + sum(segment.size for segment in partition.log.segments)
    assert found.sizes == sizes
    assert found.offline == len(each) - len(online)
    assert found.leaders == len(leaders)
    assert found.producer_ids == sum(len(partition.log.producers.entries) for partition in online)
    times_ms = [partition.log.producers.oldest_transaction_ms for partition, _ in leaders]
    assert found.late_transactions == sum(time_ms is not None and 0 < time_ms < LATE_MS for time_ms in times_ms)
    assert found.reassigning == sum(bool(one.adding_replicas or one.removing_replicas) for one, _ in leaders)
    assert found.under_min_isr == sum(partition.is_under_min_isr(role) for partition, role in leaders)
    assert found.at_min_isr == sum(partition.above_min_isr(role) == 0 for partition, role in leaders)
    assert found.under_replicated == sum(
        len(role.isr) < len(partition.replicas) - len(partition.adding_replicas) for partition, role in leaders
    )


def test_topics_being_deleted_and_unknown_partitions_are_neither_offline_nor_imbalanced() -> None:
    """A partition counts as imbalanced where another replica than its first one leads."""
    context = ControllerContext(1)
    led_by_2 = LeaderIsrAndControllerEpoch(LeaderAndIsr(2, 0, (2,)), 1)
    names = ("first", "other", "deleted", "unassigned", "unknown")
    for name, replicas in zip(names, ((2, 1), (1, 2), (1, 2), ()), strict=False):
        context.set_assignment(TopicPartition(name, 0), ReplicaAssignment(replicas))
    context.to_delete.add("deleted")
    leadership = [(TopicPartition(name, 0), led_by_2) for name in names]
    leadership.append((TopicPartition("other", 1), led_by_2))
    assert _imbalanced(context, leadership) == 1
    states = [(TopicPartition(name, 0), PartitionState.OFFLINE) for name in ("first", "deleted")]
    assert _offline(context, [*states, (TopicPartition("other", 0), PartitionState.ONLINE)]) == 1
