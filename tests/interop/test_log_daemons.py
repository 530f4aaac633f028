"""Daemons of Debian's that write to Kafka and read from it, through kills of leaders and
coordinators: rsyslog with omkafka and imkafka, collectd with write_kafka."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import ProcessCluster
from support.killed_brokers import coordinator_killed, leader_killed
from support.log_daemons import Lines, daemon
from support.needs import needs, program
from support.transaction_copies import make, read_committed
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]

A_TIME = 200
LIMIT_S = 60
RSYSLOG = """
global(workDirectory="{directory}")
module(load="imfile")
module(load="omkafka")
module(load="imkafka")
template(name="written" type="string" string="%msg%")
template(name="read" type="string" string="%rawmsg%\\n")
input(type="imfile" file="{lines}" tag="lines" ruleset="to kafka")
input(type="imkafka" topic="{topic}" broker=[{brokers}] consumergroup="{group}" ruleset="to a file"
  confParam=["auto.offset.reset=earliest", "auto.commit.interval.ms=500"])
ruleset(name="to kafka") {{
  action(type="omkafka" topic="{topic}" broker=[{brokers}] template="written" action.resumeRetryCount="-1"
    resubmitOnFailure="on" confParam=["enable.idempotence=true", "acks=all"])
}}
ruleset(name="to a file") {{
  action(type="omfile" file="{out}" template="read")
}}
"""
COLLECTD = """
Hostname "trial"
BaseDir "{directory}"
PIDFile "{directory}/pid"
WriteThreads 1
LoadPlugin unixsock
LoadPlugin write_kafka
<Plugin unixsock>
  SocketFile "{socket}"
</Plugin>
<Plugin write_kafka>
  Property "metadata.broker.list" "{bootstrap}"
  Property "enable.idempotence" "true"
  <Topic "{topic}">
    Format JSON
    Property "request.required.acks" "all"
  </Topic>
</Plugin>
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    """Three brokers."""
    with ProcessCluster(3) as running_cluster:
        yield running_cluster


@needs("rsyslogd", "rsyslog's omkafka")
def test_rsyslog_writes_each_line_once_and_reads_all_through_kills(cluster: ProcessCluster, tmp_path: Path) -> None:
    """Lines go from a file to a topic and from there to another file, in a group."""
    topic, group, out = make(cluster.bootstrap_servers, "lines", 1, 3), "rsyslog", tmp_path / "out"
    lines = Lines(tmp_path / "lines")
    brokers = ", ".join(f'"{each}"' for each in cluster.bootstrap_servers.split(","))
    config = tmp_path / "rsyslog.conf"
    config.write_text(
        RSYSLOG.format(directory=tmp_path, lines=lines.path, topic=topic, group=group, brokers=brokers, out=out)
    )

    def has_read(count: int) -> bool:
        return out.exists() and len(set(out.read_text().splitlines())) >= count

    def all_are_read() -> None:
        eventually(lambda: has_read(lines.count), timeout_s=LIMIT_S, what=f"{lines.count} lines in {out}")

    lines.add(A_TIME)
    with daemon([program("rsyslogd"), "-n", "-f", config, "-i", tmp_path / "pid"], tmp_path, tmp_path / "pid"):
        all_are_read()
        lines.add(A_TIME)
        with leader_killed(cluster, topic):
            lines.add(A_TIME)
            all_are_read()
        with coordinator_killed(cluster, group):
            lines.add(A_TIME)
            all_are_read()
    assert read_committed(cluster.bootstrap_servers, topic) == lines.all
    assert set(out.read_text().splitlines()) == set(lines.all)


@needs("collectd", "collectd's write_kafka")
def test_collectd_writes_each_value_once_while_the_leader_is_killed(cluster: ProcessCluster, tmp_path: Path) -> None:
    """Values come by its socket and go to a topic as JSON."""
    topic = make(cluster.bootstrap_servers, "metrics", 1, 3)
    path = tmp_path / "socket"
    config = tmp_path / "collectd.conf"
    config.write_text(
        COLLECTD.format(directory=tmp_path, socket=path, bootstrap=cluster.bootstrap_servers, topic=topic)
    )

    def stored() -> list[float]:
        values = map(json.loads, read_committed(cluster.bootstrap_servers, topic))
        return [value for each in values for one in each for value in one["values"] if one["plugin"] == "trial"]

    def are_stored(count: int) -> bool:
        return len(stored()) >= count

    with (
        daemon([program("collectd"), "-f", "-C", config], tmp_path, path),
        socket.socket(socket.AF_UNIX) as connection,
    ):
        connection.connect(str(path))
        answers = connection.makefile()

        def put(first: int) -> None:
            for number in range(first, first + A_TIME):
                connection.sendall(f"PUTVAL trial/trial/gauge interval=1 {1_000_000 + number}:{number}\n".encode())
                assert answers.readline().startswith("0 Success")

        put(0)
        eventually(lambda: are_stored(A_TIME), timeout_s=LIMIT_S, what="the first values")
        put(A_TIME)
        with leader_killed(cluster, topic):
            put(2 * A_TIME)
            eventually(lambda: are_stored(3 * A_TIME), timeout_s=LIMIT_S, what="values under another leader")
    assert stored() == list(range(3 * A_TIME))
