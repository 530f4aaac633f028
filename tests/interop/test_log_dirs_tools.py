"""Apache's tools, 3.9.1 and 4.3.0, that look into our log dirs and move replicas between them."""

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import Producer
from barnabas.client.admin.topics import create_topic
from barnabas.client.cluster.admin_connection import AdminConnection
from support.needs import needs_reference
from support.reference import apache_tool
from support.servers import Up, up
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(params=["3.9.1", "4.3.0"])
def version(request: pytest.FixtureRequest) -> str:
    """The version of Apache's tools."""
    return request.param


def ask(cluster: Up, version: str, tool: str, *args: object) -> str:
    done = apache_tool(tool, "--bootstrap-server", cluster.bootstrap, *args, version=version)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def stored(cluster: Up, version: str) -> list[dict[str, Any]]:
    """The replicas that LogDirsCommand lists, each with its dir."""
    output = ask(cluster, version, LOG_DIRS, "--describe", "--topic-list", "moved")
    (line,) = [line for line in output.splitlines() if line.startswith("{")]
    (broker,) = json.loads(line)["brokers"]
    assert all(log_dir["error"] is None for log_dir in broker["logDirs"])
    return [{**replica, "dir": log_dir["logDir"]} for log_dir in broker["logDirs"] for replica in log_dir["partitions"]]


def test_a_replica_moves_to_another_dir_at_the_rate_that_the_tool_sets(tmp_path: Path, version: str) -> None:
    """In progress it is in both dirs, one of them its future; cancelled, it stays; with the
    limit lifted, it arrives."""
    dirs = [str(tmp_path / name) for name in ("one", "two")]
    with up(tmp_path / "ours", "--override", f"log.dirs={','.join(dirs)}") as cluster:
        with AdminConnection(cluster.bootstrap) as admin:
            create_topic(admin, "moved", partitions=1, replication_factor=1)
        with Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"}) as producer:
            for _ in range(30):
                producer.send("moved", "\0" * 100_000)
                producer.flush(30)
        (source,) = [name for name in dirs if (Path(name) / "moved-0").is_dir()]
        (target,) = set(dirs) - {source}
        plan = tmp_path / "plan.json"
        entry = {"topic": "moved", "partition": 0, "replicas": [0], "log_dirs": [target]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        file = ["--reassignment-json-file", plan]
        # The first record alone takes 100 s.
        execute = ["--execute", *file, "--replica-alter-log-dirs-throttle", 1000]
        said = ask(cluster, version, REASSIGN, *execute)
        assert f"Successfully started moving log directory to {target} for replica moved-0 with broker 0" in said
        said = ask(cluster, version, REASSIGN, "--verify", "--preserve-throttles", *file)
        assert "Reassignment of replica moved-0-0 is still in progress." in said
        on_the_way = stored(cluster, version)
        assert {(replica["dir"], replica["isFuture"]) for replica in on_the_way} == {(source, False), (target, True)}
        lag = next(replica["offsetLag"] for replica in on_the_way if replica["isFuture"])
        assert 0 < lag <= 30
        ask(cluster, version, REASSIGN, "--cancel", *file)
        assert {(replica["dir"], replica["isFuture"]) for replica in stored(cluster, version)} == {(source, False)}
        ask(cluster, version, REASSIGN, *execute)
        rate = "replica.alter.log.dirs.io.max.bytes.per.second=1000000000"
        ask(cluster, version, CONFIGS, "--alter", "--entity-type", "brokers", "--entity-name", 0, "--add-config", rate)
        eventually(
            lambda: "completed successfully" in ask(cluster, version, REASSIGN, "--verify", *file),
            timeout_s=120,
            what="the replica has moved",
        )
        (moved,) = stored(cluster, version)
        assert (moved["dir"], moved["isFuture"], moved["offsetLag"]) == (target, False, 0)
        assert moved["size"] > 3_000_000
