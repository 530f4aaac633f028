"""`MirrorLink`: what a mirror between two named clusters does beside copying records.

It makes the topics of the target with the source's numbers of partitions and, on request, their
configurations; it writes heartbeats, offset syncs and the checkpoints of groups. One thread does it
all, so a cluster that is away delays these and not the records. Every error of a round is logged
and tried again in the next one.

In Kafka: `MirrorSourceConnector`, `MirrorCheckpointTask` and `MirrorHeartbeatTask`.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.configurations import ConfigSource
from barnabas.client.admin.offsets import LATEST
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import ConnectError, RefusedError, TimedOutError
from barnabas.client.producer.producer import Producer
from barnabas.client.properties.translation import security_properties
from barnabas.mirror.link_records import GroupCheckpoint, LinkHeartbeat, OffsetSync
from barnabas.mirror.offset_translation import OffsetTranslation
from barnabas.mirror.replication_policy import HEARTBEATS, are_heartbeats
from barnabas.mirror.settings import LinkSettings, MirrorSettings, bootstrap_servers

__all__ = ["MirrorLink"]

logger = logging.getLogger("barnabas.mirror")

_TURN_S = 0.2
_READ_S = 30.0
_COMPACTED = {"cleanup.policy": "compact"}
# What belongs to one cluster: MirrorMaker 2 leaves the same out.
_NOT_COPIED = re.compile(
    r"(follower|leader)\.replication\.throttled\.replicas|message\.timestamp\.(difference\.max\.ms|type)"
    r"|unclean\.leader\.election\.enable|min\.insync\.replicas"
)
_WITHOUT_MEMBERS = frozenset(("Empty", "Dead"))
_NOT_GROUPS = re.compile(r"console-consumer-.*|connect-.*|__.*")


class MirrorLink:
    """The thread of a link, and what the streams ask it.

    `prepare`, `copied` and `mark` may be called by any thread."""

    def __init__(
        self, settings: MirrorSettings, link: LinkSettings, failed: Callable[[str], None] = lambda _: None
    ) -> None:
        """``failed`` is called with what is tried again."""
        self._failed = failed
        self.policy = link.policy
        self._link = link
        self._own_group = str(settings.consumer.get("group.id", ""))
        self._source = _connection(settings.consumer, "consumer")
        self._target = _connection(settings.producer, "producer")
        self._translation = OffsetTranslation(link.offset_lag_max)
        self._lock = threading.Lock()  # of the translation
        self._preparing = threading.Lock()
        self._written: dict[tuple[str, TopicPartition], GroupCheckpoint] = {}
        self._committed: dict[str, set[TopicPartition]] = {}
        """The groups of the last round, and the copies of what each has offsets of
        at the source."""
        self._topics: dict[str, int] = {}
        self._made: dict[str, int] = {}
        self._producers: dict[str, Producer[bytes, bytes]] = {}

    # What streams ask

    def prepare(self, topics: Mapping[str, int]) -> None:
        """Make the topics of the target, each with at least this many partitions.

        Raises `ClientError`."""
        with self._preparing:
            wanted = {topic: count for topic, count in topics.items() if self._made.get(topic, 0) < count}
            if wanted:
                with Admin(self._target) as target:
                    for topic, count in wanted.items():
                        self._make(target, self.policy.remote(topic), count)
                        self._made[topic] = count
            self._topics = dict(topics)

    @staticmethod
    def _make(target: Admin, name: str, count: int) -> None:
        configs = _COMPACTED if are_heartbeats(name) else {}
        if not target.create_topic(name, partitions=count, configs=configs, if_not_exists=True):
            (topic,) = target.describe_topics([name])
            if len(topic.partitions) < count:
                target.create_partitions(name, count)

    def copied(self, topic: str, partition: int, upstream: int, downstream: int) -> None:
        """The target acknowledged a record."""
        with self._lock:
            self._translation.copied(TopicPartition(topic, partition), upstream, downstream)

    def mark(self) -> None:
        """All that was read is copied: a group that has read as much can be translated exactly."""
        with self._lock:
            self._translation.mark()

    # The thread

    def start(self) -> None:
        """Make the link's own topics and read what it knew before.

        Raises `ClientError` when a cluster does not answer."""
        with Admin(self._source) as source, Admin(self._target) as target:
            for admin, name in (
                (source, HEARTBEATS),
                (source, self.policy.offset_syncs_topic),
                (target, HEARTBEATS),
                (target, self.policy.checkpoints_topic),
            ):
                admin.create_topic(name, partitions=1, configs=_COMPACTED, if_not_exists=True)
            self._load_syncs(source)
            self._load_checkpoints(target)

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop``, and once more after it."""
        next_heartbeat = next_checkpoints = 0.0
        try:
            while True:
                is_last = stop.wait(_TURN_S)
                now = time.monotonic()
                self._round("offset syncs", self._write_syncs)
                if now >= next_heartbeat:
                    self._round("heartbeats", self._write_heartbeats)
                    next_heartbeat = now + self._link.heartbeat_interval_ms / 1000
                if now >= next_checkpoints or is_last:
                    self._round("checkpoints", self._write_checkpoints)
                    if self._link.sync_group_offsets:
                        self._round("group offsets", self._sync_group_offsets)
                    if self._link.sync_topic_configs:
                        self._round("topic configurations", self._follow_configs)
                    next_checkpoints = now + self._link.checkpoint_interval_ms / 1000
                if is_last:
                    return
        finally:
            for producer in self._producers.values():
                producer.close(_TURN_S)

    def _round(self, what: str, work: Any) -> None:
        try:
            work()
        except (BarnabasError, TimeoutError) as error:
            self._failed(what.replace(" ", "_"))
            logger.warning("The link's %s are tried again: %s", what, error)

    def _write_heartbeats(self) -> None:
        beat = LinkHeartbeat(self.policy.source, self.policy.target, int(time.time() * 1000))
        for cluster in (self._source, self._target):
            self._write(cluster, HEARTBEATS, [(beat.key(), beat.value())])

    def _write_syncs(self) -> None:
        with self._lock:
            syncs = self._translation.unwritten()
        self._write(self._source, self.policy.offset_syncs_topic, [(sync.key(), sync.value()) for sync in syncs])
        with self._lock:
            self._translation.written(syncs)

    def _write_checkpoints(self) -> None:
        checkpoints = self._new_checkpoints()
        self._write(self._target, self.policy.checkpoints_topic, [(each.key(), each.value()) for each in checkpoints])
        for each in checkpoints:
            self._written[each.group, TopicPartition(each.topic, each.partition)] = each

    def _new_checkpoints(self) -> list[GroupCheckpoint]:
        """The checkpoints that say something else than the last ones; for a group that goes
        on, never less than before."""
        found = []
        committed: dict[str, set[TopicPartition]] = {}
        with Admin(self._source) as source:
            for group in source.list_groups():
                name = group.group_id
                if not self._is_chosen(name):
                    continue
                for partition, upstream in source.group_offsets(name).items():
                    if partition.topic not in self._topics:
                        continue
                    remote = TopicPartition(self.policy.remote(partition.topic), partition.partition)
                    committed.setdefault(name, set()).add(remote)
                    with self._lock:
                        downstream = self._translation.translate(partition, upstream)
                    if downstream is None:
                        continue
                    before = self._written.get((name, remote))
                    if before is not None and before.upstream <= upstream:
                        downstream = max(downstream, before.downstream)
                    checkpoint = GroupCheckpoint(name, *remote, upstream, downstream)
                    if checkpoint != before:
                        found.append(checkpoint)
        self._committed = committed
        return found

    def _sync_group_offsets(self) -> None:
        """Commit the checkpoints at the target for groups without members there, never less
        than they have committed.

        A group that is gone at the source is left alone: its old checkpoints would bring it back.
        What the target refuses for one group delays no other.
        """
        with Admin(self._target) as target:
            topics = set(target.list_topics())
            for group, partitions in self._committed.items():
                wanted = {
                    each: self._written[group, each].downstream
                    for each in partitions
                    if each.topic in topics and (group, each) in self._written
                }
                try:
                    if wanted and target.describe_group(group).state in _WITHOUT_MEMBERS:
                        present = target.group_offsets(group)
                        later = {each: offset for each, offset in wanted.items() if offset > present.get(each, -1)}
                        if later:
                            target.alter_group_offsets(group, later)
                except ConnectError:
                    raise
                except BarnabasError as error:
                    logger.warning("The offsets of group %s are tried again: %s", group, error)

    def _is_chosen(self, group: str) -> bool:
        if group == self._own_group or _NOT_GROUPS.fullmatch(group):
            return False
        return self._link.groups.fullmatch(group) is not None

    def _follow_configs(self) -> None:
        """What is set for a topic of the source is set for its copy.

        What is not set there goes back to the default."""
        with Admin(self._source) as source, Admin(self._target) as target:
            for topic in sorted(set(self._topics) - {HEARTBEATS}):
                remote = self.policy.remote(topic)
                wanted, present = _own_configs(source, topic), _own_configs(target, remote)
                changes: dict[str, str | None] = dict.fromkeys(present.keys() - wanted.keys())
                changes |= {name: value for name, value in wanted.items() if present.get(name) != value}
                if changes:
                    target.alter_topic_configs(remote, changes)
                    logger.info("The configuration of %s follows %s: %s", remote, topic, changes)

    # Topics of records

    def _write(self, cluster: Mapping[str, str], topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Send records and wait until all are acknowledged.

        Raises `ClientError` or TimeoutError."""
        servers = cluster["bootstrap.servers"]
        if servers not in self._producers:
            properties = {**cluster, "acks": "all", "enable.idempotence": "true", "delivery.timeout.ms": "30000"}
            self._producers[servers] = Producer(properties, serializer=BYTES, key_serializer=BYTES)
        producer = self._producers[servers]
        receipts = [producer.send(topic, value, key, partition=0) for key, value in records]
        for receipt in receipts:
            receipt.result(_READ_S)

    def _load_syncs(self, source: Admin) -> None:
        for key, value in self._read(self._source, source, self.policy.offset_syncs_topic):
            self._translation.load(OffsetSync.decode(key, value))

    def _load_checkpoints(self, target: Admin) -> None:
        for key, value in self._read(self._target, target, self.policy.checkpoints_topic):
            each = GroupCheckpoint.decode(key, value)
            self._written[each.group, TopicPartition(each.topic, each.partition)] = each

    @staticmethod
    def _read(cluster: Mapping[str, str], admin: Admin, topic: str) -> list[tuple[bytes, bytes]]:
        """Keys and values of a topic of one partition, from its beginning to its present end.

        Raises `ClientError` where not all of it comes: a link that forgot a checkpoint
        would let a group go back.
        """
        partition = TopicPartition(topic, 0)
        end = admin.list_offsets({partition: LATEST})[partition]
        found: list[tuple[bytes, bytes]] = []
        if isinstance(end, RefusedError):
            raise end
        if end.offset == 0:
            return found
        properties = {**cluster, "group.id": "barnabas-mirror-link", "enable.auto.commit": "false"}
        with Consumer(properties, deserializer=BYTES, key_deserializer=BYTES) as consumer:
            consumer.assign({partition: 0})
            limit = time.monotonic() + _READ_S
            while (consumer.position([partition])[partition] or 0) < end.offset and time.monotonic() < limit:
                record = consumer.poll(1)
                if record is not None and record.key is not None and record.value is not None:
                    found.append((record.key, record.value))
                if record is not None and record.offset + 1 >= end.offset:
                    break
            else:
                at = consumer.position([partition])[partition] or 0
                if at < end.offset:
                    raise TimedOutError(f"{topic} was not read within {_READ_S:.0f} s: to offset {at} of {end.offset}")
        return found


def _own_configs(admin: Admin, topic: str) -> dict[str, str]:
    """What is set for the topic itself, of what may be copied."""
    return {
        name: entry.value
        for name, entry in admin.topic_configs(topic).items()
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        and entry.value is not None
        and not _NOT_COPIED.fullmatch(name)
    }


def _connection(properties: Mapping[str, Any], role: str) -> dict[str, str]:
    """What it takes to connect to a cluster as the mirror does: the brokers, the
    protection, the login."""
    if servers := bootstrap_servers(properties):
        return {"bootstrap.servers": servers, **security_properties(properties)}
    raise ConfigError(f"bootstrap.servers of the {role} is missing: a link between named clusters needs it")
