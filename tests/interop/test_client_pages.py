"""The programs of docs/reference/client.md run as they stand on the page."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from barnabas.client import JSON, Admin, Consumer, Producer
from barnabas.testing import Cluster
from support.ports import free_ports
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "client.md").read_text()


def program(title: str) -> str:
    """The Python block of a section."""
    section = PAGE[PAGE.index(f"\n## {title}\n") :]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]


def start(code: str, tmp_path: Path) -> subprocess.Popen[str]:
    """The program in a process of its own."""
    path = tmp_path / "program.py"
    path.write_text(code)
    return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True)


def test_the_web_service_answers_with_the_records_place(barnabas_cluster: Cluster, tmp_path: Path) -> None:
    """POST an order, and find it in the topic."""
    (port,) = free_ports(1)
    bootstrap = barnabas_cluster.bootstrap_servers
    code = program("A web service").replace("localhost:9092", bootstrap).replace("8000", str(port))
    with start(code, tmp_path) as service:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/", json.dumps({"table": 7}).encode())

            def post() -> object:
                try:
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        return json.load(answer)
                except OSError:
                    return None

            assert eventually(post, timeout_s=60, what="the service answers") == {"partition": 0, "offset": 0}
        finally:
            service.send_signal(signal.SIGINT)
    properties = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(properties, deserializer=JSON) as consumer:
        consumer.subscribe(["orders"])
        (record,) = consumer.consume(1, 60)
        assert (record.key, record.value) == ("7", {"table": 7})


def test_the_worker_commits_after_its_work_and_puts_aside_what_it_cannot_read(
    barnabas_cluster: Cluster, tmp_path: Path
) -> None:
    """Two orders and one that is not JSON; SIGTERM ends it cleanly."""
    bootstrap = barnabas_cluster.bootstrap_servers
    barnabas_cluster.create_topic("orders")
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send_many("orders", ['{"n": 1}', "not JSON", '{"n": 2}'], keys=["a", "b", "c"])
    with (
        start(program("A worker").replace("localhost:9092", bootstrap), tmp_path) as worker,
        Admin({"bootstrap.servers": bootstrap}) as admin,
    ):
        eventually(lambda: sum(admin.group_offsets("workers").values()) == 3, timeout_s=60, what="all is committed")
        os.kill(worker.pid, signal.SIGTERM)
        output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert output == "a {'n': 1}\nc {'n': 2}\n"
    with Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders-unreadable"])
        assert [record.value for record in consumer.consume(1, 60)] == ["not JSON"]


@pytest.mark.parametrize("title", ["Keys and values", "A web service", "A worker", ""])
def test_the_programs_pass_a_strict_type_checker(title: str, tmp_path: Path) -> None:
    """As the page promises; without a title, a longer program with more of the client."""
    path = tmp_path / "program.py"
    path.write_text(program(title) if title else (ROOT / "tests" / "support" / "typed_program.py").read_text())
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "/dev/null", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_programs_pass_pyright_and_a_wrong_name_does_not(tmp_path: Path) -> None:
    """In its strict mode; basedpyright is pyright with a Node.js from PyPI, so it
    needs no network."""
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is missing: it is in the extra dev")
    for number, title in enumerate(("Keys and values", "A web service", "A worker")):
        (tmp_path / f"program{number}.py").write_text(program(title))
    (tmp_path / "typed_program.py").write_bytes((ROOT / "tests" / "support" / "typed_program.py").read_bytes())
    (tmp_path / "wrong.py").write_text("from barnabas.client import Producre\n\nprint(Producre)\n")
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({**settings, "include": ["."]}))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--pythonpath",
        sys.executable,
        "--outputjson",
        "-p",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 5
    problems = [each for each in found["generalDiagnostics"] if each["severity"] == "error"]
    assert {Path(each["file"]).name for each in problems} == {"wrong.py"}, problems
    assert any("Producre" in each["message"] for each in problems)
