"""For each alert rule series with which it fires, and series with which it does not.

The values are in promtool's notation: ``1x90`` is 1 for ninety minutes, ``0+2x90`` grows by 2 each.
"""

from typing import NamedTuple

from barnabas.broker.monitoring.metric_names import BrokerMetrics
from barnabas.coordination.core.metric_table import CoordinationMetrics
from barnabas.metrics.catalog import TARGET_UP, lag_metric
from barnabas.mirror.metric_names import MirrorMetrics
from barnabas.net.process_metrics import ProcessMetrics
from barnabas.net.web_figures import WebMetrics
from barnabas.pipelines.progress.metric_names import FlowMetrics

__all__ = ["CASES", "AlertCase"]


class AlertCase(NamedTuple):
    """Series by their names with labels, for both outcomes."""

    fires: dict[str, str]
    is_quiet: dict[str, str]
    after: str = "60m"


_BROKER = '{job="barnabas-broker",instance="broker:7071"}'
_ZOOKEEPER = '{job="barnabas-coordination",instance="zoo:7000"}'
_GROUP = '{cluster_name="c",group="shop"}'
_LAG = '{job="barnabas-lag",instance="lag:9999"}'
_DIR = '{job="barnabas-broker",instance="broker:7071",logDirectory="/data"}'
_TOPIC = '{source="home",target="backup",topic="orders",partition="0"}'
_WHAT = '{source="home",target="backup",what="checkpoints"}'
_FLOW = '{flow="payments"}'


def _above_zero(metric: object, labels: str = _BROKER) -> AlertCase:
    return AlertCase({f"{metric}{labels}": "1x90"}, {f"{metric}{labels}": "0x90"})


def _grows(metric: object, labels: str, step: float) -> AlertCase:
    """It fires where a counter grows by so much each minute."""
    return AlertCase({f"{metric}{labels}": f"0+{step}x90"}, {f"{metric}{labels}": "7x90"})


CASES = {
    "BarnabasBrokerDown": AlertCase({f"{TARGET_UP}{_BROKER}": "1x50 0x40"}, {f"{TARGET_UP}{_BROKER}": "1x90"}),
    "BarnabasServerDown": AlertCase(
        {f"{TARGET_UP}{_ZOOKEEPER}": "1x50 0x40"},
        {f"{TARGET_UP}{_ZOOKEEPER}": "1x90", f"{TARGET_UP}{_BROKER}": "0x90"},  # which has a rule of its own
    ),
    "BarnabasOfflinePartitions": _above_zero(BrokerMetrics.OFFLINE_PARTITIONS),
    "BarnabasUnderMinIsr": _above_zero(BrokerMetrics.UNDER_MIN_ISR),
    "BarnabasUnderReplicated": AlertCase(
        {f"{BrokerMetrics.UNDER_REPLICATED}{_BROKER}": "3x90"},
        {f"{BrokerMetrics.UNDER_REPLICATED}{_BROKER}": "0x56 3x3 0x30"},  # some minutes, as after a restart
    ),
    "BarnabasNoController": AlertCase(
        {f"{BrokerMetrics.ACTIVE_CONTROLLERS}{_BROKER}": "0x90"},
        {
            f"{BrokerMetrics.ACTIVE_CONTROLLERS}{_BROKER}": "0x90",
            f'{BrokerMetrics.ACTIVE_CONTROLLERS}{{instance="other:7071"}}': "1x90",
        },
    ),
    "BarnabasIsrFlapping": _grows(BrokerMetrics.ISR_SHRINKS, _BROKER, 1),
    "BarnabasEventLoopHeld": _grows(ProcessMetrics.SLOW_SECONDS, _BROKER, 12),
    "BarnabasBrokerBusy": AlertCase(
        {f"{ProcessMetrics.CPU}{_BROKER}": "0+59x90"},
        {f"{ProcessMetrics.CPU}{_BROKER}": "0+40x90", f"{ProcessMetrics.CPU}{_ZOOKEEPER}": "0+59x90"},
    ),
    "BarnabasFewDescriptors": AlertCase(
        {f"{ProcessMetrics.OPEN_FDS}{_BROKER}": "900x90", f"{ProcessMetrics.MAX_FDS}{_BROKER}": "1000x90"},
        {f"{ProcessMetrics.OPEN_FDS}{_BROKER}": "700x90", f"{ProcessMetrics.MAX_FDS}{_BROKER}": "1000x90"},
    ),
    "BarnabasLogDirOffline": _above_zero(BrokerMetrics.LOG_DIR_OFFLINE, _DIR),
    "BarnabasLogDirFull": AlertCase(
        {f"{BrokerMetrics.LOG_DIR_FREE}{_DIR}": "4x90", f"{BrokerMetrics.LOG_DIR_CAPACITY}{_DIR}": "100x90"},
        {f"{BrokerMetrics.LOG_DIR_FREE}{_DIR}": "6x90", f"{BrokerMetrics.LOG_DIR_CAPACITY}{_DIR}": "100x90"},
    ),
    "BarnabasLogDirFullSoon": AlertCase(
        {f"{BrokerMetrics.LOG_DIR_FREE}{_DIR}": "350-1x90", f"{BrokerMetrics.LOG_DIR_CAPACITY}{_DIR}": "1000x90"},
        {f"{BrokerMetrics.LOG_DIR_FREE}{_DIR}": "950-1x90", f"{BrokerMetrics.LOG_DIR_CAPACITY}{_DIR}": "1000x90"},
    ),
    "BarnabasUncleanableLogs": _above_zero(BrokerMetrics.UNCLEANABLE, _DIR),
    "BarnabasTransactionHangs": _above_zero(BrokerMetrics.LATE_TRANSACTIONS),
    "BarnabasTransactionMarkersWait": _above_zero(BrokerMetrics.MARKERS_WITHOUT_LEADER),
    "BarnabasEnsembleWithoutLeader": AlertCase(
        {f"{CoordinationMetrics.QUORUM_SIZE}{_ZOOKEEPER}": "3x90"},
        {
            f"{CoordinationMetrics.QUORUM_SIZE}{_ZOOKEEPER}": "3x90",
            f'{CoordinationMetrics.LEADER_UPTIME}{{instance="zoo2:7000"}}': "5x90",
        },
    ),
    "BarnabasEnsembleMemberMissing": AlertCase(
        {
            f"{CoordinationMetrics.QUORUM_SIZE}{_ZOOKEEPER}": "3x90",
            f"{CoordinationMetrics.SYNCED_FOLLOWERS}{_ZOOKEEPER}": "1x90",
        },
        {
            f"{CoordinationMetrics.QUORUM_SIZE}{_ZOOKEEPER}": "3x90",
            f"{CoordinationMetrics.SYNCED_FOLLOWERS}{_ZOOKEEPER}": "2x90",
        },
    ),
    "BarnabasSlowSync": AlertCase(
        {
            f"{CoordinationMetrics.FSYNC_TIME}_sum{_ZOOKEEPER}": "0+2000x90",
            f"{CoordinationMetrics.FSYNC_TIME}_count{_ZOOKEEPER}": "0+10x90",
        },
        {
            f"{CoordinationMetrics.FSYNC_TIME}_sum{_ZOOKEEPER}": "0+100x90",
            f"{CoordinationMetrics.FSYNC_TIME}_count{_ZOOKEEPER}": "0+10x90",
        },
    ),
    "BarnabasCoordinationBacklog": AlertCase(
        {f"{CoordinationMetrics.OUTSTANDING_REQUESTS}{_ZOOKEEPER}": "200x90"},
        {f"{CoordinationMetrics.OUTSTANDING_REQUESTS}{_ZOOKEEPER}": "50x90"},
    ),
    "BarnabasDigestMismatch": _grows(CoordinationMetrics.DIGEST_MISMATCHES, _ZOOKEEPER, 1),
    "BarnabasGroupLagRising": AlertCase(
        {f"{lag_metric('kafka_consumergroup_group_max_lag_seconds')}{_GROUP}": "0+30x90"},
        {f"{lag_metric('kafka_consumergroup_group_max_lag_seconds')}{_GROUP}": "900-5x90"},  # it catches up
    ),
    "BarnabasGroupStopped": AlertCase(
        {f'{lag_metric("barnabas_lag_group_state")}{{group="shop",state="stopped"}}': "1x90"},
        {f'{lag_metric("barnabas_lag_group_state")}{{group="shop",state="lagging"}}': "1x90"},
    ),
    "BarnabasLagIncomplete": AlertCase(
        {f"{lag_metric('kminion_exporter_up')}{_LAG}": "0x90"}, {f"{lag_metric('kminion_exporter_up')}{_LAG}": "1x90"}
    ),
    "BarnabasMirrorBehind": AlertCase(
        {f"{MirrorMetrics.AGE}{_TOPIC}": "0+60x90"}, {f"{MirrorMetrics.AGE}{_TOPIC}": "200x90"}
    ),
    "BarnabasMirrorErrors": _grows(MirrorMetrics.ERRORS, _WHAT, 1),
    "BarnabasMirrorDrops": _grows(MirrorMetrics.DROPPED, _TOPIC, 1),
    "BarnabasRegistryWithoutLeader": AlertCase(
        {f'{WebMetrics.LEADS}{{instance="a"}}': "0x90", f'{WebMetrics.LEADS}{{instance="b"}}': "0x90"},
        {f'{WebMetrics.LEADS}{{instance="a"}}': "0x90", f'{WebMetrics.LEADS}{{instance="b"}}': "1x90"},
    ),
    "BarnabasFlowFailed": _above_zero(FlowMetrics.FAILED, _FLOW),
    "BarnabasFlowStandsStill": AlertCase(
        {f"{FlowMetrics.RUNNING}{_FLOW}": "1x90", f"{FlowMetrics.LAST_SUCCESS}{_FLOW}": "600x90"},
        {f"{FlowMetrics.RUNNING}{_FLOW}": "1x90", f"{FlowMetrics.LAST_SUCCESS}{_FLOW}": "0+60x90"},
    ),
    "BarnabasFlowBadRows": _grows(FlowMetrics.BAD_ROWS, _FLOW, 1),
}
"""By the names of the rules."""
