"""The names that ``mntr`` shows in Apache ZooKeeper 3.8 and 3.9, so that monitors
find every one of them.

What a server here does not have is zero: a pool of workers, throttled requests, caches of
responses, and queues between processors with the times in them.

In ZooKeeper: the fields of `ServerMetrics`, and `ZooKeeperServer.dumpMonitorValues`.
"""

__all__ = ["COUNTER_NAMES", "PERCENTILE_NAMES", "SUMMARY_NAMES", "named_zeros"]

COUNTER_NAMES = (
    "add_dead_watcher_stall_time",
    "bytes_received_count",
    "cnxn_closed_without_zk_server_running",
    "commit_count",
    "connection_drop_count",
    "connection_rejected",
    "connection_request_count",
    "connection_revalidate_count",
    "dead_watchers_cleared",
    "dead_watchers_queued",
    "diff_count",
    "digest_mismatches_count",
    "ensemble_auth_fail",
    "ensemble_auth_skip",
    "ensemble_auth_success",
    "insecure_admin_count",
    "large_requests_rejected",
    "learner_commit_received_count",
    "learner_proposal_received_count",
    "looking_count",
    "outstanding_changes_queued",
    "outstanding_changes_removed",
    "prep_processor_request_queued",
    "proposal_count",
    "quit_leading_due_to_disloyal_voter",
    "request_commit_queued",
    "request_throttle_wait_count",
    "requests_not_forwarded_to_commit_processor",
    "response_bytes",
    "response_packet_cache_hits",
    "response_packet_cache_misses",
    "response_packet_get_children_cache_hits",
    "response_packet_get_children_cache_misses",
    "restore_error_count",
    "restore_rate_limited_count",
    "revalidate_count",
    "sessionless_connections_expired",
    "skip_learner_request_to_next_processor_count",
    "snap_count",
    "snapshot_error_count",
    "snapshot_rate_limited_count",
    "stale_replies",
    "stale_requests",
    "stale_requests_dropped",
    "stale_sessions_expired",
    "sync_processor_request_queued",
    "throttled_ops",
    "tls_handshake_exceeded",
    "unrecoverable_error_count",
    "unsuccessful_handshake",
    "watch_bytes",
)
"""Counters."""

SUMMARY_NAMES = (
    "commit_commit_proc_req_queued",
    "commit_process_time",
    "concurrent_request_processing_in_commit_processor",
    "connection_token_deficit",
    "dbinittime",
    "election_time",
    "follower_sync_time",
    "fsynctime",
    "inflight_diff_count",
    "inflight_snap_count",
    "leader_unavailable_time",
    "learner_request_processor_queue_size",
    "netty_queued_buffer_capacity",
    "node_changed_watch_count",
    "node_children_watch_count",
    "node_created_watch_count",
    "node_deleted_watch_count",
    "observer_sync_time",
    "pending_session_queue_size",
    "prep_process_time",
    "prep_processor_queue_size",
    "proposal_process_time",
    "read_commit_proc_issued",
    "read_commit_proc_req_queued",
    "reads_after_write_in_session_queue",
    "reads_issued_from_session_queue",
    "requests_in_session_queue",
    "restore_time",
    "session_queues_drained",
    "snapshottime",
    "socket_closing_time",
    "startup_snap_load_time",
    "startup_txns_load_time",
    "startup_txns_loaded",
    "sync_process_time",
    "sync_processor_batch_size",
    "sync_processor_queue_size",
    "time_waiting_empty_pool_in_commit_processor_read_ms",
    "unavailable_time",
    "write_batch_time_in_commit_processor",
    "write_commit_proc_issued",
    "write_commit_proc_req_queued",
)
"""Each has an average, a least and a greatest value, a count and a sum."""

PERCENTILE_NAMES = (
    "close_session_prep_time",
    "commit_propagation_latency",
    "dead_watchers_cleaner_latency",
    "jvm_pause_time_ms",
    "local_write_committed_time_ms",
    "om_commit_process_time_ms",
    "om_proposal_process_time_ms",
    "prep_processor_queue_time_ms",
    "propagation_latency",
    "proposal_ack_creation_latency",
    "proposal_latency",
    "quorum_ack_latency",
    "read_commitproc_time_ms",
    "read_final_proc_time_ms",
    "readlatency",
    "request_throttle_queue_time_ms",
    "server_write_committed_time_ms",
    "sync_processor_queue_and_flush_time_ms",
    "sync_processor_queue_flush_time_ms",
    "sync_processor_queue_time_ms",
    "updatelatency",
    "write_commitproc_time_ms",
    "write_final_proc_time_ms",
)
"""As summaries, with percentiles."""


def named_zeros() -> dict[str, object]:
    """Every name with zero; what is known replaces it."""
    found: dict[str, object] = dict.fromkeys(COUNTER_NAMES, 0)
    for name in (*SUMMARY_NAMES, *PERCENTILE_NAMES):
        found[f"avg_{name}"] = 0.0
        found.update({f"{part}_{name}": 0 for part in ("min", "max", "cnt", "sum")})
    for name in PERCENTILE_NAMES:
        found.update({f"{part}_{name}": 0 for part in ("p50", "p95", "p99", "p999")})
    return found
