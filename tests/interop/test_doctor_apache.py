"""`barnabas doctor` on clusters of Apache Kafka: 3.9.1 with ZooKeeper, and 4.4.0 without."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.client import Admin
from support.doctor_runs import Doctor
from support.needs import needs_reference
from support.reference import Reference, apache_cluster, apache_kraft
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java]
VERSIONS = os.environ.get("BARNABAS_BROKERS", "3.9.1 4.4.0").split()
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


@contextmanager
def three_brokers(directory: Path, version: str) -> Iterator[Reference]:
    """A cluster as an administrator would set it up."""
    start = apache_cluster if version.startswith("3") else apache_kraft
    with start(directory, version=version, brokers=3, settings=SETTINGS) as running:
        yield running


@needs_reference
@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_cluster_is_healthy_until_faults_are_prepared(
    version: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No false alarm before; then each fault is found, and its command mends it."""
    monkeypatch.chdir(tmp_path)
    with three_brokers(tmp_path, version) as running, Admin({"bootstrap.servers": running.bootstrap}) as admin:
        doctor = Doctor(running.bootstrap, capsys, tmp_path)
        first, second, third = sorted(broker.id for broker in admin.describe_cluster().brokers)
        admin.create_topic("orders", partitions=6, replication_factor=3, configs={"min.insync.replicas": "2"})
        admin.create_topic("states", partitions=3, replication_factor=3, configs={"cleanup.policy": "compact"})
        eventually(lambda: set(admin.list_topics()) == {"orders", "states"}, what="the topics are known")
        code, report = doctor.diagnose()
        assert (code, report["findings"]) == (0, []), report
        unchecked = {each["reason"] for each in report["rules"] if each["outcome"] == "not checked"}
        is_kraft = any("KRaft" in reason for reason in unchecked)
        assert is_kraft == version.startswith("4")
        admin.create_topic("single", assignment=[[first], [second]])
        strict = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
        admin.create_topic("strict", assignment=[[first, second]], configs=strict)
        admin.create_topic("skewed", assignment=[[third, second, first]] * 15)
        for rule, subject in (
            ("replication-factor-1", "single"),
            ("min-isr-equals-factor", "strict"),
            ("unclean-leader-election", "strict"),
            ("skewed-leaders", f"broker {third}"),
        ):
            doctor.mend(doctor.wait_for(rule, subject))
            doctor.wait_until_mended(rule, subject)
