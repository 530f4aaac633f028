"""Debian's Prometheus scrapes a cluster by the rules that we write: a broker that is killed raises
alarms, which end when it is back."""

import contextlib
import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import main
from support.ports import free_ports
from support.trio import Trio, trio
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.needs("prometheus")]


class Prometheus:
    """A server, asked by its HTTP API."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer."""
        with urllib.request.urlopen(
            f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=30
        ) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def value(self, query: str) -> float | None:
        """Of a query with one result; None without one."""
        found = self.ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> dict[str, dict[str, str]]:
        """The labels and annotations of the alarms, by the rule's name."""
        alerts = self.ask("alerts")["alerts"]
        return {
            each["labels"]["alertname"]: {**each["labels"], **each["annotations"]}
            for each in alerts
            if each["state"] == "firing"
        }


@contextlib.contextmanager
def prometheus(folder: Path, metrics_ports: list[int]) -> Iterator[Prometheus]:
    """One that scrapes each second by the rules of the command, whose alarms wait two seconds."""
    assert main(["metrics", "rules", str(folder)]) == 0
    (rules,) = folder.glob("*.rules.yml")
    rules.write_text(re.sub(r"for: \d+m", "for: 2s", rules.read_text()))
    targets = [f"127.0.0.1:{port}" for port in metrics_ports]
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [rules.name],
        "scrape_configs": [{"job_name": "barnabas-broker", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(configuration))
    (port,) = free_ports(1)
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        server = Prometheus(port)
        eventually(server.is_ready, what="Prometheus is ready")
        yield server
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[tuple[Trio, Prometheus]]:
    """Three brokers, and the Prometheus that scrapes them."""
    ports = free_ports(3)
    each = {number: {"metrics.http.address": f"127.0.0.1:{port}"} for number, port in enumerate(ports)}
    with trio(tmp_path, each=each) as cluster, prometheus(tmp_path, ports) as server:
        cluster.create("orders", 6)
        yield cluster, server


def test_a_killed_broker_raises_alarms_until_it_is_back(
    scraped: tuple[Trio, Prometheus], record_property: Callable[[str, object], None]
) -> None:
    """The broker that is down, and the partitions that lack its replicas; no other alarm."""
    cluster, server = scraped
    eventually(lambda: server.value("sum(up)") == 3, what="all pages are read")
    eventually(lambda: server.value("sum(kafka_server_replicamanager_leadercount)") == 6, what="all partitions are led")
    eventually(lambda: not server.firing(), what="no alarm")
    health = {rule["name"]: rule["health"] for group in server.ask("rules")["groups"] for rule in group["rules"]}
    assert set(health.values()) == {"ok"}
    cluster.brokers[2].kill()
    alarms = eventually(
        lambda: (
            (found := server.firing()) and {"BarnabasBrokerDown", "BarnabasUnderReplicated"} <= found.keys() and found
        ),
        what="the alarms",
    )
    assert server.ask("targets")["activeTargets"]
    assert alarms["BarnabasBrokerDown"]["look"] == "barnabas overview"
    assert re.match(r"\d+ partitions on 127\.0\.0\.1:\d+ lack a replica", alarms["BarnabasUnderReplicated"]["summary"])
    assert "BarnabasOfflinePartitions" not in alarms
    cluster.brokers[2].start()
    eventually(lambda: not server.firing(), what="the alarms end")
    record_property("figures", f"{len(health)} rules evaluated; alarms: {', '.join(sorted(alarms))}")
