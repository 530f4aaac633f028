"""The format ``barnabas`` in Spark Connect and in Spark's declarative pipelines.

Both need gRPC's packages (``pip install 'pyspark[connect,pipelines]'``), which Barnabas itself does
without. So they are not installed with it, and these tests are a trial:
``python tests/spark/other_pyspark.py connect``.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
pyspark = pytest.importorskip("pyspark")

from barnabas.pipelines.spark.jvm import find_java, prepare_home  # noqa: E402
from barnabas.pipelines.spark.session import cache_dir  # noqa: E402

CONNECT = """\
import sys
from pyspark.sql import SparkSession

bootstrap, topic, target = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__


def read(reader):
    return reader.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)


records = read(spark.readStream).option("startingOffsets", "earliest").load()
writer = records.select("key", "value").writeStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
query = writer.option("topic", target).option("checkpointLocation", "checkpoint").trigger(availableNow=True).start()
assert query.awaitTermination(300)
print("rows", read(spark.read).load().count())
spark.stop()
"""
PROJECT = """\
name: copies
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""
TABLES = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
servers = {{"kafka.bootstrap.servers": "{bootstrap}"}}


@dp.table
def records():
    options = {{**servers, "subscribe": "{topic}", "startingOffsets": "earliest"}}
    return spark.readStream.format("barnabas").options(**options).load()


dp.create_sink("copies", "barnabas", {{**servers, "topic": "{target}"}})


@dp.append_flow(target="copies")
def copy():
    return spark.readStream.table("records").select("key", "value")
"""


def run(folder: Path, *command: str) -> str:
    home = prepare_home(find_java(os.environ), cache_dir())
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {**os.environ, "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PATH": path}
    environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_program_of_spark_connect_reads_and_writes_topics(cluster: Any, tmp_path: Path) -> None:
    """By the name of the format alone: the server finds the package where it is installed."""
    topic, target = cluster.topic(2), cluster.topic(1)
    cluster.produce(topic, [(b"%d" % number, b"v") for number in range(100)])
    (tmp_path / "program.py").write_text(CONNECT)
    shown = run(tmp_path, sys.executable, "program.py", cluster.bootstrap, topic, target)
    assert shown.splitlines()[-1].endswith("rows 100")
    assert len({each.key() for each in cluster.read(target)}) == 100


def test_a_declarative_pipeline_reads_and_writes_topics(cluster: Any, tmp_path: Path) -> None:
    """A table fed by a topic, and a sink of the format."""
    topic, target = cluster.topic(2), cluster.topic(1)
    cluster.produce(topic, [(b"%d" % number, b"v") for number in range(100)])
    (tmp_path / "spark-pipeline.yml").write_text(PROJECT.format(storage=(tmp_path / "storage").as_uri()))
    (tmp_path / "transformations").mkdir()
    text = TABLES.format(bootstrap=cluster.bootstrap, topic=topic, target=target)
    (tmp_path / "transformations" / "copies.py").write_text(text)
    run(tmp_path, "bash", str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run")
    assert len({each.key() for each in cluster.read(target)}) == 100
