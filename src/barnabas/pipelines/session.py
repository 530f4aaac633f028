"""A Spark session for pipelines: quiet, on this machine, in UTC, with the source ``barnabas`` registered."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.jvm import find_java, prepare_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MissingExtraError", "cache_dir", "open_session", "require_extra"]

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


def open_session(
    name: str,
    *,
    cores: int = 2,
    memory: str = "1g",
    shuffle_partitions: int = 2,
    conf: Mapping[str, str] | None = None,
    log_level: str = "off",
) -> "SparkSession":
    """A session of its own JVM, ``local[cores]``; raises `BarnabasError` when Spark or Java cannot run.

    ``conf`` is laid over the defaults. ``log_level`` is log4j's, for Spark's own messages on standard error.
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

    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    from barnabas.pipelines.source import BarnabasDataSource

    java_options = f"-Dlog4j2.configurationFile={log4j.as_uri()} -XX:+UseSerialGC -XX:TieredStopAtLevel=4"
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.app.name": name,
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.warehouse.dir": str(cache / "warehouse"),
        **(conf or {}),
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise BarnabasError(f"Spark did not start on the Java at {home}: {error}") from error
    session.dataSource.register(BarnabasDataSource)
    return session
