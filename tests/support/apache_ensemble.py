"""Single members of ensembles, run by Apache ZooKeeper, with their log."""

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from support.needs import APACHE, ROOT, fetching
from support.waiting import eventually

_LOG4J = """log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p %m%n
"""


_POM = ROOT / "tests" / "other_languages" / "java" / "zookeeper" / "pom.xml"


@cache
def classpath(release: str) -> str:
    """The jars of ZooKeeper 3.8, which come with Apache Kafka, without the binding that drops all
    log lines; or those of 3.9.

    Release 3.9 takes the libraries of its admin server and its shell from Kafka's.
    """
    printed = subprocess.run([str(APACHE), "classpath"], capture_output=True, text=True, timeout=600, check=True).stdout
    jars = sorted(Path(printed.strip().removesuffix("/*")).glob("*.jar"))
    if release == "3.9":
        names = ("jetty-", "javax.servlet-api", "jackson-", "commons-cli")
        return ":".join((f"{_zookeeper_39()}/*", *(str(jar) for jar in jars if jar.name.startswith(names))))
    return ":".join(str(jar) for jar in jars if not jar.name.startswith("slf4j-nop"))


def _zookeeper_39() -> Path:
    """The directory with the jars, which come from Maven Central once."""
    jars = Path.home() / ".cache" / "reference" / "zookeeper-3.9.4"
    with fetching():
        if not (jars / "complete").exists():
            command = ["mvn", "-q", "-B", "-f", str(_POM), f"-DoutputDirectory={jars}", "dependency:copy-dependencies"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
            if done.returncode:
                pytest.skip(f"{' '.join(command)} got no libraries: {done.stdout[-300:]}{done.stderr[-300:]}")
            (jars / "complete").touch()
    return jars


@dataclass
class ApacheMember:
    """A running server."""

    server_id: int
    directory: Path
    client_port: int
    process: subprocess.Popen[bytes] = field(repr=False)

    def log(self) -> str:
        """What it has logged so far."""
        return (self.directory / "log").read_text(errors="replace")

    def until_logged(self, text: str, *, timeout_s: float = 60) -> None:
        """Wait for a text in its log."""
        eventually(lambda: text in self.log(), timeout_s=timeout_s, what=text)


def is_reconfigured(configuration: Path) -> bool:
    """Whether a server has written this zoo.cfg: it is kept at the next start."""
    return configuration.exists() and "dynamicConfigFile" in configuration.read_text()


@contextlib.contextmanager
def apache_member(
    directory: Path,
    server_id: int,
    servers: Mapping[str, str],
    client_port: int,
    *,
    release: str = "3.8",
    **settings: object,
) -> Iterator[ApacheMember]:
    """Start one member of release 3.8 or 3.9; ``servers`` are the lines of the whole ensemble."""
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "myid").write_text(str(server_id))
    (directory / "log4j.properties").write_text(_LOG4J)
    texts = {
        "tickTime": 2000,
        "initLimit": 5,
        "syncLimit": 5,
        "dataDir": data,
        "clientPort": client_port,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
        **servers,
        **settings,
    }
    configuration = directory / "zoo.cfg"
    if not is_reconfigured(configuration):
        configuration.write_text("".join(f"{name}={value}\n" for name, value in texts.items()))
    command = ["java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-cp", classpath(release)]
    command += [f"-Dlog4j.configuration=file:{directory}/log4j.properties"]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(configuration)]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield ApacheMember(server_id, directory, client_port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
