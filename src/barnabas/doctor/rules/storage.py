"""Rules about log dirs, compaction and settings of logs.

In Kafka: `log.dirs`, the LogCleaner, `retention.bytes`, `segment.bytes`, `max.message.bytes`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from barnabas.client.admin.configurations import ConfigEntry
from barnabas.doctor.amounts import duration, size
from barnabas.doctor.evidence.cluster import TopicsPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart, TopicConfigsPart, setting_number
from barnabas.doctor.evidence.metrics import BrokerMetricsPart
from barnabas.doctor.evidence.part import Absent
from barnabas.doctor.evidence.storage import EarlierStoragePart, LogDirsPart
from barnabas.doctor.finding import Danger, Finding, MendingCommand
from barnabas.doctor.rules.mending import change_topics, reset_topics
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.words import brokers_named, counted, some
from barnabas.metrics.thresholds import DISK_FILLING, DISK_NEARLY_FULL

__all__ = [
    "batches_above_segment",
    "batches_above_socket",
    "cleaner_fails",
    "cleaner_off",
    "compacted_logs_never_rolled",
    "log_dir_fills_up",
    "log_dir_full",
    "log_dir_offline",
    "retention_below_segment",
]

_SOON_MS = 24 * 3_600_000
_SHOWN = 3
_DAY_MS = 86_400_000
_MOST_DIRTY = 0.9
_LEAST_SEGMENT = 1 << 20
_OLD_HEAD_BYTES = 12
_REQUEST_HEAD_BYTES = 1 << 16
_REQUEST_BYTES, _FETCH_BYTES = "socket.request.max.bytes", "replica.fetch.max.bytes"
_DEAD = "dead cleaner threads"
_DEAD_THREADS = "kafka_log_logcleaner_deadthreadcount"
_UNCLEANABLE = "kafka_log_logcleanermanager_uncleanable_partitions_count"


@rule("log-dir-offline", Danger.DATA_LOSS, "a broker has lost a log dir, with all replicas in it")
def log_dir_offline(log_dirs: LogDirsPart) -> Iterator[Finding]:
    """Log dirs with KAFKA_STORAGE_ERROR, which brokers do not use until they start again."""
    found = [(broker_id, log_dir) for broker_id, dirs in log_dirs.dirs.items() for log_dir in dirs if log_dir.error]
    if not found:
        return
    yield Finding(
        tuple(f"broker {broker_id}:{log_dir.path}" for broker_id, log_dir in found),
        f"{counted(len(found), 'log dir is', 'log dirs are')} offline, with all replicas in {'it' if len(found) == 1 else 'them'}: "
        f"{some(f'{log_dir.path} of broker {broker_id}' for broker_id, log_dir in found)}.",
        tuple(f"broker {broker_id}: {log_dir.path}: {log_dir.error.name}" for broker_id, log_dir in found[:_SHOWN]),
        ("Mend or replace the disk, then restart the broker: its replicas are copied from the others.",),
    )


@rule(
    "log-dir-full", Danger.UNAVAILABLE, "a log dir has less than 5 % left, and its broker gives it up when it is full"
)
def log_dir_full(log_dirs: LogDirsPart, earlier: EarlierStoragePart | Absent) -> Iterator[Finding]:
    """Brokers since 3.3 say how large the disk is (KIP-827)."""
    yield from _space(log_dirs, earlier, lambda share, _: share < DISK_NEARLY_FULL, "is nearly full", "are nearly full")


@rule("log-dir-fills-up", Danger.COMING, "a log dir has less than 15 % left, or will be full within a day")
def log_dir_fills_up(log_dirs: LogDirsPart, earlier: EarlierStoragePart | Absent) -> Iterator[Finding]:
    """One reading shows how full it is; two (``--over``) how fast it fills, and when it is full."""

    def is_filling(share: float, left_ms: float | None) -> bool:
        return share >= DISK_NEARLY_FULL and (share < DISK_FILLING or (left_ms is not None and left_ms < _SOON_MS))

    yield from _space(log_dirs, earlier, is_filling, "fills up", "fill up")


def _space(
    log_dirs: LogDirsPart,
    earlier: EarlierStoragePart | Absent,
    is_wrong: Callable[[float, float | None], bool],
    one: str,
    more: str,
) -> Iterator[Finding]:
    subjects, lines, all_by_others = [], [], True
    for broker_id, dirs in log_dirs.dirs.items():
        for log_dir in dirs:
            if not log_dir.total_bytes or log_dir.usable_bytes is None:
                continue
            share = log_dir.usable_bytes / log_dir.total_bytes
            left_ms = _time_left_ms(earlier, broker_id, log_dir.path, log_dir.usable_bytes)
            if is_wrong(share, left_ms):
                logs_bytes = sum(each.size_bytes for each in log_dir.replicas.values())
                all_by_others = all_by_others and logs_bytes * 2 < log_dir.total_bytes - log_dir.usable_bytes
                subjects.append(f"broker {broker_id}:{log_dir.path}")
                lines.append(
                    f"broker {broker_id}: {log_dir.path} has {size(log_dir.usable_bytes)} of "
                    f"{size(log_dir.total_bytes)} left ({share:.0%}), its logs are "
                    f"{size(logs_bytes)}; {_when(earlier, left_ms)}"
                )
    if not subjects:
        return
    yield Finding(
        tuple(subjects),
        f"{counted(len(subjects), f'log dir {one}', f'log dirs {more}')}: {some(subjects)}. A broker gives a full one "
        "up, and all replicas in it.",
        tuple(lines[:_SHOWN]),
        (
            "Most of the space is taken by other files than the logs: find them (du -x), and move them away. The logs:"
            if all_by_others
            else "Find what is large, then lower retention.ms or retention.bytes of that topic, add a disk, or move replicas:",
            MendingCommand.of("log-dirs", "--describe"),
        ),
    )


def _time_left_ms(earlier: EarlierStoragePart | Absent, broker_id: int, path: str, usable: int) -> float | None:
    """Until the log dir is full, at the rate between two readings; None where it is not known, or
    does not fill."""
    if isinstance(earlier, Absent) or not earlier.before_ms:
        return None
    before = next((each.usable_bytes for each in earlier.dirs.get(broker_id, ()) if each.path == path), None)
    if before is None or before <= usable:
        return None
    return usable * earlier.before_ms / (before - usable)


def _when(earlier: EarlierStoragePart | Absent, left_ms: float | None) -> str:
    if isinstance(earlier, Absent):
        return "when it is full is not known (--over SECONDS measures it)"
    seconds = earlier.before_ms / 1000
    if left_ms is None:
        return f"it has not grown in {seconds:.0f} s"
    return f"full in {duration(left_ms)} at the rate of the last {seconds:.0f} s"


@rule("cleaner-off", Danger.COMING, "compacted topics are never compacted, for the log cleaner is off")
def cleaner_off(topics: TopicsPart, configs: BrokerConfigsPart, settings: TopicConfigsPart) -> Iterator[Finding]:
    """`log.cleaner.enable=false` while there are compacted topics, as those of offsets are."""
    off = sorted(
        broker_id
        for broker_id, entries in configs.entries.items()
        if (entry := entries.get("log.cleaner.enable")) is not None and entry.value == "false"
    )
    compacted = [topic.name for topic in topics.topics if _is_compacted(settings.entries.get(topic.name, {}))]
    if not off or not compacted:
        return
    yield Finding(
        tuple(f"broker {broker_id}" for broker_id in off),
        f"The log cleaner is off at {brokers_named(off)}, so that compacted topics only grow: {some(compacted)}.",
        tuple(f"log.cleaner.enable=false at broker {broker_id}" for broker_id in off[:_SHOWN]),
        (f"Set log.cleaner.enable=true in server.properties of {brokers_named(off)}, and restart.",),
    )


@rule("cleaner-fails", Danger.COMING, "the log cleaner cannot compact some logs, which only grow")
def cleaner_fails(metrics: BrokerMetricsPart) -> Iterator[Finding]:
    """Logs that the last attempt could not compact, and cleaner threads that have died, by the
    brokers' metrics."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for address, page in metrics.pages.items():
        for directory, count in page.by_label(_UNCLEANABLE, "logDirectory").items():
            if count:
                found[address][directory] = count
        dead = sum(page.value(name) or 0 for name in page if name.lower().replace("_count", "count") == _DEAD_THREADS)
        if dead:
            found[address][_DEAD] = dead
    if not found:
        return
    yield Finding(
        tuple(f"{address}:{directory}" for address, dirs in found.items() for directory in dirs),
        f"The log cleaner fails at the brokers with metrics at {some(found)}: their compacted logs only grow.",
        tuple(
            f"{address}: {count:.0f} {directory if directory == _DEAD else f'logs in {directory} could not be compacted'}"
            for address, dirs in list(found.items())[:_SHOWN]
            for directory, count in dirs.items()
        ),
        ("Look for the log cleaner in these brokers' logs: they name the partition and why. Then restart the broker.",),
    )


@rule("compaction-waits", Danger.UNTIDY, "compacted topics whose records cannot be compacted for a very long time")
def compacted_logs_never_rolled(topics: TopicsPart, settings: TopicConfigsPart) -> Iterator[Finding]:
    """Settings under which the cleaner hardly ever has something to do.

    It leaves the active segment alone, and logs with a smaller dirty ratio."""
    found: dict[str, str] = {}
    mends: dict[str, str] = {}
    for topic in topics.topics:
        entries = settings.entries.get(topic.name, {})
        if not _is_compacted(entries):
            continue
        segment_ms = setting_number(entries, "segment.ms") or 0
        lag_ms = setting_number(entries, "min.compaction.lag.ms") or 0
        ratio = _ratio(entries)
        if segment_ms > 90 * _DAY_MS and (setting_number(entries, "max.compaction.lag.ms") or 0) > 90 * _DAY_MS:
            found[topic.name], mends[topic.name] = f"segment.ms is {duration(segment_ms)}", "segment.ms"
        elif lag_ms > 90 * _DAY_MS:
            found[topic.name], mends[topic.name] = (
                f"min.compaction.lag.ms is {duration(lag_ms)}",
                "min.compaction.lag.ms",
            )
        elif ratio is not None and ratio > _MOST_DIRTY:
            found[topic.name], mends[topic.name] = (
                f"min.cleanable.dirty.ratio is {ratio:g}",
                "min.cleanable.dirty.ratio",
            )
    if not found:
        return
    yield Finding(
        tuple(found),
        f"{counted(len(found), 'compacted topic', 'compacted topics')} will hardly ever be compacted: {some(found)}.",
        tuple(f"{name}: {why}" for name, why in list(found.items())[:_SHOWN]),
        reset_topics(mends),
    )


@rule("retention-below-segment", Danger.UNTIDY, "retention.bytes is less than one segment, so that it cannot be kept")
def retention_below_segment(topics: TopicsPart, settings: TopicConfigsPart) -> Iterator[Finding]:
    """The active segment is not deleted by size: a partition has up to `segment.bytes` more."""
    found: dict[str, tuple[int, int]] = {}
    for topic in topics.topics:
        entries = settings.entries.get(topic.name, {})
        retention, segment = setting_number(entries, "retention.bytes"), setting_number(entries, "segment.bytes")
        if retention is not None and segment is not None and 0 <= retention < segment and _deletes(entries):
            found[topic.name] = retention, segment
    if not found:
        return
    yield Finding(
        tuple(found),
        f"{counted(len(found), 'topic keeps', 'topics keep')} more than retention.bytes, for one segment is larger: "
        f"{some(found)}.",
        tuple(
            f"{name}: retention.bytes={retention}, segment.bytes={segment}"
            for name, (retention, segment) in list(found.items())[:_SHOWN]
        ),
        change_topics(
            {name: f"segment.bytes={max(retention // 2, _LEAST_SEGMENT)}" for name, (retention, _) in found.items()}
        ),
    )


@rule("batches-above-segment", Danger.UNAVAILABLE, "max.message.bytes allows batches that fit into no segment")
def batches_above_segment(topics: TopicsPart, settings: TopicConfigsPart) -> Iterator[Finding]:
    """Producers get RECORD_LIST_TOO_LARGE for a batch between the two."""
    found = {
        topic.name: (batch, segment)
        for topic in topics.topics
        if (batch := setting_number(settings.entries.get(topic.name, {}), "max.message.bytes")) is not None
        and (segment := setting_number(settings.entries.get(topic.name, {}), "segment.bytes")) is not None
        and batch > segment
    }
    if not found:
        return
    yield Finding(
        tuple(found),
        f"{counted(len(found), 'topic allows', 'topics allow')} larger batches than a segment holds, which are refused: "
        f"{some(found)}.",
        tuple(
            f"{name}: max.message.bytes={batch}, segment.bytes={segment}"
            for name, (batch, segment) in list(found.items())[:_SHOWN]
        ),
        change_topics({name: f"max.message.bytes={segment}" for name, (_, segment) in found.items()}),
    )


@rule("batches-above-fetch", Danger.UNTIDY, "max.message.bytes is more than brokers fetch or receive at once")
def batches_above_socket(
    topics: TopicsPart, settings: TopicConfigsPart, configs: BrokerConfigsPart
) -> Iterator[Finding]:
    """A batch above `socket.request.max.bytes` never arrives. One above `replica.fetch.max.bytes`
    does reach followers since KIP-74, alone in its answer. Kafka's own defaults differ by
    12 bytes, the head of an old message set, which does not count."""
    limits = {
        name: min(values)
        for name in (_REQUEST_BYTES, _FETCH_BYTES)
        if (
            values := [
                number for each in configs.entries.values() if (number := setting_number(each, name)) is not None
            ]
        )
    }
    found: dict[str, tuple[int, str]] = {}
    for topic in topics.topics:
        batch = setting_number(settings.entries.get(topic.name, {}), "max.message.bytes")
        passed = next(
            (name for name, limit in limits.items() if batch is not None and batch > limit + _OLD_HEAD_BYTES), None
        )
        if batch is not None and passed is not None:
            found[topic.name] = batch, passed
    if not found:
        return
    yield Finding(
        tuple(found),
        f"{counted(len(found), 'topic allows', 'topics allow')} larger batches than brokers take at once: {some(found)}.",
        tuple(
            f"{name}: max.message.bytes={batch}, {passed}={limits[passed]} at brokers"
            for name, (batch, passed) in list(found.items())[:_SHOWN]
        ),
        tuple(_smaller_batches(found, limits.get(_REQUEST_BYTES))),
    )


def _smaller_batches(found: Mapping[str, tuple[int, str]], request: int | None) -> Iterator[MendingCommand | str]:
    """A topic comes below the limit of requests, with room for the rest of a request; brokers fetch
    what topics allow. To lower a topic below what brokers fetch would refuse batches that arrive
    today."""
    refused = {name for name, (_, passed) in found.items() if passed == _REQUEST_BYTES}
    if refused and request is not None:
        least = max(request - _REQUEST_HEAD_BYTES, request // 2)
        yield from change_topics(dict.fromkeys(sorted(refused), f"max.message.bytes={least}"))
    slow = [batch for name, (batch, _) in found.items() if name not in refused]
    if slow:
        yield (
            f"Set {_FETCH_BYTES}={max(slow)} in server.properties of the brokers, and restart them one after the other: "
            "a follower copies a larger batch alone in its answer. To lower max.message.bytes would refuse producers."
        )


def _is_compacted(entries: Mapping[str, ConfigEntry]) -> bool:
    return "compact" in ((entry.value or "") if (entry := entries.get("cleanup.policy")) is not None else "")


def _deletes(entries: Mapping[str, ConfigEntry]) -> bool:
    return "delete" in ((entry.value or "") if (entry := entries.get("cleanup.policy")) is not None else "")


def _ratio(entries: Mapping[str, ConfigEntry]) -> float | None:
    entry = entries.get("min.cleanable.dirty.ratio")
    try:
        return None if entry is None else float(entry.value or "")
    except ValueError:
        return None
