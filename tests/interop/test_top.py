"""`barnabas top` in a real terminal, beside brokers that die, and of Apache's clusters."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as ConfluentProducer

from barnabas.base.ids import TopicPartition
from barnabas.cli.main import main
from barnabas.client import Admin, Consumer, Producer
from barnabas.mirror.link_records import LinkHeartbeat
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.flows import load_flow
from barnabas.testing import Cluster
from support.needs import needs_reference
from support.reference import apache_broker, apache_cluster
from support.screens import Screen
from support.servers import BARNABAS, Up, barnabas, up

pytestmark = [pytest.mark.interop]

WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two brokers that show metrics, a topic on both, and a group that is behind."""
    with up(tmp_path_factory.mktemp("top"), "--metrics-port", "0", brokers=2) as running:
        with Admin({"bootstrap.servers": running.bootstrap}) as admin:
            admin.create_topic("orders", partitions=3, replication_factor=2)
        with Producer({"bootstrap.servers": running.bootstrap}) as producer:
            for number in range(10):
                producer.send("orders", str(number))
        options = {"bootstrap.servers": running.bootstrap, "group.id": "kitchen", "auto.offset.reset": "earliest"}
        with Consumer(options) as consumer:
            consumer.subscribe(["orders"])
            next(iter(consumer))
        yield running


@pytest.fixture
def screen(cluster: Up, request: pytest.FixtureRequest) -> Iterator[Screen]:
    """Top on a terminal of 80 columns without colours, which reads often."""
    made = Screen(*BARNABAS, "top", "--bootstrap-server", cluster.bootstrap, "--refresh", "0.5", env={"NO_COLOR": "1"})
    yield made
    made.close()


def test_a_person_finds_a_group_a_partition_and_a_dead_broker(screen: Screen, cluster: Up) -> None:
    """By keys, in another size, and while a broker is gone; then `q` gives the terminal back."""
    screen.wait_for("up, controller")
    screen.press(b"3")
    screen.wait_for(lambda text: "[3 groups]" in text and "kitchen" in text)
    screen.press(b"\r")
    assert re.search(r"orders-[012] .*\d", screen.wait_for("COMMITTED"))
    screen.press(b"2")
    screen.press(b"/")
    screen.wait_for("words of a row")
    screen.press(b"ord\r")
    screen.wait_for("with 'ord'")
    screen.resize(120, 30)
    screen.wait_for(lambda text: "REPLICAS" in text and "[2 topics]" in text)
    cluster.kill("1")
    screen.press(b"1")
    screen.wait_for(lambda text: re.search(r"^1 +away", text, re.MULTILINE) is not None)
    assert not re.search(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|4[0-7]|38|48|9[0-7])(?:;[0-9;]*)?m", screen.sent)
    screen.press(b"q")
    assert screen.end() == 0


@pytest.mark.parametrize(("how", "code"), [("ctrl-c", 130), ("SIGTERM", 143)])
def test_it_ends_at_once_and_gives_the_terminal_back(how: str, code: int, screen: Screen) -> None:
    """By the key, and by a signal."""
    screen.wait_for("up, controller")
    began = time.monotonic()
    if how == "ctrl-c":
        screen.press(b"\x03")
    else:
        screen.process.send_signal(signal.SIGTERM)
    assert screen.end() == code
    assert time.monotonic() - began < 10


def test_a_terminal_without_abilities_and_a_pipe_get_one_snapshot(cluster: Up) -> None:
    """Text for TERM=dumb, whole lines for a pipe, JSON for programs."""
    dumb = Screen(*BARNABAS, "top", "--bootstrap-server", cluster.bootstrap, env={"TERM": "dumb"})
    try:
        assert dumb.end() in (0, 3)
    finally:
        dumb.close()
    assert b"Slowest requests:" in dumb.sent
    assert b"\x1b" not in dumb.sent
    piped = barnabas("top", "--bootstrap-server", cluster.bootstrap, "--output", "json", "--refresh", "0.5")
    found = json.loads(piped.stdout)
    assert piped.returncode == (3 if found["errors"] else 0)
    assert found["seconds_between_readings"] >= 0.5
    assert {each["broker"] for each in found["requests"]}
    assert found["coordination"][0]["role"] == "standalone"
    assert [group["name"] for group in found["groups"]] == ["kitchen"]


def test_without_the_library_the_extra_is_named_and_snapshots_work(cluster: Up) -> None:
    """As after a plain ``pip install barnabas``."""
    code = (
        "import sys; sys.modules['textual'] = None; sys.stdin.isatty = sys.stdout.isatty = sys.stderr.isatty = lambda: True\n"
        "from barnabas.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, "top", "--bootstrap-server", cluster.bootstrap]
    env = {**os.environ, "TERM": "xterm"}
    shown = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False, env=env)
    assert shown.returncode == 1
    assert "[console]" in shown.stderr
    shown = subprocess.run(
        [*words, "--output", "json"], capture_output=True, text=True, timeout=WAIT_S, check=False, env=env
    )
    assert json.loads(shown.stdout)["topics"]


def test_a_user_without_rights_sees_what_it_may_and_reads_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Topics and groups that it may not describe are named as missing, and the status says so."""
    with Cluster(acls=[], users={"ann": "secret"}) as cluster:
        cluster.create_topic("hidden")
        config = tmp_path / "ann.properties"
        properties = cluster.client_properties("ann", java=True)
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        words = ["--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(config)]
        assert main(["top", "--output", "json", *words]) == 3
        shown = capsys.readouterr()
        found = json.loads(shown.out)
        assert found["topics"] == found["groups"] == []
        assert found["brokers"][0]["state"] == "up, controller"
        assert "lacks the right to describe the cluster" in shown.err
        assert "name the pages with --metrics" in found["notes"]["requests"]


@needs_reference
@pytest.mark.java
@pytest.mark.parametrize("version", ["3.9.1", "4.4.0"])
def test_apaches_clusters_are_shown_and_what_they_do_not_show_is_named(version: str, tmp_path: Path) -> None:
    """With ZooKeeper its four-letter words; in KRaft mode there is none."""
    if version == "3.9.1":
        with apache_cluster(tmp_path, version=version) as running:
            found = snapshot_of(running.bootstrap, "--zookeeper", running.zookeeper)
        assert found["coordination"][0]["role"] == "standalone"
    else:
        with apache_broker(tmp_path, version) as bootstrap:
            found = snapshot_of(bootstrap)
        assert "KRaft mode has none" in found["notes"]["coordination"]
    assert found["errors"] == []
    assert [(topic["name"], topic["records"]) for topic in found["topics"][:1]] == [("orders", 4)]
    assert [(group["name"], group["lag"]) for group in found["groups"]] == [("kitchen", 3)]
    assert found["brokers"][0]["state"] == "up, controller"
    assert found["requests"] == []
    assert "metrics" in found["notes"]["requests"]


def snapshot_of(bootstrap: str, *options: str) -> dict[str, object]:
    """Of a topic with four records, and a group that has read one."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topic("orders", partitions=1, replication_factor=1)
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            for number in range(4):
                producer.send("orders", str(number))
        consumer_options = {
            "bootstrap.servers": bootstrap,
            "group.id": "kitchen",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
        with Consumer(consumer_options) as consumer:
            consumer.subscribe(["orders"])
            record = next(iter(consumer))
            consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})
    shown = barnabas("top", "--bootstrap-server", bootstrap, "--output", "json", "--timeout", "30", *options)
    found: dict[str, object] = json.loads(shown.stdout)
    return found


def test_a_mirror_and_a_flow_are_seen_by_what_they_keep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mirror by the heartbeats that it writes, a flow by the notes of its run.

    Other records in a topic of that name are no mirror."""
    with Cluster() as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            for name in ("a.orders", "a.checkpoints.internal", "heartbeats"):
                admin.create_topic(name, partitions=1, replication_factor=1)
        with ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.produce("a.orders", b"one")
            for at_ms in (1000, time.time_ns() // 1_000_000):
                beat = LinkHeartbeat("a", "b", at_ms)
                producer.produce("heartbeats", beat.value(), beat.key())
                producer.produce("heartbeats", b"no heartbeat")
            producer.flush()
        file = tmp_path / "payments.toml"
        assert main(["pipeline", "new", str(file)]) == 0
        flow = load_flow(file)
        Path(flow.checkpoint).mkdir(parents=True)
        Checkpoint(flow).note_run({"rows": 7, "bad_rows": 2, "lag": 3, "catch_up_s": 1.5})
        capsys.readouterr()
        assert (
            main(["top", "--output", "json", "--flow", str(file), "--bootstrap-server", cluster.bootstrap_servers]) == 0
        )
        found = json.loads(capsys.readouterr().out)
    (mirror,) = found["mirrors"]
    assert 0 <= mirror.pop("heartbeat_age_s") < WAIT_S
    assert mirror == {"source": "a", "target": "b", "topics": 1, "records": 1}
    (payments,) = found["flows"]
    assert payments == {
        "name": "payments",
        "state": "running",
        "rows": 7,
        "bad_rows": 2,
        "lag": 3,
        "catch_up_s": 1.5,
        "place": str(file),
    }
