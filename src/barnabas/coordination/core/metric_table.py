"""The metrics of a coordination server that dashboards and alert rules read, by ZooKeeper's names.

It has many more: `barnabas.coordination.server.metric_names`.

In ZooKeeper: the fields of `ServerMetrics`, and what `ZooKeeperServer.dumpMonitorValues` puts.
"""

from barnabas.base.metric import Metric

__all__ = ["CoordinationMetrics"]


class CoordinationMetrics:
    """Times are in ms. Members of an ensemble have those of quorums and learners."""

    QUORUM_SIZE = Metric("quorum_size", "gauge", "Members of the ensemble that vote; a server alone has none")
    LEADER_UPTIME = Metric("leader_uptime", "gauge", "How long the leader leads; it alone has this")
    LEARNERS = Metric("learners", "gauge", "Members that are connected to the leader")
    SYNCED_FOLLOWERS = Metric("synced_followers", "gauge", "Followers that have all that the leader has")
    ELECTIONS = Metric("looking_count", "counter", "Elections that the member took part in")
    ELECTION_TIME = Metric("election_time", "summary", "How long they took")
    UPTIME = Metric("uptime", "gauge", "How long the server runs")
    CONNECTIONS = Metric("num_alive_connections", "gauge", "Connections of clients")
    SESSIONS = Metric("global_sessions", "gauge", "Sessions of the ensemble")
    OUTSTANDING_REQUESTS = Metric("outstanding_requests", "gauge", "Requests that were not answered yet")
    PACKETS_RECEIVED = Metric("packets_received", "gauge", "Requests since the start")
    PACKETS_SENT = Metric("packets_sent", "gauge", "Answers and notifications since the start")
    AVERAGE_LATENCY = Metric("avg_latency", "gauge", "Average time of a request since the start")
    MAX_LATENCY = Metric("max_latency", "gauge", "Longest time of a request since the start")
    READ_LATENCY = Metric("readlatency", "summary", "Time of requests that read")
    UPDATE_LATENCY = Metric("updatelatency", "summary", "Time of requests that write")
    FSYNC_TIME = Metric("fsynctime", "summary", "Time to sync the transaction log to disk")
    SNAPSHOT_TIME = Metric("snapshottime", "summary", "Time to write a snapshot")
    ZNODES = Metric("znode_count", "gauge", "Znodes of the tree")
    WATCHES = Metric("watch_count", "gauge", "Watches of clients")
    EPHEMERALS = Metric("ephemerals_count", "gauge", "Ephemeral znodes")
    DATA_SIZE = Metric("approximate_data_size", "gauge", "Bytes of the tree")
    EXPIRED_SESSIONS = Metric("stale_sessions_expired", "counter", "Sessions that expired")
    DIGEST_MISMATCHES = Metric(
        "digest_mismatches_count", "counter", "Transactions after which the tree differs from the leader's"
    )
