"""Apache Kafka's own tests, which start brokers in their process, with brokers of Barnabas instead.

The jars of tests are those that Apache publishes. Our `kafka.server.KafkaServer` stands before
theirs on the class path. It has what these tests ask of a broker: ports, lists and topics."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree  # of reports that JUnit wrote a moment ago

from support.maven import jars
from support.needs import ROOT

__all__ = ["run_apache_tests"]

SOURCES = ROOT / "tests" / "other_languages" / "java" / "authorizer"
_COMPILE_S, _RUN_S = 300, 3000
_BOTH = "127.0.0.1 localhost\n::1 localhost\n"
"""Listeners differ by the address that localhost has on them."""


def run_apache_tests(folder: Path, *selected: str) -> Mapping[str, str]:
    """What became of each test with ZooKeeper: "" where it passed, else why not.

    ``selected`` are classes, or CLASS#METHOD."""
    libraries, compiled, reports = jars("kafka-3.9.1-tests", SOURCES), folder / "classes", folder / "reports"
    services = compiled / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.junit.jupiter.api.extension.Extension").write_text("OnlyZooKeeper\n")
    class_path = os.pathsep.join(map(str, sorted(libraries.glob("*.jar"))))
    scala = ["java", "-cp", class_path, "scala.tools.nsc.Main", "-nowarn", "-classpath", class_path]
    _run([*scala, "-d", str(compiled), str(SOURCES / "KafkaServer.scala")], _COMPILE_S)
    _run(["javac", "-cp", class_path, "-d", str(compiled), str(SOURCES / "OnlyZooKeeper.java")], _COMPILE_S)
    (folder / "hosts").write_text(_BOTH)
    (folder / "logs").mkdir()
    properties = {
        "barnabas": Path(sys.executable).with_name("barnabas"),
        "barnabas.logs": folder / "logs",
        "jdk.net.hosts.file": folder / "hosts",
        "java.io.tmpdir": folder,
        "junit.jupiter.extensions.autodetection.enabled": "true",
    }
    command = ["java", "-Xmx512m", *(f"-D{name}={value}" for name, value in properties.items())]
    command += ["-cp", os.pathsep.join((str(compiled), class_path)), "org.junit.platform.console.ConsoleLauncher"]
    command += ["execute", "--details=none", "--disable-banner", f"--reports-dir={reports}"]
    for each in selected:
        command += ["-m", f"{each}(java.lang.String)"] if "#" in each else ["-c", each]
    output = (folder / "output.txt").open("wb")
    with output:
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=_RUN_S, check=False)
    return _outcomes(reports / "TEST-junit-jupiter.xml")


def _run(command: list[str], limit_s: float) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _outcomes(report: Path) -> Mapping[str, str]:
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            continue
        name = re.sub(r"\(.*", "", case.get("name", "")) + f" {_display_name(case)}"
        problem = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
        found[name] = "" if problem is None else (problem.get("message") or problem.text or "?")[:300]
    return found


def _display_name(case: ElementTree.Element) -> str:
    """Of one invocation, such as ``[1] quorum=zk``."""
    texts = "".join(each.text or "" for each in case.iter("system-out"))
    shown = re.search(r"display-name: (.*)", texts)
    return shown[1] if shown else ""
