"""Reads log dirs and moves of replicas.

In Kafka: `Admin.describeLogDirs`, `listPartitionReassignments`.
"""

import time

from barnabas.client.admin.log_dirs import LogDirContents, describe_log_dirs
from barnabas.client.admin.reassignments import list_reassignments
from barnabas.client.cluster.each_broker import ask_each
from barnabas.client.errors import ClientError
from barnabas.doctor.evidence.cluster import BrokersPart
from barnabas.doctor.evidence.part import Gap, Why
from barnabas.doctor.evidence.storage import EarlierStoragePart, LogDirsPart, ReassignmentsPart
from barnabas.doctor.reading.registration import ClusterReading, UnreadError, absent_for, reads

__all__ = ["read_earlier_storage", "read_log_dirs", "read_reassignments"]

_RIGHT = "Describe on the cluster"


@reads(right=_RIGHT)
def read_earlier_storage(reading: ClusterReading) -> EarlierStoragePart:
    """A reading of its own; what is read after it is as much younger as the user asked for."""
    if not reading.sources.over_s:
        raise UnreadError(Why.NOT_ASKED, "growth is measured by two readings: give --over SECONDS")
    began = time.monotonic()
    dirs = _dirs(reading)
    moves = list_reassignments(reading.connection)
    time.sleep(max(0.0, reading.sources.over_s - (time.monotonic() - began)))
    reading.restart()
    return EarlierStoragePart(before_ms=round((time.monotonic() - began) * 1000), dirs=dirs[0], moves=moves)


@reads(right=_RIGHT)
def read_log_dirs(reading: ClusterReading) -> LogDirsPart:
    """The log dirs of each broker that answers."""
    dirs, gaps = _dirs(reading)
    if gaps and not dirs:
        raise UnreadError(gaps[0].absent.why, gaps[0].absent.reason)
    return LogDirsPart(dirs=dirs, gaps=gaps)


@reads(right=_RIGHT)
def read_reassignments(reading: ClusterReading) -> ReassignmentsPart:
    """The moves that the controller knows."""
    return ReassignmentsPart(moves=list_reassignments(reading.connection))


def _dirs(reading: ClusterReading) -> tuple[dict[int, tuple[LogDirContents, ...]], tuple[Gap, ...]]:
    dirs, gaps = {}, []
    for broker_id, answer in ask_each(
        reading.connection, reading.require(BrokersPart).views, describe_log_dirs
    ).items():
        if isinstance(answer, ClientError):
            gaps.append(Gap(f"broker {broker_id}", absent_for(answer, _RIGHT)))
        else:
            dirs[broker_id] = tuple(answer)
    return dirs, tuple(gaps)
