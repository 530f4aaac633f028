"""A Spark session for pipelines: quiet, in UTC, with the source ``barnabas`` registered, on this
machine or on a cluster."""

import contextlib
import importlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.base.errors import BarnabasError
from barnabas.base.user_folders import writable_user_folder
from barnabas.pipelines.flow_file.masters import is_local, require_master, shown_master
from barnabas.pipelines.packages import require_extra
from barnabas.pipelines.spark.class_archive import ClassArchive, archive_folder
from barnabas.pipelines.spark.gateway import JvmEndedError, SparkJvm
from barnabas.pipelines.spark.java_session import open_plain_session
from barnabas.pipelines.spark.jvm import find_java, prepare_home
from barnabas.pipelines.spark.protection import protection_settings
from barnabas.pipelines.spark.shipping import zip_package
from barnabas.pipelines.spark.worker_launcher import ForkServer, prepare_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipelines.specification.spec import Flow

__all__ = [
    "RunningSpark",
    "cache_dir",
    "open_flow_session",
    "open_session",
    "runs_code",
]

_EXECUTOR_TIMEOUT_S = 60
_ARCHIVE_TIMEOUT_S = 60.0
_COMPILED_ONCE = "-XX:TieredStopAtLevel=1"
_OPTIMIZED_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times Java's own: its optimizing compiler takes a third of a start's processor time for
code that is not used again."""
_SET_BY_QUERIES = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_LOCAL_DIRS", "SPARK_PYTHON_RUNTIME")
_LOOPBACK = re.compile(r"spark://(127\.|localhost:)")
_LOG4J = """status = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} spark %p %c{{1}}: %m%n%ex{{short}}
"""


def cache_dir() -> Path:
    """Where small generated files live between runs."""
    return writable_user_folder("XDG_CACHE_HOME", ".cache")


@dataclass(frozen=True)
class RunningSpark:
    """A running Spark and where its JVM writes what it has to say."""

    spark: "SparkSession"
    jvm: SparkJvm
    log: Path
    folder: Path
    """Only this user can enter it: Spark's scratch files, and what executors fetch
    from this machine."""
    archive: ClassArchive
    forks: ForkServer | None

    def close(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Stops Spark, its JVM and its Python processes, and removes the log.

        ``say`` is called if that takes long."""
        self.spark.stop()
        _disconnect()
        if self.archive.is_made:
            say("keeping an archive of Spark's classes, this once: later starts take half the time")
        has_ended_well = self.jvm.end(_ARCHIVE_TIMEOUT_S) if self.archive.is_made else self.jvm.end()
        if self.forks is not None:
            self.forks.close()
        self.archive.keep(has_ended_well=has_ended_well)
        self.log.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def open_session(
    name: str,
    *,
    cores: int = 2,
    memory: str = "1g",
    shuffle_partitions: int = 2,
    conf: Mapping[str, str] | None = None,
    log_level: str = "error",
    master: str | None = None,
    py_files: Sequence[str] = (),
    is_brief: bool = False,
    has_sources: bool = True,
    has_code: bool = True,
    imports: Sequence[str] = (),
) -> RunningSpark:
    """A session in a JVM of its own, ``local[cores]`` or a driver of ``master``.

    Raises `BarnabasError` when it cannot run. ``conf`` is laid over the defaults. ``log_level`` is
    log4j's, for Spark's own messages, which go to a file. Executors of ``master`` get this package
    and the modules ``py_files``. A session that ``is_brief``, such as a check's, leaves no archive
    of classes, and its JVM compiles once and fast: optimized code would come too late, for twice
    the processor time. Without ``has_sources`` the formats of this package are not registered.
    ``has_code``: the session runs Python that is not of this package, which may use Spark's
    machine learning, and whose lines Spark's messages name. ``imports`` are modules that are
    imported while the JVM starts.
    """
    require_extra()
    master = master or f"local[{cores}]"
    require_master(master)
    cache = cache_dir()
    java = find_java(os.environ)
    home = prepare_home(java, cache)
    archive = ClassArchive(archive_folder(cache, java, _spark_folder()), java, may_be_made=not is_brief)
    os.environ |= dict.fromkeys(("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"), _worker_python(master, cache))
    if _is_near(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.pop("SPARK_HOME", None)  # another Spark's scripts would start another Spark's jars

    folder = Path(tempfile.mkdtemp(prefix="barnabas-spark-"))
    settings = {
        "spark.app.name": name,
        **_driver_settings(master, cores, memory),
        "spark.driver.defaultJavaOptions": f'"-Djava.io.tmpdir={folder}"',
        "spark.driver.extraJavaOptions": _java_options(_write_log4j(cache, log_level), archive, is_brief=is_brief),
        **_sql_settings(cache, shuffle_partitions, has_code=has_code),
        **protection_settings(master, conf or {}),
        **(conf or {}),
    }
    environment = {"JAVA_HOME": str(home), "SPARK_LAUNCHER_OPTS": archive.launcher_options}
    sources = ("barnabas.pipelines.frames.lookup", "barnabas.pipelines.connector.data_source") if has_sources else ()
    forks = is_local(master) and has_sources and not is_brief and ForkServer.is_possible()
    try:
        running = _start(settings, environment, archive, (*sources, *imports), folder, forks=forks, has_code=has_code)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        if not is_local(master):
            _await_executor(running.spark, master, cores, memory)
            _ship(running.spark, py_files, running.folder)
        if has_sources:
            _register_sources(running.spark)
    except BaseException:
        running.close()
        raise
    return running


def open_flow_session(flow: "Flow", *, imports: Sequence[str] = ()) -> RunningSpark:
    """A session with the resources that a flow's file names; see `open_session`."""
    resources = flow.resources
    return open_session(
        flow.name,
        cores=resources.cores,
        memory=resources.memory,
        shuffle_partitions=resources.shuffle_partitions,
        conf=resources.spark,
        master=resources.master,
        py_files=resources.py_files,
        has_code=runs_code(flow),
        imports=imports,
    )


def runs_code(flow: "Flow") -> bool:
    """Whether the flow runs Python of its own on Spark, or learns."""
    return bool(flow.model) or any(getattr(each, "function", None) for each in (*flow.steps, *flow.sinks))


def _register_sources(spark: "SparkSession") -> None:
    """After what is shipped: a source keeps the modules that there are when it is registered."""
    from barnabas.pipelines.connector.data_source import BarnabasDataSource
    from barnabas.pipelines.frames.lookup import LookupDataSource

    spark.dataSource.register(BarnabasDataSource)
    spark.dataSource.register(LookupDataSource)


def _write_log4j(cache: Path, level: str) -> Path:
    path = cache / f"log4j2-{level}.properties"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_LOG4J.format(level=level), encoding="utf-8")
    return path


def _java_options(log4j: Path, archive: ClassArchive, *, is_brief: bool) -> str:
    compiler = _COMPILED_ONCE if is_brief else _OPTIMIZED_LATER
    return f"-Dlog4j2.configurationFile={log4j.as_uri()} -XX:+UseSerialGC {compiler} {archive.java_options}"


def _worker_python(master: str, cache: Path) -> str:
    """What Spark starts as Python; on other machines there is no launcher of ours."""
    return prepare_python(cache) if is_local(master) else sys.executable


def _is_near(master: str) -> bool:
    """Whether all of Spark is on this machine."""
    return is_local(master) or _LOOPBACK.match(master) is not None


def _driver_settings(master: str, cores: int, memory: str) -> dict[str, str]:
    """Where Spark runs, and what it takes there."""
    near = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if _is_near(master) else {}
    return {
        "spark.master": master,
        "spark.driver.memory": memory,
        **near,
        **_executor_settings(master, cores, memory),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _sql_settings(cache: Path, shuffle_partitions: int, *, has_code: bool) -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.warehouse.dir": str(cache / "warehouse"),
        # This makes each call that makes a column ask the JVM ten times, to note the line
        # of Python where it stands.
        "spark.python.sql.dataFrameDebugging.enabled": str(has_code).lower(),
    }


def _executor_settings(master: str, cores: int, memory: str) -> dict[str, str]:
    """What the flow takes of a cluster: ``cores`` in all.

    YARN and Kubernetes count executors, which have a core each."""
    if is_local(master):
        return {}
    if master.startswith("spark://"):
        return {"spark.cores.max": str(cores), "spark.executor.memory": memory}
    settings = {"spark.executor.instances": str(cores), "spark.executor.cores": "1", "spark.executor.memory": memory}
    if master.startswith("k8s://"):  # the driver is no pod: executors find it at spark.driver.host
        settings["spark.kubernetes.executor.useDriverPodIP"] = "false"
    return settings


def _await_executor(spark: "SparkSession", master: str, cores: int, memory: str) -> None:
    """Raise `BarnabasError` if the cluster gives the flow nothing to run on.

    Spark alone would wait for ever, in silence."""
    context: Any = spark.sparkContext
    deadline = time.monotonic() + _EXECUTOR_TIMEOUT_S
    while len(context._jsc.sc().statusTracker().getExecutorInfos()) < 2:  # the driver is one
        if time.monotonic() > deadline:
            raise BarnabasError(
                f"no worker of {shown_master(master)} took the flow within {_EXECUTOR_TIMEOUT_S} s: has one {memory} of memory and a core of "
                f"{cores} to spare (resources.memory, resources.cores), and can it reach this machine?"
            )
        time.sleep(0.1)


def _ship(spark: "SparkSession", py_files: Sequence[str], folder: Path) -> None:
    for each in (zip_package(folder), *py_files):
        spark.sparkContext.addPyFile(str(each))


def _spark_folder() -> Path:
    import importlib.util

    spec = importlib.util.find_spec("pyspark")
    assert spec is not None  # `require_extra` has looked
    assert spec.origin is not None
    return Path(spec.origin).parent


def _start(
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    archive: ClassArchive,
    imports: Sequence[str],
    folder: Path,
    *,
    forks: bool,
    has_code: bool,
) -> RunningSpark:
    """Starts the JVM and, if it ``forks``, the server of Python processes: PySpark
    is imported meanwhile.

    Their messages are kept off the terminal.
    """
    descriptor, log_name = tempfile.mkstemp(prefix="barnabas-spark-", suffix=".log")
    log = Path(log_name)
    server: ForkServer | None = None
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, descriptor)
        if forks:
            with contextlib.suppress(OSError):  # Spark starts its Python processes by itself
                server = ForkServer(settings, descriptor)
        try:
            address = server.environment if server else {}
            jvm = SparkJvm(_spark_folder(), settings, {**environment, **address}, descriptor)
        except BaseException:
            if server is not None:
                server.close()
            raise
    try:
        spark = _connect(jvm, settings, imports, has_code=has_code)
    except BaseException as error:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        _disconnect()
        jvm.end()
        if server is not None:
            server.close()
        archive.keep(has_ended_well=False)
        if not _is_of_start(error):
            raise
        where = "" if is_local(settings["spark.master"]) else f" with {shown_master(settings['spark.master'])}"
        raise BarnabasError.of_lines(
            f"Spark did not start{where} on the Java at {environment['JAVA_HOME']}; its last words:", *last
        ) from error
    return RunningSpark(spark, jvm, log, folder, archive, server)


def _connect(jvm: SparkJvm, settings: Mapping[str, str], imports: Sequence[str], *, has_code: bool) -> "SparkSession":
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    for each in imports:
        importlib.import_module(each)
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    SparkContext._ensure_initialized(gateway=jvm.connect(), conf=conf)
    if not has_code:
        open_plain_session(SparkContext.getOrCreate(conf))
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    # A source has one map of these for all queries. Each query sets the names below while Spark may
    # copy the map for another: with the names in it from the start, the map keeps its size.
    spark.sparkContext.environment.update(dict.fromkeys(_SET_BY_QUERIES, ""))
    # PySpark's accumulator server prints a stack trace for each connection that is
    # open when the JVM ends.
    accumulators: Any = spark.sparkContext._accumulatorServer
    accumulators.handle_error = lambda *_: None
    return spark


def _is_of_start(error: BaseException) -> bool:
    """Whether it is an error of Spark's, whose reason is in what the JVM has written."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkRuntimeError

    return isinstance(error, JvmEndedError | PySparkRuntimeError | Py4JError)


def _disconnect() -> None:
    """Closes the gateway, which Spark's own stop leaves open until this process ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        with contextlib.suppress(Exception):  # the JVM may be gone, and py4j says so in many ways
            gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
