"""A Spark session for pipelines: quiet, on this machine, in UTC, with the source ``barnabas`` registered."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.jvm import find_java, prepare_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MissingExtraError", "RunningSpark", "cache_dir", "open_session", "require_extra"]

_LOG4J = """status = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} spark %p %c{{1}}: %m%n%ex{{short}}
"""


class MissingExtraError(BarnabasError):
    """The packages of the extra ``pipelines`` are not installed."""


def require_extra() -> None:
    """Raises `MissingExtraError` that names the first missing package and the command that installs it."""
    import importlib.util

    for name in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(f"pipelines need {name}, which is not installed: pip install 'barnabas[pipelines]'")


def cache_dir() -> Path:
    """Where small generated files live between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "barnabas"


@dataclass(frozen=True)
class RunningSpark:
    """A running Spark and where its JVM writes what it has to say."""

    spark: "SparkSession"
    log: Path

    def close(self) -> None:
        """Stops Spark and its JVM, and removes the log."""
        self.spark.stop()
        _end_jvm()
        self.log.unlink(missing_ok=True)


def open_session(
    name: str,
    *,
    cores: int = 2,
    memory: str = "1g",
    shuffle_partitions: int = 2,
    conf: Mapping[str, str] | None = None,
    log_level: str = "error",
) -> RunningSpark:
    """A session in a JVM of its own, ``local[cores]``; raises `BarnabasError` when Spark or Java cannot run.

    ``conf`` is laid over the defaults. ``log_level`` is log4j's, for Spark's own messages, which go to a file.
    """
    require_extra()
    cache = cache_dir()
    home = prepare_home(find_java(os.environ), cache)
    log4j = cache / f"log4j2-{log_level}.properties"
    log4j.parent.mkdir(parents=True, exist_ok=True)
    log4j.write_text(_LOG4J.format(level=log_level))
    os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.pop("SPARK_HOME", None)  # another Spark's scripts would start another Spark's jars

    settings = {
        "spark.master": f"local[{cores}]",
        "spark.app.name": name,
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.warehouse.dir": str(cache / "warehouse"),
        **(conf or {}),
    }
    return _start(settings, home)


def _start(settings: Mapping[str, str], home: Path) -> RunningSpark:
    """Starts the JVM first, for only so its messages can be kept off the terminal."""
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    from barnabas.pipelines.lookup import LookupDataSource
    from barnabas.pipelines.source import BarnabasDataSource

    descriptor, log_name = tempfile.mkstemp(prefix="barnabas-spark-", suffix=".log")
    log = Path(log_name)
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    try:
        launch: Any = java_gateway.launch_gateway  # untyped
        gateway = launch(conf, {"stdout": descriptor, "stderr": descriptor})
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except PySparkRuntimeError as error:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        raise BarnabasError(f"Spark did not start on the Java at {home}; its last words:\n{last}") from error
    finally:
        os.close(descriptor)
    spark.dataSource.register(BarnabasDataSource)
    spark.dataSource.register(LookupDataSource)
    return RunningSpark(spark, log)


def _end_jvm() -> None:
    """Ends the JVM that Spark's own stop leaves running until this process ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    with contextlib.suppress(Exception):  # the JVM may be gone, and py4j says so in many ways
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
