"""The alert rules: when something is wrong, how bad that is, and which command shows more.

``critical`` means that clients are refused or records are at risk now; ``warning`` that they will
be if nothing is done.

In Prometheus: alerting rules. In Kafka: what the page on monitoring of its documentation says to
watch.
"""

from typing import NamedTuple

from barnabas.broker.monitoring.metric_names import BrokerMetrics
from barnabas.coordination.core.metric_table import CoordinationMetrics
from barnabas.lag.values import LagState
from barnabas.metrics.catalog import TARGET_UP, lag_metric
from barnabas.metrics.thresholds import (
    DISK_FILLING,
    DISK_NEARLY_FULL,
    MANY_OUTSTANDING_REQUESTS,
    SLOW_FSYNC_MS,
)
from barnabas.mirror.metric_names import MirrorMetrics
from barnabas.net.process_metrics import ProcessMetrics
from barnabas.net.web_figures import WebMetrics
from barnabas.pipelines.progress.metric_names import FlowMetrics

__all__ = ["ALERTS", "Alert", "AlertGroup"]


class Alert(NamedTuple):
    """One rule. Texts may name labels as Prometheus' templates do: ``{{ $labels.instance }}``."""

    name: str
    expression: str
    for_: str
    """How long the expression must hold, such as 5m."""
    severity: str
    """critical or warning"""
    summary: str
    description: str
    """What it means, and what to do."""
    look: str
    """The command that shows more."""


class AlertGroup(NamedTuple):
    """Rules that are evaluated together."""

    name: str
    alerts: tuple[Alert, ...]


_LAG_SECONDS = lag_metric("kafka_consumergroup_group_max_lag_seconds")
_GROUP_STATE = lag_metric("barnabas_lag_group_state")
_SAMPLE_UP = lag_metric("kminion_exporter_up")
_BROKERS = 'job="barnabas-broker"'

ALERTS = (
    AlertGroup(
        "barnabas-brokers",
        (
            Alert(
                "BarnabasBrokerDown",
                f"{TARGET_UP}{{{_BROKERS}}} == 0",
                "1m",
                "critical",
                "Broker {{ $labels.instance }} is down",
                "Prometheus cannot read its metrics page. Its partitions have other leaders if they have replicas in sync; "
                "start it again, and look at the end of its log.",
                "barnabas overview",
            ),
            Alert(
                "BarnabasServerDown",
                f'{TARGET_UP}{{job=~"barnabas-.*",job!="barnabas-broker"}} == 0',
                "2m",
                "warning",
                "{{ $labels.job }} on {{ $labels.instance }} is down",
                "Prometheus cannot read its metrics page: the server does not run, or its page's port is not reachable.",
                "barnabas doctor",
            ),
            Alert(
                "BarnabasOfflinePartitions",
                f"sum({BrokerMetrics.OFFLINE_PARTITIONS}) > 0",
                "1m",
                "critical",
                "{{ $value }} partitions have no leader",
                "No client can write to them or read from them. Start the brokers that have their replicas.",
                "barnabas topics --describe --unavailable-partitions",
            ),
            Alert(
                "BarnabasUnderMinIsr",
                f"{BrokerMetrics.UNDER_MIN_ISR} > 0",
                "1m",
                "critical",
                "{{ $value }} partitions on {{ $labels.instance }} have fewer in-sync replicas than min.insync.replicas",
                "Producers with acks=all are refused with NOT_ENOUGH_REPLICAS. Bring the missing brokers back.",
                "barnabas topics --describe --under-min-isr-partitions",
            ),
            Alert(
                "BarnabasUnderReplicated",
                f"{BrokerMetrics.UNDER_REPLICATED} > 0",
                "5m",
                "warning",
                "{{ $value }} partitions on {{ $labels.instance }} lack a replica in sync",
                "A broker is down, its log dir failed, or it copies more slowly than producers write.",
                "barnabas topics --describe --under-replicated-partitions",
            ),
            Alert(
                "BarnabasNoController",
                f"sum({BrokerMetrics.ACTIVE_CONTROLLERS}) != 1",
                "1m",
                "critical",
                "The cluster has {{ $value }} active controllers, not one",
                "Without a controller no leader is elected and no topic is created. Look at the coordination servers first.",
                "barnabas cluster; barnabas zookeeper-status",
            ),
            Alert(
                "BarnabasIsrFlapping",
                f"increase({BrokerMetrics.ISR_SHRINKS}[15m]) > 5",
                "5m",
                "warning",
                "Replicas leave the in-sync sets of {{ $labels.instance }} again and again",
                "A follower is too slow by turns, because of its disk, its network or its processor.",
                "barnabas topics --describe --under-replicated-partitions",
            ),
            Alert(
                "BarnabasEventLoopHeld",
                f"rate({ProcessMetrics.SLOW_SECONDS}[5m]) > 0.1",
                "10m",
                "warning",
                "Clients of {{ $labels.instance }} wait: its event loop is held for a tenth of the time",
                "Too few cores, requests that are too large, or a slow disk. The label place of "
                "event_loop_slow_place_seconds_total says what holds it.",
                "barnabas logs",
            ),
            Alert(
                "BarnabasBrokerBusy",
                f"rate({ProcessMetrics.CPU}{{{_BROKERS}}}[5m]) > 0.9",
                "15m",
                "warning",
                "Broker {{ $labels.instance }} uses its core all the time",
                "A broker uses one core. Move leaders to other brokers, or add one.",
                "barnabas overview",
            ),
            Alert(
                "BarnabasFewDescriptors",
                f"{ProcessMetrics.OPEN_FDS} / {ProcessMetrics.MAX_FDS} > 0.8",
                "5m",
                "warning",
                "{{ $labels.instance }} has used four fifths of its file descriptors",
                "Without descriptors it accepts no connection. Raise ulimit -n.",
                "barnabas doctor",
            ),
        ),
    ),
    AlertGroup(
        "barnabas-disks",
        (
            Alert(
                "BarnabasLogDirOffline",
                f"{BrokerMetrics.LOG_DIR_OFFLINE} > 0",
                "0m",
                "critical",
                "Log dir {{ $labels.logDirectory }} of {{ $labels.instance }} is offline",
                "Its disk failed or is full. Its replicas are not served until the broker starts again with a sound disk.",
                "barnabas log-dirs --describe",
            ),
            Alert(
                "BarnabasLogDirFull",
                f"{BrokerMetrics.LOG_DIR_FREE} / {BrokerMetrics.LOG_DIR_CAPACITY} < {DISK_NEARLY_FULL}",
                "5m",
                "critical",
                "The disk of {{ $labels.logDirectory }} on {{ $labels.instance }} is nearly full",
                f"Less than {DISK_NEARLY_FULL:.0%} is left. A full disk takes the log dir offline. Shorten retention, move replicas, or enlarge the disk.",
                "barnabas log-dirs --describe",
            ),
            Alert(
                "BarnabasLogDirFullSoon",
                f"{BrokerMetrics.LOG_DIR_FREE} / {BrokerMetrics.LOG_DIR_CAPACITY} < {DISK_FILLING} "
                f"or (predict_linear({BrokerMetrics.LOG_DIR_FREE}[6h], 24 * 3600) < 0 "
                f"and {BrokerMetrics.LOG_DIR_FREE} / {BrokerMetrics.LOG_DIR_CAPACITY} < 0.4)",
                "30m",
                "warning",
                "The disk of {{ $labels.logDirectory }} on {{ $labels.instance }} fills up",
                f"Less than {DISK_FILLING:.0%} is left, or it is full within a day at the speed of the last six hours. Shorten retention, move replicas, or enlarge the disk.",
                "barnabas log-dirs --describe",
            ),
            Alert(
                "BarnabasUncleanableLogs",
                f"{BrokerMetrics.UNCLEANABLE} > 0",
                "30m",
                "warning",
                "{{ $value }} logs in {{ $labels.logDirectory }} of {{ $labels.instance }} cannot be compacted",
                "They only grow. The broker's log says why.",
                "barnabas logs",
            ),
        ),
    ),
    AlertGroup(
        "barnabas-transactions",
        (
            Alert(
                "BarnabasTransactionHangs",
                f"{BrokerMetrics.LATE_TRANSACTIONS} > 0",
                "5m",
                "warning",
                "Transactions on {{ $labels.instance }} hang",
                "Consumers at read_committed wait behind them, and no coordinator will end them.",
                "barnabas transactions find-hanging --broker-id ID",
            ),
            Alert(
                "BarnabasTransactionMarkersWait",
                f"{BrokerMetrics.MARKERS_WITHOUT_LEADER} > 0",
                "5m",
                "warning",
                "Transactions of {{ $labels.instance }} cannot end",
                "A partition of theirs has no leader.",
                "barnabas topics --describe --unavailable-partitions",
            ),
        ),
    ),
    AlertGroup(
        "barnabas-coordination",
        (
            Alert(
                "BarnabasEnsembleWithoutLeader",
                f"count({CoordinationMetrics.QUORUM_SIZE}) > 0 unless count({CoordinationMetrics.LEADER_UPTIME}) > 0",
                "1m",
                "critical",
                "The ensemble has no leader",
                "Fewer than a majority of its members run, or they do not reach each other. Brokers keep serving what they lead, "
                "but no controller can act.",
                "barnabas zookeeper-status",
            ),
            Alert(
                "BarnabasEnsembleMemberMissing",
                f"{CoordinationMetrics.QUORUM_SIZE} - 1 - {CoordinationMetrics.SYNCED_FOLLOWERS} > 0",
                "5m",
                "warning",
                "{{ $value }} members of the ensemble do not follow the leader",
                "One more may cost the majority. Start them, or look at the network between them.",
                "barnabas zookeeper-status",
            ),
            Alert(
                "BarnabasSlowSync",
                f"rate({CoordinationMetrics.FSYNC_TIME}_sum[5m]) / rate({CoordinationMetrics.FSYNC_TIME}_count[5m]) > {SLOW_FSYNC_MS}",
                "5m",
                "warning",
                "{{ $labels.instance }} needs {{ $value }} ms to sync its transaction log",
                "Every write of the ensemble waits for that. Give dataLogDir a disk of its own.",
                "barnabas zookeeper-status",
            ),
            Alert(
                "BarnabasCoordinationBacklog",
                f"{CoordinationMetrics.OUTSTANDING_REQUESTS} > {MANY_OUTSTANDING_REQUESTS}",
                "5m",
                "warning",
                "{{ $value }} requests wait on {{ $labels.instance }}",
                "The server is too slow for its clients: look at its disk and its processor.",
                "barnabas zookeeper-status",
            ),
            Alert(
                "BarnabasDigestMismatch",
                f"increase({CoordinationMetrics.DIGEST_MISMATCHES}[1h]) > 0",
                "0m",
                "critical",
                "The tree of {{ $labels.instance }} differs from the leader's",
                "Stop this member, keep a copy of its data, empty its dataDir, and start it: it gets the tree from the leader.",
                "barnabas zookeeper-dump",
            ),
        ),
    ),
    AlertGroup(
        "barnabas-groups",
        (
            Alert(
                "BarnabasGroupLagRising",
                f"{_LAG_SECONDS} > 300 and deriv({_LAG_SECONDS}[15m]) > 0",
                "10m",
                "warning",
                "Group {{ $labels.group }} is {{ $value }} s behind, and more each minute",
                "Its consumers are slower than the producers: add members, up to the number of partitions, or look at what "
                "they wait for.",
                "barnabas lag --group GROUP",
            ),
            Alert(
                "BarnabasGroupStopped",
                f'{_GROUP_STATE}{{state=~"{LagState.STOPPED}|{LagState.STALLED}"}} == 1',
                "5m",
                "critical",
                "Group {{ $labels.group }} reads nothing ({{ $labels.state }})",
                "It commits nothing while there are records: its members are gone, or they hang.",
                "barnabas consumer-groups --describe --group GROUP",
            ),
            Alert(
                "BarnabasLagIncomplete",
                f"{_SAMPLE_UP} == 0",
                "5m",
                "warning",
                "The lag exporter {{ $labels.instance }} cannot read all groups and partitions",
                "Figures are missing or old. Its log names what did not answer.",
                "barnabas overview",
            ),
        ),
    ),
    AlertGroup(
        "barnabas-mirror",
        (
            Alert(
                "BarnabasMirrorBehind",
                f"max by (source, target, topic) ({MirrorMetrics.AGE}) > 300",
                "5m",
                "warning",
                "{{ $labels.target }} is {{ $value }} s behind {{ $labels.source }} in {{ $labels.topic }}",
                "The mirror is too slow, or one of the clusters does not answer.",
                "barnabas consumer-groups --describe --group GROUP",
            ),
            Alert(
                "BarnabasMirrorErrors",
                f"increase({MirrorMetrics.ERRORS}[10m]) > 3",
                "5m",
                "warning",
                "The mirror from {{ $labels.source }} to {{ $labels.target }} fails again and again ({{ $labels.what }})",
                "It tries again; the log of the mirror says why it failed.",
                "barnabas overview",
            ),
            Alert(
                "BarnabasMirrorDrops",
                f"increase({MirrorMetrics.DROPPED}[10m]) > 0",
                "0m",
                "critical",
                "Records of {{ $labels.topic }} are not mirrored to {{ $labels.target }}",
                "The target does not take them, and abort.on.send.failure is false. The log of the mirror says which.",
                "barnabas configs --describe --entity-type topics --entity-name TOPIC",
            ),
        ),
    ),
    AlertGroup(
        "barnabas-registry",
        (
            Alert(
                "BarnabasRegistryWithoutLeader",
                f"sum({WebMetrics.LEADS}) < 1",
                "2m",
                "critical",
                "No schema registry takes new schemas",
                "Those that run answer from memory, and none of them leads: they do not reach the brokers, or none may lead.",
                "barnabas groups list",
            ),
        ),
    ),
    AlertGroup(
        "barnabas-flows",
        (
            Alert(
                "BarnabasFlowFailed",
                f"{FlowMetrics.FAILED} > 0",
                "1m",
                "critical",
                "The flow {{ $labels.flow }} has failed",
                "Its last run ended with an error, or its process was killed.",
                "barnabas pipeline status FILE",
            ),
            Alert(
                "BarnabasFlowStandsStill",
                f"{FlowMetrics.RUNNING} > 0 and time() - {FlowMetrics.LAST_SUCCESS} > 900",
                "5m",
                "warning",
                "The flow {{ $labels.flow }} runs, and has finished nothing for 15 minutes",
                "A micro-batch takes long, an output does not answer, or the brokers do not.",
                "barnabas pipeline status FILE",
            ),
            Alert(
                "BarnabasFlowBadRows",
                f"delta({FlowMetrics.BAD_ROWS}[10m]) > 0",
                "10m",
                "warning",
                "The flow {{ $labels.flow }} gets rows that do not fit",
                "They are left out, or are among the dead letters. The status shows an example of each kind.",
                "barnabas pipeline status FILE",
            ),
        ),
    ),
)
"""All rules, by their groups."""
