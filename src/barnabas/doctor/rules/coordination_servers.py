"""Rules on each coordination server: load, disk, snapshots, and what its settings allow.

In ZooKeeper: the word `mntr`, the admin server, ``jute.maxbuffer``, ``maxClientCnxns``,
``autopurge.purgeInterval``.
"""

from collections.abc import Iterator

from barnabas.doctor.amounts import duration, size
from barnabas.doctor.evidence.cluster import MomentPart
from barnabas.doctor.evidence.coordination import (
    EnsemblePart,
    ServerClientsPart,
    ServerFiguresPart,
    ServerSettingsPart,
    ServerSnapshotsPart,
    ZnodesPart,
)
from barnabas.doctor.evidence.part import Absent
from barnabas.doctor.finding import Danger, Finding
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.words import some
from barnabas.metrics.thresholds import MANY_OUTSTANDING_REQUESTS, SLOW_FSYNC_MS

__all__ = [
    "autopurge_is_off",
    "fsync_is_slow",
    "jute_maxbuffer_is_near",
    "requests_are_outstanding",
    "snapshots_are_old",
    "too_many_connections",
    "too_many_znodes",
]

DEFAULT_JUTE_BYTES = 1_048_575
KAFKA_ANSWER_BYTES = 4 << 20
"""The largest answer that Apache Kafka's brokers take: they set jute.maxbuffer of their client."""
NEAR = 0.7
MOST_DATA_BYTES = 500 << 20
MOST_ZNODES = 1_000_000
OLD_SNAPSHOT_MS = 7 * 86_400_000
_DEFAULT_SNAP_COUNT = 100_000
_COUNTER = (1 << 32) - 1
_PURGE = "autopurge.purgeInterval"


@rule("jute-maxbuffer", Danger.COMING, "a znode, or a list of them, comes near jute.maxbuffer")
def jute_maxbuffer_is_near(
    znodes: ZnodesPart, settings: ServerSettingsPart | Absent, figures: ServerFiguresPart | Absent
) -> Iterator[Finding]:
    """A znode beyond the server's limit cannot be written; brokers cannot read a longer list: no
    controller can be elected then."""
    limit = _jute_limit(settings)
    found: dict[str, str] = {}
    for path, each in znodes.lists.items():
        if each.size_bytes > KAFKA_ANSWER_BYTES * NEAR:
            found[path] = (
                f"{path}: {each.count} children, {size(each.size_bytes)} of the {size(KAFKA_ANSWER_BYTES)} that "
                "Kafka's brokers read"
            )
    for path, count in znodes.data_bytes.items():
        if count > limit * NEAR:
            found[path] = f"{path}: {size(count)} of the {size(limit)} that the server takes"
    for address, each_figures in () if isinstance(figures, Absent) else figures.figures.items():
        if rejected := each_figures.get("large_requests_rejected", 0.0):
            found[address] = f"{address}: {rejected:.0f} requests were too large (large_requests_rejected)"
    if found:
        yield Finding(
            tuple(found),
            f"Requests to the coordination service come near jute.maxbuffer: {some(found)}.",
            tuple(found.values()),
            (
                "delete topics that are not used, or raise jute.maxbuffer on all coordination servers and brokers "
                "(-Djute.maxbuffer for Java's)",
            ),
        )


def _jute_limit(settings: ServerSettingsPart | Absent) -> int:
    """The least limit of the servers' settings; the default where they do not show them."""
    shown = () if isinstance(settings, Absent) else settings.settings.values()
    texts = [each.get("jute.maxbuffer", "") for each in shown]
    return min((int(text) for text in texts if text.isdecimal()), default=DEFAULT_JUTE_BYTES)


@rule("coordination-outstanding", Danger.COMING, "a coordination server has many requests without an answer")
def requests_are_outstanding(ensemble: EnsemblePart) -> Iterator[Finding]:
    """It is slower than its clients: sessions expire when it falls behind."""
    found = {
        each.address: f"{each.address}: {each.outstanding} requests outstanding (srvr)"
        for each in ensemble.servers
        if each.outstanding is not None and each.outstanding > MANY_OUTSTANDING_REQUESTS
    }
    if found:
        yield Finding(
            tuple(found),
            f"Requests wait at the coordination service: {some(found)}. Sessions of brokers expire when it falls behind.",
            tuple(found.values()),
            ("look for slow disks and for clients that ask too much: the word cons shows who",),
        )


@rule("coordination-fsync", Danger.COMING, "a coordination server's disk is slow")
def fsync_is_slow(servers: ServerFiguresPart) -> Iterator[Finding]:
    """Each change of the cluster waits for it."""
    found: dict[str, str] = {}
    for address, figures in servers.figures.items():
        average, count = figures.get("avg_fsynctime", 0.0), figures.get("cnt_fsynctime", 0.0)
        slow = figures.get("fsync_threshold_exceed_count", 0.0)
        if count >= 10 and (average > SLOW_FSYNC_MS or slow > count * 0.05):
            found[address] = (
                f"{address}: {average:.0f} ms for each fsync of {count:.0f} (avg_fsynctime), {slow:.0f} over "
                "fsync.warningthresholdms"
            )
    if found:
        yield Finding(
            tuple(found),
            f"The transaction log of {some(found)} is on a slow disk: each change of the cluster waits for it.",
            tuple(found.values()),
            ("put dataLogDir on a disk of its own, without other writers",),
        )


@rule("coordination-size", Danger.COMING, "the coordination service holds very much")
def too_many_znodes(servers: ServerFiguresPart) -> Iterator[Finding]:
    """All of it is in memory, and in each snapshot that a member starts from."""
    found: dict[str, str] = {}
    for address, figures in servers.figures.items():
        count, data = figures.get("znode_count", 0.0), figures.get("approximate_data_size", 0.0)
        if count > MOST_ZNODES or data > MOST_DATA_BYTES:
            found[address] = f"{address}: {count:.0f} znodes with {size(data)} (znode_count, approximate_data_size)"
    if found:
        yield Finding(
            tuple(found),
            f"The coordination service holds very much: {some(found)}. Members take long to start from a snapshot.",
            tuple(found.values()),
            ("look for what is not of Kafka, or is not used: zookeeper-shell's ls -R shows the paths",),
        )


@rule("coordination-connections", Danger.COMING, "a client address comes near maxClientCnxns")
def too_many_connections(clients: ServerClientsPart) -> Iterator[Finding]:
    """The next connection from that address is closed at once: a broker cannot come back."""
    found: dict[str, str] = {}
    for server, connections in clients.connections.items():
        limit = clients.limits.get(server, 0)
        for address, count in connections.items():
            if limit and count > limit * NEAR:
                found[f"{server} from {address}"] = (
                    f"{server}: {count} connections from {address}, of {limit} (maxClientCnxns)"
                )
    if found:
        yield Finding(
            tuple(found),
            f"Connections to the coordination service come near their limit: {some(found)}.",
            tuple(found.values()),
            ("raise maxClientCnxns in zoo.cfg, or find what opens so many: the word cons lists them",),
        )


@rule("coordination-snapshots", Danger.UNTIDY, "a coordination server's last snapshot is old, or far behind")
def snapshots_are_old(
    snapshots: ServerSnapshotsPart, ensemble: EnsemblePart, settings: ServerSettingsPart | Absent, moment: MomentPart
) -> Iterator[Finding]:
    """Its next start replays all transactions since."""
    found: dict[str, str] = {}
    for server in ensemble.servers:
        snapshot = snapshots.snapshots.get(server.address)
        if snapshot is None or server.zxid is None:
            continue
        behind = _behind(server.zxid, snapshot.zxid)
        snap_count = _snap_count(settings, server.address)
        age_ms = moment.now_ms - snapshot.timestamp_s * 1000
        if behind > 2 * snap_count:
            found[server.address] = f"{server.address}: {behind} transactions since, snapCount is {snap_count}"
        elif behind and snapshot.zxid >= 0 and age_ms > OLD_SNAPSHOT_MS:
            found[server.address] = f"{server.address}: {duration(age_ms)} old, {behind} transactions since"
    if found:
        yield Finding(
            tuple(found),
            f"The last snapshot of {some(found)} is old: its next start replays all transactions since, and purging "
            "must keep their logs.",
            tuple(found.values()),
            (
                "look for errors about snapshots in its log, and whether its disk is full; a server takes one when it "
                "starts",
            ),
        )


def _behind(zxid: int, snapshot_zxid: int) -> int:
    """Transactions since the snapshot; where an election was between, those of the epoch now."""
    if snapshot_zxid < 0 or zxid >> 32 != snapshot_zxid >> 32:
        return zxid & _COUNTER
    return (zxid & _COUNTER) - (snapshot_zxid & _COUNTER)


def _snap_count(settings: ServerSettingsPart | Absent, address: str) -> int:
    text = "" if isinstance(settings, Absent) else settings.settings.get(address, {}).get("snapCount", "")
    return int(text) if text.isdecimal() else _DEFAULT_SNAP_COUNT


@rule("autopurge-off", Danger.UNTIDY, "a coordination server never deletes old snapshots and logs")
def autopurge_is_off(servers: ServerSettingsPart) -> Iterator[Finding]:
    """Its disk fills up, slowly, if nothing else deletes them."""
    found = {
        address: f"{address}: autopurge.purgeInterval={settings.get(_PURGE, '0, the default')}"
        for address, settings in servers.settings.items()
        if not _is_positive(settings.get(_PURGE, "0"))
    }
    if found:
        yield Finding(
            tuple(found),
            f"Old snapshots and transaction logs are never deleted: {some(found)}.",
            tuple(found.values()),
            ("set autopurge.purgeInterval=24 in zoo.cfg, and restart the servers one after the other",),
        )


def _is_positive(text: str) -> bool:
    return text.strip().isdecimal() and int(text) > 0
