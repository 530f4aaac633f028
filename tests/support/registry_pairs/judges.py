"""Asks others what they say of the pairs, and keeps their answers.

``PYTHONPATH=tests python -m support.registry_pairs.judges`` asks Apache's Avro for Java (the
version that PySpark brings) and Apicurio's registry, which Maven brings, by its API that is
Confluent's. Both need Java 17. The answers are written to `kept/registry_answers.json`, one line a
pair.
"""

import json
import os
import signal
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from support.ports import free_ports
from support.registry_pairs.pair import Pair
from support.registry_pairs.table import all_pairs

__all__ = ["ANSWERS", "ask_apache"]

TESTS = Path(__file__).parents[2]

ANSWERS = TESTS / "support" / "kept" / "registry_answers.json"
APICURIO = "3.0.9"
"""The last version whose distribution runs on Java 17."""

_START_S = 120


def ask_apache(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """For each pair of Avro what Apache's library finds, in order, and the reader's text."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    names = ("avro-1*", "jackson-*", "slf4j-api*", "commons-compress*")
    path = os.pathsep.join(str(jar) for name in names for jar in sorted(jars.glob(f"{name}.jar")))
    asked = json.dumps([{"reader": pair.reader, "writer": pair.writer} for pair in pairs])
    program = TESTS / "support" / "AvroJudge.java"
    done = subprocess.run(["java", "-cp", path, program], input=asked, capture_output=True, text=True, check=True)
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


@contextmanager
def apicurio() -> Iterator[str]:
    """A registry of Apicurio in memory: the address of its API that is Confluent's."""
    folder = Path.home() / ".cache" / "reference" / f"apicurio-{APICURIO}"
    jar = folder / f"apicurio-registry-app-{APICURIO}-runner.jar"
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        artifact = f"io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all"
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True, cwd=folder)
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
    port = free_ports(1)[0]
    settings = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    command = ["java", "-Xmx512m", *settings, "-jar", str(jar)]
    with (folder / "log.txt").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        try:
            end = time.monotonic() + _START_S
            while "error" in _call(f"{url}/config"):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"Apicurio does not start: {folder / 'log.txt'}")
                time.sleep(0.5)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)


def _call(url: str, body: object = None, method: str = "GET") -> dict[str, Any]:
    request = urllib.request.Request(url, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            decoded: dict[str, Any] = json.load(answer)
            return decoded
    except urllib.error.HTTPError as error:
        return {"error": error.read().decode()}
    except OSError as error:
        return {"error": str(error)}


def ask_apicurio(url: str, number: int, pair: Pair) -> object:
    """Whether the reader's schema may follow the writer's at level BACKWARD, or the refusal."""
    subject = f"{url}/subjects/pair-{number}"
    schema_type = pair.schema_type
    written = _call(f"{subject}/versions", {"schema": pair.writer, "schemaType": schema_type}, "POST")
    if "id" not in written:
        return f"refused: {written}"
    _call(f"{url}/config/pair-{number}", {"compatibility": "BACKWARD"}, "PUT")
    asked = f"{url}/compatibility/subjects/pair-{number}/versions/latest"
    answer = _call(asked, {"schema": pair.reader, "schemaType": schema_type}, "POST")
    return answer.get("is_compatible", f"refused: {answer}")


def main() -> None:
    pairs = all_pairs()
    answers: dict[str, dict[str, object]] = {pair.name: {} for pair in pairs}
    avro = [pair for pair in pairs if pair.schema_type == "AVRO"]
    for pair, answer in zip(avro, ask_apache(avro), strict=True):
        answers[pair.name] |= {"apache": answer}
    with apicurio() as url:
        for number, pair in enumerate(pairs):
            answers[pair.name]["apicurio"] = ask_apicurio(url, number, pair)
    lines = (f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(answers)} answers in {ANSWERS}")


if __name__ == "__main__":
    main()
