"""Properties of Kafka 3.9 that have no effect on this broker, with the reason.

They are accepted, so that Kafka's server.properties works unchanged; DescribeConfigs shows and
marks them; those that are set are reported at the start. Properties that ask for protection are not
here but in `refused`: they are refused.

Kafka has no counterpart.
"""

from barnabas.broker.configuration.table import BrokerRow, read_broker_table

__all__ = ["DYNAMIC_THREADS", "ROWS_WITHOUT_EFFECT", "WITHOUT_EFFECT"]

_TABLES = {
    "one event loop serves all connections and requests": """
num.network.threads int [1,...] cluster 3
    Threads that read requests and send answers.
num.io.threads int [1,...] cluster 8
    Threads that process requests.
background.threads int [1,...] cluster 10
    Threads for background work.
queued.max.requests int [1,...] - 500
    Requests that may wait for a thread. Here the next request of a connection waits in its socket.
num.replica.fetchers int - cluster 1
    Fetcher threads for each source broker. Here one loop copies from each leader, and a second one
    copies what is behind.
num.recovery.threads.per.data.dir int [1,...] cluster 1
    Threads that recover the logs of one log dir. Here logs are recovered one after the other.
replica.socket.receive.buffer.bytes int - - 65536
    SO_RCVBUF of followers' connections. Here the system sizes these buffers as they are used.
fetch.purgatory.purge.interval.requests int - - 1000
    Completed fetches after which the purgatory is cleaned. Here completed requests leave at once.
producer.purgatory.purge.interval.requests int - - 1000
    Completed produce requests after which the purgatory is cleaned.
delete.records.purgatory.purge.interval.requests int - - 1
    Completed DeleteRecords requests after which the purgatory is cleaned.
group.coordinator.threads int - - 1
    Threads of the group coordinator.
""",
    "a connection to another broker may take as long as a request": """
socket.connection.setup.timeout.ms long - - 10000
    First time limit for connecting to another broker.
socket.connection.setup.timeout.max.ms long - - 30000
    Largest time limit for connecting to another broker.
""",
    "1024 connections may wait to be accepted": """
socket.listen.backlog.size int - - 50
    Connections that may wait to be accepted.
""",
    "requests to the coordination service are sent as they come, without a limit": """
zookeeper.max.in.flight.requests int - - 10
    Requests to the ensemble that may be unanswered.
""",
    "segment files grow as they are written": """
log.preallocate boolean - cluster false
    Whether a new segment file gets its full size on disk at once.
""",
    "offsets are committed when all in-sync replicas have them": """
offsets.commit.required.acks short - - -1
    Acknowledgements that an offset commit needs; -1 for all in-sync replicas.
""",
    "there are only classic consumer groups in this version": """
group.coordinator.rebalance.protocols list - - classic
    Group protocols that the coordinator accepts.
group.coordinator.append.linger.ms int - - 10
    How long the coordinator collects records before it appends them.
group.consumer.assignors list - - org.apache.kafka.coordinator.group.assignor.UniformAssignor,org.apache.kafka.coordinator.group.assignor.RangeAssignor
    Server-side assignors of the consumer protocol (KIP-848), the first is the default.
group.consumer.heartbeat.interval.ms int - - 5000
    Heartbeat interval of the consumer protocol.
group.consumer.min.heartbeat.interval.ms int - - 5000
    Least heartbeat interval of the consumer protocol.
group.consumer.max.heartbeat.interval.ms int - - 15000
    Largest heartbeat interval of the consumer protocol.
group.consumer.session.timeout.ms int - - 45000
    Session timeout of the consumer protocol.
group.consumer.min.session.timeout.ms int - - 45000
    Least session timeout of the consumer protocol.
group.consumer.max.session.timeout.ms int - - 60000
    Largest session timeout of the consumer protocol.
group.consumer.max.size int - - 2147483647
    Members that a group of the consumer protocol may have.
""",
    "there are no share groups in this version": """
group.share.delivery.count.limit int - - 5
    Attempts to deliver a record to a share group.
group.share.heartbeat.interval.ms int - - 5000
    Heartbeat interval of share groups.
group.share.min.heartbeat.interval.ms int - - 5000
    Least heartbeat interval of share groups.
group.share.max.heartbeat.interval.ms int - - 15000
    Largest heartbeat interval of share groups.
group.share.session.timeout.ms int - - 45000
    Session timeout of share groups.
group.share.min.session.timeout.ms int - - 45000
    Least session timeout of share groups.
group.share.max.session.timeout.ms int - - 60000
    Largest session timeout of share groups.
group.share.record.lock.duration.ms int - - 30000
    How long a member may hold a record that it acquired.
group.share.min.record.lock.duration.ms int - - 15000
    Least lock duration that a group may set.
group.share.max.record.lock.duration.ms int - - 60000
    Largest lock duration that a group may set.
group.share.partition.max.record.locks int - - 200
    Records of one partition that may be acquired at a time.
group.share.max.groups short - - 10
    Share groups that may exist.
group.share.max.size short - - 200
    Members that a share group may have.
""",
    "record formats 0 and 1 do not exist here": """
log.message.downconversion.enable boolean - cluster true
    Default of message.downconversion.enable for topics: whether records are converted for clients
    before Kafka 0.11.
log.message.format.version string - - 3.0-IV1
    Deprecated: the default of message.format.version for topics.
""",
    "there is no tiered storage in this version": """
log.local.retention.bytes long - cluster -2
    Bytes kept locally under tiered storage; -2 follows log.retention.bytes.
log.local.retention.ms long - cluster -2
    Time kept locally under tiered storage; -2 follows log.retention.ms.
remote.log.storage.system.enable boolean - - false
    Whether segments are copied to remote storage (KIP-405).
remote.log.storage.manager.class.name string - - -
    Plug-in that stores remote segments.
remote.log.storage.manager.class.path string - - -
    Class path of that plug-in.
remote.log.storage.manager.impl.prefix string - - rsm.config.
    Prefix of the properties for that plug-in.
remote.log.metadata.manager.class.name string - - org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
    Plug-in that stores the metadata of remote segments.
remote.log.metadata.manager.class.path string - - -
    Class path of that plug-in.
remote.log.metadata.manager.impl.prefix string - - rlmm.config.
    Prefix of the properties for that plug-in.
remote.log.metadata.manager.listener.name string - - -
    Listener that the metadata plug-in connects to.
remote.log.metadata.custom.metadata.max.bytes int - - 128
    Bytes of own metadata that a storage plug-in may add.
remote.log.index.file.cache.total.size.bytes long - cluster 1073741824
    Disk space for cached indexes of remote segments.
remote.log.manager.thread.pool.size int - - 10
    Threads that copy and delete remote segments.
remote.log.manager.copier.thread.pool.size int - - -1
    Threads that copy segments; -1 follows remote.log.manager.thread.pool.size.
remote.log.manager.expiration.thread.pool.size int - - -1
    Threads that delete remote segments; -1 follows remote.log.manager.thread.pool.size.
remote.log.manager.task.interval.ms long - - 30000
    How often segments are looked for to copy or delete.
remote.log.manager.copy.max.bytes.per.second long - cluster 9223372036854775807
    Bytes a second copied to remote storage.
remote.log.manager.copy.quota.window.num int - - 11
    Samples over which that rate is measured.
remote.log.manager.copy.quota.window.size.seconds int - - 1
    Length of each of these samples.
remote.log.manager.fetch.max.bytes.per.second long - cluster 9223372036854775807
    Bytes a second read from remote storage.
remote.log.manager.fetch.quota.window.num int - - 11
    Samples over which that rate is measured.
remote.log.manager.fetch.quota.window.size.seconds int - - 1
    Length of each of these samples.
remote.log.reader.threads int - - 10
    Threads that read from remote storage.
remote.log.reader.max.pending.tasks int - - 100
    Remote reads that may wait.
remote.fetch.max.wait.ms int - cluster 500
    How long a fetch waits for remote storage.
""",
    "this broker works with ZooKeeper, and these are settings of KRaft": """
process.roles list - - ''
    Roles of a KRaft node.
controller.listener.names string - - -
    Listeners of KRaft controllers.
controller.quorum.voters list - - ''
    Voters of a static KRaft quorum.
controller.quorum.bootstrap.servers list - - ''
    Addresses at which a KRaft quorum is found.
controller.quorum.append.linger.ms int - - 25
    How long the KRaft leader collects records.
controller.quorum.election.backoff.max.ms int - - 1000
    Longest pause after a failed KRaft election.
controller.quorum.election.timeout.ms int - - 1000
    Time after which a KRaft candidate tries again.
controller.quorum.fetch.timeout.ms int - - 2000
    Time without a fetch after which a KRaft voter becomes a candidate.
controller.quorum.request.timeout.ms int - - 2000
    Time limit for requests between KRaft nodes.
controller.quorum.retry.backoff.ms int - - 20
    Pause before such a request is sent again.
metadata.log.dir string - - -
    Folder of the KRaft metadata log.
metadata.log.segment.bytes int - - 1073741824
    Segment size of the metadata log.
metadata.log.segment.ms long - - 604800000
    Segment age of the metadata log.
metadata.log.max.record.bytes.between.snapshots long - - 20971520
    Bytes of the metadata log after which a snapshot is made.
metadata.log.max.snapshot.interval.ms long - - 3600000
    Time after which a snapshot of the metadata log is made.
metadata.max.idle.interval.ms int - - 500
    How often an idle KRaft controller writes a record.
metadata.max.retention.bytes long - - 104857600
    Size above which old metadata segments and snapshots are deleted.
metadata.max.retention.ms long - - 604800000
    Age above which old metadata segments and snapshots are deleted.
broker.heartbeat.interval.ms int - - 2000
    Heartbeat interval of KRaft brokers.
broker.session.timeout.ms int - - 9000
    Time without heartbeats after which a KRaft broker is fenced.
initial.broker.registration.timeout.ms int - - 60000
    Time within which a KRaft broker must have registered.
log.dir.failure.timeout.ms long - - 30000
    Time within which a failed log dir must have been reported to the KRaft controller.
zookeeper.metadata.migration.enable boolean - - false
    Whether the cluster moves from ZooKeeper to KRaft.
eligible.leader.replicas.enable boolean - - false
    Whether eligible leader replicas are tracked (KIP-966).
""",
    "there are no quotas for clients in this version": """
quota.window.num int - - 11
    Samples over which clients' rates are measured.
quota.window.size.seconds int - - 1
    Length of each of these samples.
controller.quota.window.num int - - 11
    Samples over which rates of topic changes are measured.
controller.quota.window.size.seconds int - - 1
    Length of each of these samples.
""",
    "the rate of moves between log dirs is measured over a fixed time": """
alter.log.dirs.replication.quota.window.num int - - 11
    Samples over which the rate of moves between log dirs is measured.
alter.log.dirs.replication.quota.window.size.seconds int - - 1
    Length of each of these samples.
""",
    "there are no metrics reporters in this version": """
metric.reporters list - cluster ''
    Classes that report metrics.
auto.include.jmx.reporter boolean - - true
    Deprecated: whether metrics are reported by JMX without being named in metric.reporters.
metrics.num.samples int - - 2
    Samples that each metric keeps.
metrics.recording.level string - - INFO
    Detail in which metrics are recorded.
metrics.sample.window.ms long - - 30000
    Length of each sample of a metric.
kafka.metrics.reporters list - - ''
    Classes that report Kafka's old (Yammer) metrics.
kafka.metrics.polling.interval.secs int - - 10
    How often these report.
telemetry.max.bytes int - - 1048576
    Largest telemetry push of a client (KIP-714).
""",
    "DescribeTopicPartitions is not served in this version": """
max.request.partition.size.limit int - - 2000
    Partitions in one answer of DescribeTopicPartitions.
""",
}

DYNAMIC_THREADS = (
    "num.network.threads",
    "num.io.threads",
    "background.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
)
"""Numbers of threads, which Kafka lets change at most by half or to the double while it runs."""

ROWS_WITHOUT_EFFECT: list[BrokerRow] = []
"""Their definitions."""

WITHOUT_EFFECT: dict[str, str] = {}
"""Their names, each with the reason."""

for _reason, _text in _TABLES.items():
    for _row in read_broker_table(_text):
        ROWS_WITHOUT_EFFECT.append(_row)
        WITHOUT_EFFECT[_row.setting.name] = _reason
