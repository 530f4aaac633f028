"""The jars of Spark's own Kafka connector, from Maven's repository: a whole set of 4.2.0, which
runs on later ones of Spark, too."""

import subprocess
from pathlib import Path

from support.needs import fetching

__all__ = ["connector_jars", "fetch_connector"]

_ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
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
