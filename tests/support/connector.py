"""The jars of Spark's own Kafka connector: those that together run on the Spark that is installed, from Maven's repository.

The registries have no whole set of one version; this one is unofficial, and good for comparison.
"""

import subprocess
from pathlib import Path

from support.needs import fetching

__all__ = ["connector_jars", "fetch_connector"]

_ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


def connector_jars() -> list[Path]:
    """The jars; empty if one is missing."""
    jars = []
    for artifact in _ARTIFACTS:
        group, name, version = artifact.split(":")
        folder = Path.home() / ".m2" / "repository" / Path(*group.split(".")) / name / version
        jars.append(folder / f"{name}-{version}.jar")
    return jars if all(each.exists() for each in jars) else []


def fetch_connector() -> None:
    """Bring the jars that are missing."""
    with fetching():
        for artifact in _ARTIFACTS if not connector_jars() else ():
            command = ["mvn", "-q", "-B", "dependency:get", "-Dtransitive=false", f"-Dartifact={artifact}"]
            subprocess.run(command, check=True, timeout=280)
