"""Lag of real groups on real clusters, ours and Apache's of both modes: against the records' own
timestamps, with access control lists, and without rights."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any

import confluent_kafka
import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli.main import main
from barnabas.client import Admin, Producer
from barnabas.client.admin.acls import Acl
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import RefusedError
from barnabas.lag.monitor import LagMonitor
from barnabas.lag.values import GroupKind, GroupLag, LagReport, LagState, PartitionLag, TimeSource
from barnabas.testing import Cluster
from support.needs import needs_reference
from support.ports import free_ports
from support.reference import apache_single, apache_tool
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference, pytest.mark.timeout(300)]

LISTENER = "listener.name.sasl_plaintext."
SETTINGS = {
    "super.users": "User:ANONYMOUS",
    f"{LISTENER}sasl.enabled.mechanisms": "PLAIN",
    f"{LISTENER}plain.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="pw";',
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "share.coordinator.state.topic.num.partitions": "3",
    **dict.fromkeys(("share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr"), "1"),
}
AUTHORIZERS = {
    "3.9.1": "kafka.security.authorizer.AclAuthorizer",
    "4.4.0": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
ANN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "pw"}
SHOWN = ("seen", "hidden", "shared")
"""Groups: ann may describe the first."""


class Side:
    """A cluster, as somebody who may do everything and as ann connect to it."""

    def __init__(self, name: str, properties: Mapping[str, str], ann: Mapping[str, str]) -> None:
        self.name, self.properties, self.ann = name, dict(properties), dict(ann)
        self.admin = Admin(self.properties)

    def sampled(self, group: str, *, user: Mapping[str, str] | None = None, **options: Any) -> GroupLag:
        """One group of one sample."""
        (found,) = self.report(user=user, named=[group], **options).groups
        return found

    def report(
        self,
        *,
        named: list[str],
        is_wanted: Callable[[str], bool] | None = None,
        user: Mapping[str, str] | None = None,
        most_records: int = 64,
    ) -> LagReport:
        """One sample."""
        properties = dict(user or self.properties)
        with AdminConnection(properties.pop("bootstrap.servers"), properties) as connection:
            wanted = is_wanted or (lambda group: group in named)
            monitor = LagMonitor(connection, 1000, wanted, named, most_records=most_records)
            return monitor.sample(int(time.time() * 1000))

    def topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Make a topic."""
        configs = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topic(name, partitions=partitions, replication_factor=1, configs=configs)

    def fill(self, topic: str, timestamps: list[int], partition: int = 0, each_batch: int = 7) -> None:
        """Write records with these timestamps, some to a batch."""
        with Producer({**self.properties, "compression.type": "lz4"}) as producer:
            for number, timestamp_ms in enumerate(timestamps):
                producer.send(topic, f"{number}", key=f"k{number}", partition=partition, timestamp_ms=timestamp_ms)
                if number % each_batch == each_batch - 1:
                    producer.flush()

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a group without members."""
        self.admin.alter_group_offsets(group, {TopicPartition(*place): offset for place, offset in offsets.items()})


@pytest.fixture(scope="module", params=["ours", "3.9.1", "4.4.0"])
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """A cluster of one broker."""
    with ExitStack() as stack:
        if request.param == "ours":
            cluster = stack.enter_context(Cluster(security="scram", users={"ann": "pw"}, acls=[]))
            yield stack.enter_context(
                closing_side(Side("ours", cluster.client_properties("admin"), cluster.client_properties("ann")))
            )
            return
        (port,) = free_ports(1)
        settings = {**SETTINGS, "authorizer.class.name": AUTHORIZERS[request.param]}
        folder = tmp_path_factory.mktemp("apache")
        running = stack.enter_context(apache_single(folder, request.param, settings, {"SASL_PLAINTEXT": port}))
        ann = {**ANN, "bootstrap.servers": f"127.0.0.1:{port}"}
        yield stack.enter_context(closing_side(Side(request.param, {"bootstrap.servers": running.bootstrap}, ann)))


def closing_side(side: Side) -> Any:
    """Close its client at the end."""
    return _Closing(side)


class _Closing(closing):  # type: ignore[type-arg]
    def __init__(self, side: Side) -> None:
        super().__init__(side.admin)
        self._side = side

    def __enter__(self) -> Side:
        return self._side


def part(group: GroupLag, partition: int = 0) -> PartitionLag:
    """One of its partitions."""
    return next(each for each in group.partitions if each.partition == partition)


NOW_MS = int(time.time() * 1000)
RISING = [NOW_MS - 7_200_000 + 70_000 * number + (number * 37 % 11) * 1000 for number in range(100)]


def test_the_time_is_that_of_the_records(side: Side) -> None:
    """Fetched, it is exact to the millisecond; interpolated, it is wrong by no more than it says, a
    fiftieth of the lag or half a second at most."""
    side.topic("orders", 4)
    for partition in range(3):
        side.fill("orders", RISING, partition)
    wanted = {0: 3, 1: 42, 2: 100, 3: 0}
    side.commit("seen", {("orders", partition): offset for partition, offset in wanted.items()})
    group = side.sampled("seen")
    assert (group.lag, group.kind, group.members) == (155, GroupKind.CLASSIC, 0)
    assert group.state in (LagState.UNKNOWN, LagState.STOPPED)
    for partition, offset in ((0, 3), (1, 42)):
        found = part(group, partition)
        assert (found.lag, found.source, found.error_ms) == (100 - offset, TimeSource.RECORD, 0)
        assert found.lag_ms == RISING[-1] - RISING[offset]
        assert found.oldest_ms == RISING[offset]
    assert [(part(group, each).lag, part(group, each).lag_ms) for each in (2, 3)] == [(0, 0), (0, 0)]
    guessed = side.sampled("seen", most_records=0)
    for partition, offset in ((0, 3), (1, 42)):
        found = part(guessed, partition)
        assert found.lag_ms is not None
        assert found.error_ms is not None
        assert abs(found.lag_ms - (RISING[-1] - RISING[offset])) <= found.error_ms
        assert found.error_ms <= max(500, found.lag_ms // 50)


def test_create_time_out_of_order_is_never_a_negative_lag(side: Side) -> None:
    """The end is the newest timestamp, wherever it stands; a record's own timestamp is its own."""
    mixed = [NOW_MS - (each * 7919 % 100) * 60_000 for each in range(100)]
    side.topic("mixed")
    side.fill("mixed", mixed)
    side.commit("mixed-reader", {("mixed", 0): 50})
    found = part(side.sampled("mixed-reader"))
    assert (found.lag_ms, found.source) == (max(mixed) - mixed[50], TimeSource.RECORD)
    found = part(side.sampled("mixed-reader", most_records=0))
    assert found.lag_ms is not None
    assert 0 <= found.lag_ms <= max(mixed) - max(mixed[:51]) + 60_000


def test_log_append_time_is_the_brokers(side: Side) -> None:
    """All records of a batch have its time, whatever their producers said."""
    side.topic("appended", message_timestamp_type="LogAppendTime")
    side.fill("appended", [1] * 30)
    side.commit("append-reader", {("appended", 0): 10})
    found = part(side.sampled("append-reader"))
    assert found.oldest_ms is not None
    assert abs(found.oldest_ms - time.time() * 1000) < 120_000
    assert found.lag_ms is not None
    assert 0 <= found.lag_ms < 120_000
    assert found.source is TimeSource.RECORD


def test_records_that_retention_removed_are_at_least_as_old_as_the_first_one(side: Side) -> None:
    """What is gone is said, and the time is a lower bound, or exact where a sample was taken
    before."""
    side.topic("short")
    side.fill("short", RISING)
    side.commit("short-reader", {("short", 0): 20})
    with AdminConnection(side.properties["bootstrap.servers"], _without_servers(side)) as connection:
        monitor = LagMonitor(connection, 1000, lambda group: group == "short-reader")
        before = monitor.sample(NOW_MS)
        side.admin.delete_records({TopicPartition("short", 0): 60})
        after = part(monitor.sample(NOW_MS + 1000).groups[0])
    assert after.lag_ms == part(before.groups[0]).lag_ms == RISING[-1] - RISING[20]
    assert (after.begin, after.problem) == (60, "records 20 to 59 are gone unread")
    found = part(side.sampled("short-reader"))
    assert (found.source, found.lag_ms) == (TimeSource.AT_LEAST, RISING[-1] - RISING[60])


def _without_servers(side: Side) -> dict[str, str]:
    return {name: value for name, value in side.properties.items() if name != "bootstrap.servers"}


def test_markers_at_the_end_are_no_lag(side: Side) -> None:
    """After the last record of a transaction stands its marker. A group that has read all records
    keeps a lag of 1, as Kafka counts it; it is well, and not late."""
    side.topic("transfers")
    with Producer({**side.properties, "transactional.id": "tx-1"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(5):
            producer.send("transfers", f"{number}", partition=0)
        producer.commit_transaction()
    side.commit("transfer-reader", {("transfers", 0): 5})
    found = eventually(lambda: _at_end(side), what="the marker")
    assert (found.lag, found.lag_ms, found.is_only_markers, found.state) == (1, 0, True, LagState.WELL)


def _at_end(side: Side) -> PartitionLag | None:
    found = part(side.sampled("transfer-reader"))
    return found if found.lag else None


def test_a_topic_that_is_deleted_and_made_again_is_said_so(side: Side) -> None:
    """An offset beyond the end is no lag; without the topic there is none at all."""
    side.topic("again")
    side.fill("again", RISING[:10])
    side.commit("again-reader", {("again", 0): 9})
    side.admin.delete_topics(["again"])
    eventually(lambda: "again" not in {topic.name for topic in side.admin.describe_topics()}, what="the deletion")
    group = side.sampled("again-reader")
    assert group.lag in (0, None)
    assert {each.problem for each in group.partitions} <= {"the topic does not exist"}
    eventually(lambda: _made(side, "again"), what="the end of the deletion")
    side.commit("again-reader", {("again", 0): 9})
    found = part(side.sampled("again-reader"))
    assert (found.lag, found.state) == (None, LagState.UNKNOWN)
    assert "beyond the end 0" in found.problem


def _made(side: Side, topic: str) -> bool:
    try:
        side.topic(topic)
    except RefusedError:  # it is being deleted still
        return False
    return True


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_owns_its_partitions(side: Side, protocol: str) -> None:
    """Of groups of both protocols, as far as the cluster has them."""
    if protocol == "consumer" and side.name != "4.4.0":
        return
    name = f"shared-{protocol}"
    side.topic(name, 2)
    settings = {
        **side.properties,
        "group.id": name,
        "client.id": "the-member",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **({"group.protocol": "consumer"} if protocol == "consumer" else {}),
    }
    side.fill(name, RISING[:10], 0)
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.subscribe([name])
        assert eventually(lambda: consumer.poll(0.5), what="a record") is not None
        consumer.commit(offsets=[confluent_kafka.TopicPartition(name, 0, 4)], asynchronous=False)
        group = side.sampled(name)
    finally:
        consumer.close()
    assert (group.kind, group.members) == (GroupKind(protocol), 1)
    assert [(each.partition, each.owner, each.lag) for each in group.partitions] == [
        (0, "the-member", 6),
        (1, "the-member", None),
    ]
    assert group.state is LagState.UNKNOWN
    after = side.sampled(name)
    assert (after.members, after.state) == (0, LagState.STOPPED)


def test_what_may_not_be_seen_is_named(side: Side) -> None:
    """A user who may describe one group and one topic sees this group; its other topics are left
    out by the broker; what would show more is said."""
    for topic in ("visible", "secret"):
        side.topic(topic)
        side.fill(topic, RISING)
    side.commit("ann-group", {("visible", 0): 5, ("secret", 0): 5})
    side.commit("other-group", {("secret", 0): 5})
    for acl in (
        Acl("topic", "visible", "User:ann", "Describe"),
        Acl("group", "ann-group", "User:ann", "Describe"),
    ):
        side.admin.create_acls([acl])
    report = eventually(
        lambda: _shown(side.report(user=side.ann, named=["other-group"], is_wanted=lambda _: True)), what="the rights"
    )
    by_name = {group.group: group for group in report.groups}
    assert set(by_name) == {"ann-group", "other-group"}
    assert "uthoriz" in by_name["other-group"].problem
    found = part(by_name["ann-group"])
    assert (found.topic, found.lag) == ("visible", 95)
    assert found.source is not TimeSource.UNKNOWN
    assert found.lag_ms is not None
    assert abs(found.lag_ms - (RISING[-1] - RISING[5])) <= (found.error_ms or 0)
    assert any("group other-group" in line for line in report.missing)
    notes = "\n".join(report.notes)
    assert "no right to describe the cluster" in notes
    assert found.source is TimeSource.RECORD or "no right to read visible" in notes


def _shown(report: LagReport) -> LagReport | None:
    found = [group for group in report.groups if group.group == "ann-group" and group.partitions]
    return report if found else None


def test_the_command_fits_into_80_columns_and_into_a_pipe(
    side: Side, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON is one document; text has no colours, and 80 columns are enough for short names."""
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in _without_servers(side).items()))
    common = ["lag", "--bootstrap-server", side.properties["bootstrap.servers"], "--command-config", str(config)]
    side.topic("piped")
    side.fill("piped", RISING)
    side.commit("piped-reader", {("piped", 0): 7})
    assert main([*common, "--group", "piped-reader", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (group,) = document["groups"]
    assert (group["lag"], group["lag_seconds"]) == (93, (RISING[-1] - RISING[7]) / 1000)
    for options in ([], ["--partitions"]):
        assert main([*common, "--group", "piped-reader", *options]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert max(map(len, out.splitlines())) <= 80
        assert "93" in out
    assert main([*common, "--group", "missing"]) == 3
    assert "there is no such group" in capsys.readouterr().err


def test_a_share_group_is_behind_by_what_is_not_acknowledged(side: Side) -> None:
    """Apache 4.4.0 counts it; the other clusters have no share groups."""
    if side.name != "4.4.0":
        return
    side.topic("shares")
    side.fill("shares", RISING[:10])
    server = ("--bootstrap-server", side.properties["bootstrap.servers"])
    earliest = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
    entity = ("--entity-type", "groups", "--entity-name", "sharers")
    done = apache_tool("org.apache.kafka.tools.ConfigCommand", *server, *entity, *earliest, version="4.4.0")
    assert done.returncode == 0, done.stderr
    tool = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    done = apache_tool(tool, *server, "--topic", "shares", "--group", "sharers", "--max-messages", "4", version="4.4.0")
    assert done.stdout.split() == ["0", "1", "2", "3"], done.stderr
    group = eventually(lambda: _sharers(side), what="the acknowledgements")
    (found,) = group.partitions
    assert (group.kind, found.committed, found.lag) == (GroupKind.SHARE, 4, 6)
    assert found.lag_ms == RISING[9] - RISING[4]


def _sharers(side: Side) -> GroupLag | None:
    group = side.sampled("sharers")
    return group if [part.committed for part in group.partitions] == [4] else None
