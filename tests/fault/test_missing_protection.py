"""A broker that is to be protected in a way that does not exist yet: it does not
start unprotected."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.randomness import new_random
from barnabas.coordination.client.blocking import BlockingClient
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.jute.opcodes import CreateMode
from support.servers import up
from support.waiting import eventually

pytestmark = pytest.mark.fault


def start_broker(tmp_path: Path, zookeeper: str, *settings: str) -> subprocess.CompletedProcess[str]:
    """Run ``barnabas server-start`` for broker 1, which is expected to end."""
    properties = tmp_path / "server1.properties"
    lines = ["broker.id=1", "listeners=PLAINTEXT://127.0.0.1:0", f"zookeeper.connect={zookeeper}"]
    properties.write_text("\n".join([*lines, f"log.dirs={tmp_path / 'logs1'}", *settings, ""]))
    return subprocess.run(
        [sys.executable, "-m", "barnabas", "server-start", str(properties)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("authorizer.class.name=org.example.Mine", "the only authorizer of this version is"),
        ("super.users=User:a", "clients are not authorized while authorizer.class.name is empty"),
        ("sasl.kerberos.service.name=kafka", "clients authenticate by PLAIN and SCRAM only"),
    ],
)
def test_a_protective_property_ends_the_start(tmp_path: Path, setting: str, reason: str) -> None:
    """The error names the property and says what to do; nothing is opened before."""
    done = start_broker(tmp_path, "127.0.0.1:1", setting)
    name = setting.partition("=")[0]
    assert done.returncode == 1
    assert f"configuration {name}: {reason}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "logs1").exists()


def test_a_protective_dynamic_property_ends_the_start_and_one_without_effect_is_reported(tmp_path: Path) -> None:
    """Another program, such as an Apache broker of the cluster, wrote both into the
    coordination service."""
    with (
        up(tmp_path / "cluster") as cluster,
        BlockingClient(SocketNetwork, cluster.zookeeper, rng=new_random()) as client,
    ):
        log = cluster.directory / "logs" / "broker-0.log"
        config = {
            "version": 1,
            "config": {"num.io.threads": "9", "listener.name.plaintext.ssl.client.auth": "required"},
        }
        client.start(60_000)
        note = json.dumps({"version": 2, "entity_path": "brokers/<default>"}).encode()
        client.call(lambda c: c.create("/config/brokers/<default>", json.dumps(config).encode()))
        client.call(lambda c: c.create("/config/changes/config_change_", note, mode=CreateMode.PERSISTENT_SEQUENTIAL))
        eventually(lambda: "configuration num.io.threads has no effect" in log.read_text(), what="the report")
        assert "configuration listener.name.plaintext.ssl.client.auth is left out" in log.read_text()
        done = start_broker(tmp_path, cluster.zookeeper)
    assert done.returncode == 1
    assert "broker <default> sets listener.name.plaintext.ssl.client.auth" in done.stderr
    assert "--delete-config" in done.stderr
    assert "Traceback" not in done.stderr
