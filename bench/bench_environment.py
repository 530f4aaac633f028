"""What bench/pipelines.py needs beside the project: an environment of its own, and the jars of
Spark's Kafka connector.

The environment, ``build/bench-venv``, has the project with PySpark 4.2.0, for which the registry
has a whole connector of the same version, and Polars. What cannot be had is named on standard
error, and what needs it is not measured.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / "build" / "bench-venv"
MAVEN = Path.home() / ".m2" / "repository"
PYSPARK = "4.2.0"
ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{PYSPARK}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{PYSPARK}",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
_IS_COMPLETE = VENV / "complete"


def enter() -> None:
    """Go on in the bench's environment, which is made if need be; or here, if it cannot be."""
    if Path(sys.prefix) == VENV:
        return
    if not _IS_COMPLETE.exists():
        print(f"making {VENV}: about 500 MB to fetch", file=sys.stderr)
        packages = ["-e", f"{ROOT}[pipelines]", f"pyspark=={PYSPARK}", "polars"]
        try:
            subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
            subprocess.run([str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            skipped(f"PySpark {PYSPARK} and Polars: {error}; measuring with the packages of {sys.prefix}")
            return
        _IS_COMPLETE.touch()
    python = str(VENV / "bin" / "python")  # by this name it finds its environment
    os.execv(python, [python, *sys.argv])


def find_jars(folder: Path) -> list[Path]:
    """The connector's jars, in the folder, in Maven's repository, or fetched by Maven.

    None, with a word about it, if one is missing."""
    found: list[Path] = []
    for artifact in ARTIFACTS:
        group, name, version = artifact.split(":")
        jar = f"{name}-{version}.jar"
        places = [folder / jar, MAVEN / Path(*group.split(".")) / name / version / jar]
        if not any(each.is_file() for each in places) and shutil.which("mvn"):
            command = ["mvn", "-q", "-B", "dependency:get", "-Dtransitive=false", f"-Dartifact={artifact}"]
            subprocess.run(command, check=False, stdout=sys.stderr)
        there = next((each for each in places if each.is_file()), None)
        if there is None:
            skipped(f"Spark's connector: {jar} is neither in {folder} nor in {MAVEN}, and Maven did not bring it")
            return []
        found.append(there)
    return found


def missing_modules(names: Sequence[str]) -> list[str]:
    """Those that this environment does not have."""
    from importlib.util import find_spec

    return [name for name in names if find_spec(name) is None]


def skipped(what: str) -> None:
    """Say what is not measured, and why."""
    print(f"not measured: {what}", file=sys.stderr)
