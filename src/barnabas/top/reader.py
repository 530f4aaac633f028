"""Reads a cluster for ``barnabas top``: any Kafka cluster over Kafka's own protocol, and what shows
itself elsewhere: pages of metrics, coordination servers, files of flows.

All of a reading ends by the connection's deadline. A part that is not there is a line among the
gaps, or a note of its view; the rest is shown.

In Kafka: the calls of `KafkaAdminClient`.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.batches import fetched_records
from barnabas.client.admin.cluster_rights import may_describe_cluster
from barnabas.client.admin.offsets import EARLIEST, LATEST, FoundOffset, offsets_in_part
from barnabas.client.admin.topics import TopicDescription, described_topics
from barnabas.client.cluster.admin_connection import AdminConnection, ClusterDescription
from barnabas.client.errors import ClientError
from barnabas.client.network.deadline import sooner
from barnabas.client.network.metrics_page import read_metrics_page
from barnabas.client.network.server_status import ServerStatus, ServingState, server_status
from barnabas.lag.reader import find_times, read_sample
from barnabas.lag.tracker import LagTracker
from barnabas.lag.values import GroupLag
from barnabas.mirror.link_records import LinkHeartbeat
from barnabas.mirror.replication_policy import HEARTBEATS, is_copied_from
from barnabas.net.prometheus_text import MetricsPage
from barnabas.top.sources import PageAddress, TopSources, broker_of_page, flow_of_page
from barnabas.top.values import (
    BrokerFigures,
    BrokerSeen,
    BrokerState,
    FlowSeen,
    MirrorSeen,
    PartitionSeen,
    Snapshot,
    TopicSeen,
    figures_of_page,
)
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.messages.metadata import MetadataResponse
from barnabas.wire.kafka.records.batch_header import read_headers
from barnabas.wire.kafka.records.records import read_records

if TYPE_CHECKING:
    from barnabas.pipelines.checkpoints.checkpoint import Checkpoint

__all__ = ["ClusterReader", "GapLines"]

_FIRSTS_EVERY = 10
"""First offsets change when records are deleted only: they are read at each tenth reading."""
_HEARTBEATS_READ = 200
_MAX_PAGE_S = 3.0
_NO_METRICS = (
    "no broker's metrics are known: start brokers with metrics.http.address, or the Prometheus JMX exporter, and name the "
    "pages with --metrics"
)

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class GapLines(Protocol):
    """Collects what is missing, and words it."""

    def add(self, line: object) -> None: ...

    def add_partitions(self, outcomes: Mapping[TopicPartition, object]) -> None: ...

    @property
    def lines(self) -> list[str]: ...


class ClusterReader:
    """Reads one cluster again and again, each ``refresh_s`` if it can. For one thread.

    ``new_gaps`` makes what collects the gaps of a reading."""

    def __init__(
        self,
        connection: AdminConnection,
        sources: TopSources,
        new_gaps: Callable[[AdminConnection], GapLines],
        refresh_s: float,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._connection = connection
        self._sources = sources
        self._new_gaps = new_gaps
        self._now_ms = now_ms
        self._readings = 0
        self._firsts: dict[TopicPartition, int] = {}
        self._brokers_seen: dict[int, BrokerSeen] = {}
        self._may_describe_cluster: bool | None = None
        self._flows: dict[str, tuple[str, Checkpoint]] = {}
        self._tracker = LagTracker(round(refresh_s * 1000))

    def read(self) -> Snapshot:
        """One reading.

        Raises `ClientError` where no broker answers, or the first question is refused."""
        connection = self._connection
        at_ms, began = self._now_ms(), time.monotonic()
        connection.restart()
        gaps = self._new_gaps(connection)
        metadata = connection.metadata()
        cluster = connection.describe_cluster()
        described = described_topics(metadata)
        topics = self._topics(described, metadata, gaps)
        groups = self._groups(gaps, at_ms)
        pages, servers = self._beside(gaps)
        figures = self._figures(pages, cluster, gaps)
        notes: dict[str, str] = {}
        brokers = self._brokers(cluster, topics, figures)
        self._note_metrics(brokers, notes)
        self._note_rights(topics, figures, gaps)
        coordination = self._coordination(servers, gaps, notes)
        flows = self._read_flows(pages, gaps, notes)
        mirrors = self._mirrors(topics, gaps, notes)
        self._readings += 1
        return Snapshot(
            at_ms=at_ms,
            took_ms=round((time.monotonic() - began) * 1000),
            cluster_id=cluster.cluster_id,
            brokers=brokers,
            topics=topics,
            groups=groups,
            coordination=coordination,
            flows=flows,
            mirrors=mirrors,
            gaps=gaps.lines,
            notes=notes,
        )

    # Topics

    def _topics(
        self, described: Sequence[TopicDescription], metadata: MetadataResponse, gaps: GapLines
    ) -> list[TopicSeen]:
        partitions = [TopicPartition(topic.name, part.partition) for topic in described for part in topic.partitions]
        if self._readings % _FIRSTS_EVERY == 0:
            self._firsts.clear()
        unknown = [each for each in partitions if each not in self._firsts]
        firsts = self._offsets(unknown, EARLIEST, metadata)
        self._firsts.update((each, found.offset) for each, found in firsts.items() if isinstance(found, FoundOffset))
        ends = self._offsets(partitions, LATEST, metadata)
        gaps.add_partitions(ends)

        def end_of(partition: TopicPartition) -> int | None:
            found = ends[partition]
            return found.offset if isinstance(found, FoundOffset) else None

        return [
            TopicSeen(
                topic.name,
                topic.is_internal,
                [
                    PartitionSeen(
                        part.partition,
                        part.leader,
                        tuple(part.replicas),
                        tuple(part.isr),
                        self._firsts.get(TopicPartition(topic.name, part.partition)),
                        end_of(TopicPartition(topic.name, part.partition)),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in described
        ]

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: int, metadata: MetadataResponse
    ) -> dict[TopicPartition, FoundOffset | ClientError]:
        wanted = dict.fromkeys(partitions, spec)
        return offsets_in_part(self._connection, wanted, known=metadata) if wanted else {}

    # Groups

    def _groups(self, gaps: GapLines, at_ms: int) -> Sequence[GroupLag]:
        try:
            sample = read_sample(self._connection, at_ms, lambda _: True)
            self._tracker.add(sample)
            untimed = find_times(self._connection, self._tracker)
        except ClientError as error:
            gaps.add(f"groups: {error}")
            return ()
        report = self._tracker.report()
        for line in report.missing:
            gaps.add(line)
        gaps.add_partitions(untimed)
        return report.groups

    # Brokers

    def _brokers(
        self, cluster: ClusterDescription, topics: Sequence[TopicSeen], figures: Mapping[int, BrokerFigures]
    ) -> list[BrokerSeen]:
        unreachable = self._connection.unreachable
        found = {
            broker.id: BrokerSeen(
                broker.id,
                f"{broker.host}:{broker.port}",
                broker.rack,
                broker.id == cluster.controller_id,
                BrokerState.NO_ANSWER if broker.id in unreachable else BrokerState.UP,
                figures.get(broker.id),
            )
            for broker in cluster.brokers
        }
        replicas = {replica for topic in topics for part in topic.partitions for replica in part.replicas}
        for broker_id in (replicas | self._brokers_seen.keys()) - found.keys():
            known = self._brokers_seen.get(broker_id)
            place = (known.address, known.rack) if known else (None, None)
            found[broker_id] = BrokerSeen(broker_id, *place, False, BrokerState.AWAY)
        self._brokers_seen = found
        return [found[broker_id] for broker_id in sorted(found)]

    def _figures(
        self, pages: Mapping[PageAddress, MetricsPage | None], cluster: ClusterDescription, gaps: GapLines
    ) -> dict[int, BrokerFigures]:
        hosts = {broker.id: broker.host for broker in cluster.brokers}
        found = {}
        for place, page in pages.items():
            if page is None or flow_of_page(place, page):
                continue
            broker_id = broker_of_page(place, page, hosts)
            if broker_id is None:
                gaps.add(f"the metrics at {place} are of no broker that is known: name it, as --metrics ID={place}")
            else:
                found[broker_id] = figures_of_page(page)
        return found

    def _beside(self, gaps: GapLines) -> tuple[dict[PageAddress, MetricsPage | None], list[ServerStatus]]:
        """Pages of metrics and coordination servers, all at the same time: one that does not answer
        takes no time from the others."""

        def ask(place: PageAddress | tuple[str, int]) -> MetricsPage | ServerStatus | None:
            return self._page(place, gaps) if isinstance(place, PageAddress) else self._server_status(place)

        places: list[PageAddress | tuple[str, int]] = [*self._sources.pages, *self._sources.coordination]
        pages: dict[PageAddress, MetricsPage | None] = {}
        servers: list[ServerStatus] = []
        for place, answer in _at_once(places, ask).items():
            if isinstance(answer, ServerStatus):
                servers.append(answer)
            elif isinstance(place, PageAddress):
                pages[place] = answer
        return pages, servers

    def _server_status(self, server: tuple[str, int]) -> ServerStatus:
        try:
            return server_status(server, sooner(self._connection.deadline, _MAX_PAGE_S))
        except BarnabasError as error:
            return ServerStatus(ServingState.NO_STATUS, f"{server[0]}:{server[1]}", str(error))

    def _page(self, place: PageAddress, gaps: GapLines) -> MetricsPage | None:
        try:
            return read_metrics_page(place.address, sooner(self._connection.deadline, _MAX_PAGE_S))
        except ClientError as error:
            gaps.add(f"metrics: {error}")
            return None

    def _note_metrics(self, brokers: Sequence[BrokerSeen], notes: dict[str, str]) -> None:
        silent = [str(broker.id) for broker in brokers if broker.state is BrokerState.UP and broker.figures is None]
        if not any(broker.figures for broker in brokers):
            notes["requests"] = f"The times of requests are not known: {_NO_METRICS}"
            notes["brokers"] = f"Bytes, CPU, connections and memory are not known: {_NO_METRICS}"
        elif silent:
            whose = f"broker{'' if len(silent) == 1 else 's'} {', '.join(silent)}"
            notes["requests"] = notes["brokers"] = (
                f"The metrics of {whose} are not known: name their pages with --metrics"
            )

    def _note_rights(self, topics: Sequence[TopicSeen], figures: Mapping[int, BrokerFigures], gaps: GapLines) -> None:
        """Brokers leave out what a user may not describe, and do not say so: name what shows it."""
        if self._may_describe_cluster is None:
            self._may_describe_cluster = self._ask_for_rights()
        if self._may_describe_cluster is False:
            gaps.add(
                "this user lacks the right to describe the cluster: topics and groups that it may not describe are not listed, and how "
                "many these are is not known"
            )
        of_cluster = max((each.topics_of_cluster or 0 for each in figures.values()), default=0)
        if of_cluster > len(topics):
            gaps.add(
                f"{of_cluster - len(topics):.0f} of {of_cluster:.0f} topics are not listed: this user lacks the right to describe them"
            )

    def _ask_for_rights(self) -> bool | None:
        """Whether the user may describe the cluster; None where brokers do not say it."""
        try:
            return may_describe_cluster(self._connection)
        except ClientError:
            return None

    # What is beside the cluster

    def _coordination(self, found: list[ServerStatus], gaps: GapLines, notes: dict[str, str]) -> list[ServerStatus]:
        if not self._sources.coordination:
            notes["coordination"] = (
                "Not asked: name the coordination servers with --zookeeper; a cluster in KRaft mode has none"
            )
            return []
        for status in found:
            if status.state in (ServingState.UNREACHABLE, ServingState.NO_STATUS):
                gaps.add(f"coordination server {status.server}: {status.role}")
        return found

    def _read_flows(
        self, pages: Mapping[PageAddress, MetricsPage | None], gaps: GapLines, notes: dict[str, str]
    ) -> list[FlowSeen]:
        found = [flow for place, page in pages.items() if page is not None for flow in flow_of_page(place, page)]
        for path in self._sources.flows:
            try:
                found.append(self._flow_of_file(path))
            except BarnabasError as error:
                gaps.add(f"flow {path}: {error}")
        if not found and not self._sources.flows:
            notes["flows"] = (
                "None is named: give the files of flows with --flow, or the page of a dashboard with --metrics; a flow that commits "
                "to a group is among the groups"
            )
        return found

    def _flow_of_file(self, path: str) -> FlowSeen:
        from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
        from barnabas.pipelines.flow_file.function_files import FunctionUse
        from barnabas.pipelines.flows import load_flow

        if path not in self._flows:
            flow = load_flow(path, functions=FunctionUse.NAME)
            self._flows[path] = flow.name, Checkpoint(flow)
        name, checkpoint = self._flows[path]
        run = checkpoint.last_run()
        if not run:
            state = "not begun"
        elif "ended" in run:
            state = str(run.get("status", "ended"))
        else:
            state = "running" if _is_process(run.get("pid")) else "lost"
        figures = {name: run.get(name) for name in ("rows", "bad_rows", "lag", "catch_up_s")}
        return FlowSeen(name, state, **figures, place=path)

    def _mirrors(self, topics: Sequence[TopicSeen], gaps: GapLines, notes: dict[str, str]) -> list[MirrorSeen]:
        """From the heartbeats in this cluster: of each pair of clusters the last one."""
        newest: dict[tuple[str, str], int] = {}
        for topic in topics:
            if topic.name == HEARTBEATS:
                for part in topic.partitions:
                    try:
                        beats = self._heartbeats(part)
                    except ClientError as error:
                        gaps.add(f"mirrors: {error}")
                        continue
                    for beat in beats:
                        pair = beat.source, beat.target
                        newest[pair] = max(newest.get(pair, 0), beat.timestamp_ms)
        if not newest:
            notes["mirrors"] = (
                "No mirror between named clusters writes heartbeats here. A mirror is seen in the cluster to which it copies; one "
                "without names of clusters is seen by its group, in the cluster from which it reads"
            )
        found = []
        for (source, target), at_ms in sorted(newest.items()):
            copied = [topic for topic in topics if is_copied_from(topic.name, source)]
            records = [topic.records for topic in copied]
            known = [count for count in records if count is not None]
            total = sum(known) if len(known) == len(records) else None
            found.append(MirrorSeen(source, target, at_ms, len(copied), total))
        return found

    def _heartbeats(self, part: PartitionSeen) -> list[LinkHeartbeat]:
        if part.leader is None or not part.end:
            return []
        begin = max(part.first or 0, part.end - _HEARTBEATS_READ)
        partition = TopicPartition(HEARTBEATS, part.partition)
        found: list[LinkHeartbeat] = []
        while begin < part.end:
            data = fetched_records(self._connection, partition, begin)
            before = begin
            for position, header in read_headers(data):
                begin = max(begin, header.last_offset + 1)
                if not header.is_control:
                    found += _heartbeats_in(data, position)
            if begin == before:
                break
        return found


def _heartbeats_in(data: bytes | bytearray | memoryview, position: int) -> Iterator[LinkHeartbeat]:
    """Those of a batch; a topic of this name may have other records, and batches without a sound
    one."""
    try:
        for record in read_records(data, position):
            with contextlib.suppress(CorruptDataError):
                yield LinkHeartbeat.decode(record.key or b"", record.value or b"")
    except (CorruptDataError, KafkaError):
        return


def _is_process(pid: object) -> bool:
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _at_once(keys: Sequence[Key], ask: Callable[[Key], Answer]) -> dict[Key, Answer]:
    """What ``ask`` returns for each, all asked at the same time. The threads end with the program:
    a server that does not answer does not keep it."""
    answers: queue.SimpleQueue[tuple[Key, Answer | Exception]] = queue.SimpleQueue()

    def work(key: Key) -> None:
        try:
            answers.put((key, ask(key)))
        except Exception as error:  # raised by the thread that waits
            answers.put((key, error))

    for key in keys:
        threading.Thread(target=work, args=(key,), name="barnabas-top", daemon=True).start()
    found = {}
    for _ in keys:
        key, answer = answers.get()
        if isinstance(answer, Exception):
            raise answer
        found[key] = answer
    return {key: found[key] for key in keys}
