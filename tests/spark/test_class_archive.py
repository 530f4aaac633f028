"""The archive of classes with which Spark's JVM starts, made and used by the Java that Spark runs
on; without Spark itself."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
pyspark = pytest.importorskip("pyspark")

from barnabas.pipelines.spark.class_archive import ClassArchive, archive_folder  # noqa: E402
from barnabas.pipelines.spark.jvm import Java, find_java, prepare_home  # noqa: E402

SPARK = Path(pyspark.__file__).parent
ENVIRONMENT = {**os.environ, "SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": "2.13"}
PROGRAM = "org.apache.spark.launcher.Main"
"""A program among Spark's jars that ends in a moment."""


def run(java: Java, options: str, folder: Path) -> str:
    """Runs the program; where its classes came from."""
    log = folder / "classes.log"
    program = [str(prepare_home(java, folder) / "bin" / "java"), *options.split(), f"-Xlog:class+load:file={log}"]
    command = [*program, "-cp", f"{SPARK}/jars/*", PROGRAM, "org.apache.spark.deploy.SparkSubmit", "--version"]
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
    lines = [line for line in log.read_text().splitlines() if f"{PROGRAM} source:" in line]
    log.unlink()
    return lines[0].partition("source:")[2].strip()


def test_the_second_start_makes_the_archive_and_the_third_uses_it(tmp_path: Path) -> None:
    """One process makes it at a time; a start that ends badly leaves nothing, and a
    check makes none."""
    java = find_java(os.environ)
    folder = archive_folder(tmp_path, java, SPARK)
    assert ClassArchive(folder, java, may_be_made=False).java_options == ""
    assert not folder.exists()
    first = ClassArchive(folder, java)
    assert (first.java_options, first.is_made) == ("", False)
    broken = ClassArchive(folder, java)
    assert broken.is_made
    beside = ClassArchive(folder, java)
    assert (beside.java_options, beside.is_made) == ("", False)
    broken.keep(has_ended_well=False)
    second = ClassArchive(folder, java)
    assert second.is_made
    assert "jar" in run(java, second.java_options, tmp_path)
    second.keep(has_ended_well=True)
    assert sorted(each.name for each in folder.iterdir() if each.suffix == ".part") == []
    third = ClassArchive(folder, java, may_be_made=False)
    assert not third.is_made
    assert "shared objects file" in run(java, third.java_options, tmp_path)
    assert run(java, third.launcher_options, tmp_path)
    assert archive_folder(tmp_path, java, tmp_path) != folder, "another Spark has its own"
