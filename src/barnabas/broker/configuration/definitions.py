"""Every broker property of Kafka 3.9, with its default and what it does here
(Kafka's `KafkaConfig`).

What has an effect is defined here; `without_effect` has the names that are accepted and change
nothing, `refused` those that are refused. A name that is in none of them is kept, shown by
DescribeConfigs and reported. `UPDATE_MODES` says which may change while the broker runs (KIP-226).
"""

from collections.abc import Collection, Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Definitions, ValueCheck, Values
from barnabas.broker.configuration.authorizer_settings import ROWS_AUTHORIZER, ROWS_OF_AUTHORIZER, check_authorizer
from barnabas.broker.configuration.listener_security import check_listener_security, security_without_effect
from barnabas.broker.configuration.protocol_version import wrong_protocol_version
from barnabas.broker.configuration.refused import ROWS_REFUSED, wrong_unlisted
from barnabas.broker.configuration.security_settings import ROWS_SECURITY, listener_setting
from barnabas.broker.configuration.table import BrokerRow, UpdateMode, read_broker_table
from barnabas.broker.configuration.without_effect import DYNAMIC_THREADS, ROWS_WITHOUT_EFFECT, WITHOUT_EFFECT
from barnabas.broker.metadata.features import wrong_levels
from barnabas.security.jaas import JAAS_FILE

__all__ = [
    "DEFINITIONS",
    "NOT_DESCRIBED",
    "UPDATE_MODES",
    "WITHOUT_EFFECT",
    "UpdateMode",
    "check_thread_counts",
    "connection_caps",
    "log_dirs",
    "settings_without_effect",
]


def _gzip_level(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "Value must be between 1 and 9 or equal to -1"


def _wrong_caps(text: str) -> str | None:
    for item in filter(None, map(str.strip, text.split(","))):
        host, _, count = item.rpartition(":")
        if not host or not count.isdigit():
            return f"{item!r} is not host:count"
    return None


_CHECKS: dict[str, ValueCheck] = {
    "feature-levels": wrong_levels,
    "gzip-level": _gzip_level,
    "host-counts": _wrong_caps,
    "protocol-version": wrong_protocol_version,
}
_COORDINATION = """
zookeeper.connect string - - required
    Addresses of the coordination ensemble, host:port separated by commas. A chroot path may follow
    the last.
zookeeper.session.timeout.ms int - - 18000
    Time without contact after which the coordination service takes the broker for dead.
zookeeper.connection.timeout.ms int - - -
    How long the broker tries to reach the ensemble at its start. Unset:
    zookeeper.session.timeout.ms.
"""
_IDENTITY = """
broker.id int [-1,...] - -1
    The id of this broker; -1 generates one.
node.id int - - -1
    The same as broker.id.
broker.id.generation.enable boolean - - true
    Whether ids above reserved.broker.max.id may be generated.
reserved.broker.max.id int [0,...] - 1000
    The largest value of broker.id; generated ids are larger.
inter.broker.protocol.version string protocol-version - 3.9-IV0
    Below 2.7, no feature can be finalized (KIP-584); below 3.3, the znode /feature has its older
    format. Brokers speak the protocol of Kafka 3.9 among themselves, whatever it says.
new.cluster.features list feature-levels - ''
    Features, such as transaction.version=2, that the first controller of a new cluster finalizes:
    one without the znode /feature. Later `barnabas features` changes them (ours; not in Kafka).
broker.rack string - - -
    The rack of this broker, for the placement of replicas and for reads from the nearest replica.
delete.topic.enable boolean - - true
    Whether topics can be deleted.
auto.create.topics.enable boolean - - true
    Whether a metadata request for a missing topic creates it.
"""
_NETWORK = """
listeners string - - PLAINTEXT://:9092
    Where the broker listens: NAME://host:port, separated by commas.
advertised.listeners string - - -
    The addresses that clients connect to. Unset: those of listeners.
listener.security.protocol.map string - - SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
    The security protocol of each listener name.
inter.broker.listener.name string - - -
    The listener that brokers use between themselves.
security.inter.broker.protocol string [PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL] - PLAINTEXT
    Selects the inter-broker listener where inter.broker.listener.name is not set.
socket.send.buffer.bytes int - - 102400
    SO_SNDBUF of client connections; -1 lets the system size it as the reader takes the bytes. The
    default cuts an answer of a megabyte into five pieces, and gives a distant reader 200 KB in each
    round trip.
socket.receive.buffer.bytes int - - 102400
    SO_RCVBUF of client connections; -1 leaves it to the system.
socket.request.max.bytes int [1,...] - 104857600
    The largest request, in bytes.
queued.max.request.bytes long - - -1
    Bytes that may wait in memory for all clients together: requests that have not come to their end
    or are being decoded, and answers that are not read. Near the limit large requests wait in their
    sockets, and clients that stand still are disconnected. A request that is larger than the limit
    is served all the same. -1 for 128 MiB; in Kafka, for no limit.
max.connections int [0,...] cluster 10000
    Connections that the broker accepts, from all addresses together. Where there are several
    listeners, the one of the brokers goes beyond it. If not set, at most half of the limit of open
    files. Kafka has no limit: 2147483647 lifts it.
max.connections.per.ip int [0,...] cluster 2000
    Connections that the broker accepts from one address. If not set, at most a quarter of the limit
    of open files. Kafka has no limit: 2147483647 lifts it, and max.connections.per.ip.overrides
    lifts it for the address of a proxy or of a NAT gateway.
max.connections.per.ip.overrides string host-counts cluster ''
    Limits for single addresses: host:count, separated by commas. A host name stands for its first
    address.
metrics.http.address string - - -
    Where Prometheus gets the metrics of the broker, in the path /metrics: host:port. Unset: nowhere
    (ours; not in Kafka).
metrics.http.topics int [0,...] - 100
    The number of topics that have metrics of their own (not in Kafka).
connections.max.idle.ms long - - 600000
    Connections without a request for this long are closed.
request.timeout.ms int - - 30000
    Timeout of this broker's requests to other brokers.
"""
_LOG = """
log.dir string - - /tmp/kafka-logs
    The folder for partitions, if log.dirs is not set.
log.dirs string - - -
    The folders for partitions, separated by commas.
num.partitions int [1,...] - 1
    Partitions of topics that are created automatically.
message.max.bytes int [0,...] cluster 1048588
    The largest record batch, in bytes.
log.segment.bytes int [14,...] cluster 1073741824
    Size at which a new segment begins.
log.roll.ms long [1,...] cluster -
    Age at which a new segment begins. Unset: log.roll.hours.
log.roll.hours int [1,...] - 168
    Age at which a new segment begins.
log.roll.jitter.ms long [0,...] cluster -
    The largest random time that is subtracted from log.roll.ms. Unset: log.roll.jitter.hours.
log.roll.jitter.hours int [0,...] - 0
    The largest random time that is subtracted from log.roll.hours.
log.retention.ms long - cluster -
    Age at which segments are deleted; -1 for never.
log.retention.minutes int - - -
    Age at which segments are deleted, if log.retention.ms is not set.
log.retention.hours int - - 168
    Age at which segments are deleted, if neither log.retention.ms nor log.retention.minutes is set.
log.retention.bytes long - cluster -1
    Size of a partition above which its oldest segments are deleted; -1 for no limit.
log.retention.check.interval.ms long [1,...] - 300000
    How often retention is applied.
log.cleanup.policy list [compact,delete] cluster delete
    What happens to old segments: they are deleted, or only the last record of each key is kept
    (compact), or both.
log.segment.delete.delay.ms long [0,...] cluster 60000
    How long the files of deleted segments stay for readers.
log.index.size.max.bytes int [4,...] cluster 10485760
    The largest offset index, in bytes.
log.index.interval.bytes int [0,...] cluster 4096
    Bytes of records between two entries of an index.
log.compression.check boolean - cluster true
    Whether the leader opens compressed batches that it stores as they came (ours; not in Kafka).
log.flush.before.ack boolean - cluster false
    Whether records are synced to disk before they are acknowledged or visible (ours; not in Kafka).
log.flush.interval.messages long [1,...] cluster 9223372036854775807
    Records after which a partition is synced to disk.
log.flush.interval.ms long - cluster -
    Time after which a partition is synced to disk. Unset: log.flush.scheduler.interval.ms.
log.flush.scheduler.interval.ms long - - 9223372036854775807
    How often the broker looks for partitions to sync.
log.flush.offset.checkpoint.interval.ms int [0,...] - 60000
    How often recovery points are written.
log.flush.start.offset.checkpoint.interval.ms int [0,...] - 60000
    How often log start offsets are written.
log.message.timestamp.type string [CreateTime,LogAppendTime] cluster CreateTime
    Whether records have the producer's timestamp or that of the append.
log.message.timestamp.before.max.ms long [0,...] cluster 9223372036854775807
    How far a producer's timestamp may lie behind the broker's clock.
log.message.timestamp.after.max.ms long [0,...] cluster 9223372036854775807
    How far a producer's timestamp may lie ahead of the broker's clock.
compression.type string [uncompressed,zstd,lz4,snappy,gzip,producer] cluster producer
    The codec in which topics are stored; producer keeps the codec of each batch.
compression.gzip.level int gzip-level cluster -1
    Level for topics that the broker compresses with gzip; -1 is the codec's own default.
compression.lz4.level int [1,...,17] cluster 9
    Level for topics that the broker compresses with lz4.
compression.zstd.level int [-131072,...,22] cluster 3
    Level for topics that the broker compresses with zstd.
log.message.timestamp.difference.max.ms long [0,...] cluster 9223372036854775807
    Deprecated: both of the timestamp limits, before and after, where they are not set.
log.cleaner.enable boolean - - true
    Whether topics with cleanup.policy=compact are compacted.
log.cleaner.threads int [0,...] cluster 1
    How many logs are compacted at a time.
log.cleaner.backoff.ms long [0,...] cluster 15000
    How often the broker looks for logs to compact.
log.cleaner.io.max.bytes.per.second double [1,...] cluster 1.7976931348623157E308
    Bytes a second that all compactions together may read and write.
log.cleaner.dedupe.buffer.size long [1048576,...] cluster 134217728
    Memory for the keys of all compactions, 32 bytes for each key. It is allocated as keys come.
log.cleaner.io.buffer.load.factor double [0.01,...,0.95] cluster 0.9
    How full that memory may become. A higher value takes more keys at a time and needs more probes
    for each.
log.cleaner.io.buffer.size int [0,...] cluster 524288
    Bytes that all compactions read at a time; in processes of their own eight times as many.
log.cleaner.delete.retention.ms long [0,...] cluster 86400000
    How long compacted topics keep delete markers.
log.cleaner.min.compaction.lag.ms long [0,...] cluster 0
    Records younger than this are not compacted.
log.cleaner.max.compaction.lag.ms long [1,...] cluster 9223372036854775807
    Age at which records must have been compacted.
log.cleaner.min.cleanable.ratio double [0,...,1] cluster 0.5
    Share of bytes not yet compacted at which a log is compacted.
"""
_REPLICATION = """
default.replication.factor int - - 1
    Replicas of topics that are created automatically.
min.insync.replicas int [1,...] cluster 1
    Replicas that must have a record before acks=all is answered; with fewer in sync the record is
    refused.
replica.lag.time.max.ms long - - 30000
    A follower that has not caught up for this long leaves the ISR.
replica.lag.max.messages long [1,...] - -
    Historic (Kafka before 0.9, KIP-16): a follower that is more records behind than this leaves the
    ISR too, even one that keeps up, after a burst of records. Unset: time alone decides.
replica.fetch.max.bytes int [0,...] - 1048576
    Bytes that a follower fetches of one partition at a time.
replica.fetch.response.max.bytes int [0,...] - 10485760
    Bytes that a follower fetches of one leader at a time.
replica.fetch.min.bytes int - - 1
    Bytes for which a leader lets a follower wait.
replica.fetch.wait.max.ms int - - 500
    How long a leader lets a follower wait for them.
replica.fetch.backoff.ms int [0,...] - 1000
    How long a follower waits after a failed fetch.
replica.socket.timeout.ms int - - 30000
    Timeout of a follower's requests.
replica.selector.class string - - -
    Which replica serves a consumer that gives its rack: the leader, or with
    org.apache.kafka.common.replica.RackAwareReplicaSelector an in-sync follower in that rack.
leader.replication.throttled.rate long [0,...] cluster 9223372036854775807
    Bytes a second that this broker sends of the replicas in its topics'
    leader.replication.throttled.replicas.
follower.replication.throttled.rate long [0,...] cluster 9223372036854775807
    Bytes a second that this broker copies of the replicas in its topics'
    follower.replication.throttled.replicas.
replication.quota.window.num int [1,...] - 11
    Samples over which the two replication throttles are measured.
replication.quota.window.size.seconds int [1,...] - 1
    Length of each of these samples.
replica.alter.log.dirs.io.max.bytes.per.second long [0,...] cluster 9223372036854775807
    Bytes a second that all moves of replicas between log dirs together may copy.
num.replica.alter.log.dirs.threads int - - -
    How many replicas move between log dirs at a time; as many as there are log dirs unless set.
replica.high.watermark.checkpoint.interval.ms long [1,...] - 5000
    How often high watermarks are written to disk.
unclean.leader.election.enable boolean - cluster false
    Whether a replica outside the ISR may become leader.
auto.leader.rebalance.enable boolean - - true
    Whether preferred replicas become leaders again without a request.
leader.imbalance.per.broker.percentage int - - 10
    Share of a broker's partitions with another leader than the preferred one, at which that
    happens.
leader.imbalance.check.interval.seconds long [1,...] - 300
    How often that share is checked.
controller.socket.timeout.ms int - - 30000
    Timeout of the controller's requests to brokers.
controlled.shutdown.enable boolean - - true
    Whether a broker moves its leaderships to others before it stops.
controlled.shutdown.max.retries int - - 3
    Attempts to move them.
controlled.shutdown.retry.backoff.ms long - - 5000
    Pause between two attempts.
"""
_GROUPS = """
group.min.session.timeout.ms int - - 6000
    The shortest session timeout that a consumer may ask for.
group.max.session.timeout.ms int - - 1800000
    The longest session timeout that a consumer may ask for.
group.initial.rebalance.delay.ms int - - 3000
    How long a new group waits for more members.
group.max.size int [1,...] - 2147483647
    Members that a group may have.
offset.metadata.max.bytes int - - 4096
    Bytes of metadata that a committed offset may have.
offsets.load.buffer.size int [1,...] - 5242880
    Bytes read at a time when offsets are loaded.
offsets.retention.minutes int [1,...] - 10080
    How long offsets of an empty group are kept.
offsets.retention.check.interval.ms long [1,...] - 600000
    How often expired offsets are looked for.
offsets.topic.num.partitions int [1,...] - 50
    Partitions of __consumer_offsets.
offsets.topic.replication.factor short [1,...] - 3
    Replicas of __consumer_offsets.
offsets.topic.segment.bytes int [1,...] - 104857600
    Segment size of __consumer_offsets.
offsets.topic.compression.codec int - - 0
    Codec of __consumer_offsets, by its number.
offsets.commit.timeout.ms int [1,...] - 5000
    How long an offset commit waits for replicas.
"""
_TRANSACTIONS = """
transaction.state.log.replication.factor short [1,...] - 3
    Replicas of __transaction_state.
transaction.state.log.min.isr int [1,...] - 2
    min.insync.replicas of __transaction_state.
transaction.state.log.num.partitions int [1,...] - 50
    Partitions of __transaction_state.
transaction.state.log.segment.bytes int [1,...] - 104857600
    Segment size of __transaction_state.
transaction.state.log.load.buffer.size int [1,...] - 5242880
    Bytes read at a time when transactions are loaded.
transaction.max.timeout.ms int [1,...] - 900000
    Longest transaction timeout that a producer may ask for.
transaction.abort.timed.out.transaction.cleanup.interval.ms int [1,...] - 10000
    How often transactions past their timeout are aborted.
transaction.remove.expired.transaction.cleanup.interval.ms int [1,...] - 3600000
    How often expired transactional ids are removed.
transaction.partition.verification.enable boolean - cluster true
    Whether a transaction's coordinator is asked before its first records in a partition are appended (KIP-890).
transactional.id.expiration.ms int [1,...] - 604800000
    How long an unused transactional id is kept.
"""
_SERVING = """
fetch.max.bytes int [1024,...] - 57671680
    Bytes that one answer to a fetch may have.
max.incremental.fetch.session.cache.slots int [0,...] - 1000
    Fetch sessions that the broker keeps.
producer.id.expiration.ms int [1,...] cluster 86400000
    How long the state of an inactive producer is kept.
"""

_MIB = 1 << 20


def _check_all(values: Values) -> None:
    threads = values["log.cleaner.threads"]
    if values["log.cleaner.enable"] and values["log.cleaner.dedupe.buffer.size"] < threads * _MIB:
        raise ConfigError("requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        raise ConfigError(
            "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
        )
    if 0 < values["queued.max.request.bytes"] < values["socket.request.max.bytes"]:
        raise ConfigError(
            "requirement failed: queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
        )
    if values.is_set("node.id") and values["node.id"] != values["broker.id"]:
        raise ConfigError("node.id must be equal to broker.id: set broker.id, or leave node.id out")
    if values["connection.failed.authentication.delay.ms"] >= values["connections.max.idle.ms"] >= 0:
        raise ConfigError(
            "requirement failed: connection.failed.authentication.delay.ms="
            f"{values['connection.failed.authentication.delay.ms']} must be less than connections.max.idle.ms="
            f"{values['connections.max.idle.ms']} to prevent failed authentication responses from timing out"
        )
    check_listener_security(values)
    check_authorizer(values)


_JAAS_FILE_TABLE = f"""
{JAAS_FILE} string - - -
    A JAAS file with the section KafkaServer, for SASL: Java's system property, which Kafka does not have
    among its own.
"""
_OURS = (_COORDINATION, _IDENTITY, _NETWORK, _LOG, _REPLICATION, _GROUPS, _TRANSACTIONS, _SERVING)
_ROWS: list[BrokerRow] = [
    *(row for table in _OURS for row in read_broker_table(table, _CHECKS)),
    *(*ROWS_WITHOUT_EFFECT, *ROWS_SECURITY, *ROWS_REFUSED, *ROWS_AUTHORIZER, *ROWS_OF_AUTHORIZER),
    *read_broker_table(_JAAS_FILE_TABLE),
]

DEFINITIONS = Definitions(
    (row.setting for row in _ROWS),
    check_unknown=wrong_unlisted,
    check_all=_check_all,
)
"""All properties."""

NOT_DESCRIBED = frozenset(
    (
        *(row.setting.name for row in ROWS_OF_AUTHORIZER),
        JAAS_FILE,
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)
"""Properties that Kafka's DescribeConfigs lists only while they are set, as it does unknown
ones; none is updatable."""

UPDATE_MODES: dict[str, UpdateMode] = {
    row.setting.name: row.mode for row in _ROWS if row.mode is not UpdateMode.READ_ONLY
}
"""Properties that are not read-only. Cluster-wide ones may be set for one broker too."""


def settings_without_effect(values: Values) -> dict[str, str]:
    """The given properties that have no effect, each with the reason."""
    return {
        name: WITHOUT_EFFECT.get(name, "it is not known")
        for name in values.texts
        if name in WITHOUT_EFFECT or (name not in DEFINITIONS and listener_setting(name) is None)
    } | security_without_effect(values)


def check_thread_counts(before: Values, after: Values, changed: Collection[str]) -> None:
    """Refuse to change a number of threads by more than Kafka does in one step.

    Raises `ConfigError`."""
    for name in changed:
        if name == "log.cleaner.threads":
            too_few, too_many = (
                "Log cleaner threads cannot be reduced to less than half the current value {old}",
                "Log cleaner threads cannot be increased to more than double the current value {old}",
            )
            none = "Log cleaner threads should be at least 1"
        elif name in DYNAMIC_THREADS:
            failed = f"Dynamic thread count update validation failed for {name}={after[name]}, value "
            none = f"{failed}should be at least 1"
            too_few = failed + "should be at least half the current value {old}"
            too_many = failed + "should not be greater than double the current value {old}"
        else:
            continue
        old, new = before[name], after[name]
        wrong = none if new < 1 else too_few if new < old // 2 else too_many if new > old * 2 else None
        if wrong is not None and new != old:
            raise _invalid_change(wrong.format(old=old))


def _invalid_change(wrong: str) -> ConfigError:
    """The words of Kafka, which has the class of its exception in them."""
    wrong = f"org.apache.kafka.common.config.ConfigException: {wrong}"
    return ConfigError(f"Invalid value {wrong} for configuration Invalid dynamic configuration")


def log_dirs(values: Values) -> list[str]:
    """The log dirs, in order, each once; raises `ConfigError`."""
    text = values["log.dirs"] or values["log.dir"]
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ConfigError("At least one log directory must be defined via log.dirs or log.dir.")
    return found


def connection_caps(values: Values) -> Mapping[str, int]:
    """Caps of max.connections.per.ip.overrides by host name or address, as they are
    spelled there."""
    items = filter(None, map(str.strip, values["max.connections.per.ip.overrides"].split(",")))
    return {host: int(count) for host, _, count in (item.rpartition(":") for item in items)}
