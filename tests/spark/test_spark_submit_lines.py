"""The lines of docs/how-to/pipeline-cluster.md for Kubernetes and YARN, as far as a dry run goes.

There is no such cluster here. A small server plays Kubernetes' API and keeps what Spark asks
it for; a listener plays YARN's ResourceManager and keeps the first bytes of the client. The
flows are ended then.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pytest.importorskip("pyspark")

from support.pages import DOCS, commands  # noqa: E402
from support.waiting import eventually  # noqa: E402

PAGE = DOCS / "how-to" / "pipeline-cluster.md"
FLOW = """\
name = "dry"
checkpoint = "state-{kind}"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
format = {{ type = "text" }}
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
[resources]
cores = 3
memory = "512m"
{spark}
"""
KUBERNETES = """\
[resources.spark]
"spark.kubernetes.container.image" = "registry.example/flows:1"
"spark.kubernetes.namespace" = "flows"
"spark.driver.host" = "10.0.0.5"
"spark.driver.bindAddress" = "127.0.0.1"
"""
YARN_SITE = """\
<configuration>
<property><name>yarn.resourcemanager.address</name><value>127.0.0.1:{port}</value></property>
</configuration>
"""


class Kubernetes(ThreadingHTTPServer):
    """Says yes to everything, and keeps the pods that it is asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pods: list[dict[str, Any]] = []
        self.paths: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Kubernetes
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Lists have nothing in them."""
        self.server.paths.append(self.path)
        self._answer({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})

    def do_POST(self) -> None:
        """What is made is there."""
        self.server.paths.append(self.path)
        made = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.partition("?")[0].endswith("/pods"):
            self.server.pods.append(made)
        made["metadata"] |= {"uid": f"uid-{len(self.server.paths)}", "resourceVersion": "1"}
        self._answer(made)

    def do_DELETE(self) -> None:
        """What Spark removes at its end is gone."""
        self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _answer(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Silence."""


@pytest.fixture
def kubernetes() -> Iterator[Kubernetes]:
    server = Kubernetes()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def start(folder: Path, kind: str, places: Mapping[str, str], **fields: str) -> "subprocess.Popen[bytes]":
    """Begin a flow with the page's line that has the first of ``places`` in it, in
    the names of this machine."""
    path = folder / f"{kind}.toml"
    path.write_text(FLOW.format(kind=kind, **fields))
    (line,) = (each.line for each in commands(PAGE) if next(iter(places)) in each.line)
    for there, here in {**places, "orders.toml": str(path), "barnabas": f"{sys.executable} -m barnabas"}.items():
        assert there in line
        line = line.replace(there, here)
    environ = {**os.environ, "HADOOP_CONF_DIR": str(folder), "TMPDIR": str(folder)}
    with (folder / f"{kind}.log").open("wb") as log:
        return subprocess.Popen(
            ["bash", "-c", f"{line} --once"], stdout=log, stderr=log, env=environ, start_new_session=True
        )


def test_flows_ask_kubernetes_for_pods_and_yarn_for_an_application(
    cluster: Any, kubernetes: Kubernetes, tmp_path: Path
) -> None:
    """With the cores, the memory and the settings of the flow; the executors' driver is
    the address that it names."""
    common = {"topic": cluster.topic(1), "bootstrap": cluster.bootstrap}
    with socket.create_server(("127.0.0.1", 0)) as manager:
        (tmp_path / "yarn-site.xml").write_text(YARN_SITE.format(port=manager.getsockname()[1]))
        master = f"k8s://http://127.0.0.1:{kubernetes.server_address[1]}"
        flows = [start(tmp_path, "kubernetes", {"k8s://https://k8s.example:443": master}, spark=KUBERNETES, **common)]
        try:
            flows.append(start(tmp_path, "yarn", {"/etc/hadoop/conf": str(tmp_path)}, spark="", **common))
            manager.settimeout(300)
            connection, _ = manager.accept()
            with connection:
                connection.settimeout(120)
                asked = b""
                while b"ApplicationClientProtocol" not in asked:
                    received = connection.recv(4096)
                    assert received, asked
                    asked += received
            assert asked.startswith(b"hrpc"), "Hadoop's protocol"
            eventually(lambda: len(kubernetes.pods) >= 3, timeout_s=300, what="Spark asks for three executors")
        finally:
            for each in flows:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait(30)
    pod = kubernetes.pods[0]
    (container,) = pod["spec"]["containers"]
    environ = {each["name"]: each.get("value") for each in container["env"]}
    assert container["image"] == "registry.example/flows:1"
    assert any(path.startswith("/api/v1/namespaces/flows/pods") for path in kubernetes.paths)
    assert "@10.0.0.5:" in environ["SPARK_DRIVER_URL"]
    assert (environ["SPARK_EXECUTOR_CORES"], environ["SPARK_EXECUTOR_MEMORY"]) == ("1", "512m")
