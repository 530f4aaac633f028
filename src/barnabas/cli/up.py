"""``barnabas up``: a whole cluster as child processes, supervised.

The data dir holds what the servers would be started with by hand (zoo.cfg, server.properties, server1.properties ...)
beside their data and logs, so that each can also be started alone. Everything is checked and the data dir's lock is held
before a file is written. With a temporary data dir, the logs of a failure are kept.
"""

import argparse
import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError
from barnabas.base.settings import properties_text
from barnabas.cli.colours import Style, painted
from barnabas.cli.common import ToolParser
from barnabas.cli.local_clusters import LocalCluster, locked, record
from barnabas.cli.standard_streams import outlive_output
from barnabas.cli.supervisor import ServerPlan, Supervisor
from barnabas.cli.terminal import print, print_lines
from barnabas.cli.up_files import BrokerFiles, CoordinationPlan, check_ports, free_ports
from barnabas.testing.private_files import write_private

if TYPE_CHECKING:
    from barnabas.testing.security import ClusterSecurity

__all__ = ["main"]

_OUTPUT = "BARNABAS_UP_OUTPUT"  # set by --detach for the process in the background: the file of its messages
_DETACH_TIMEOUT_S = 90
_POLL_S = 0.02
_METRICS_HELP = (
    "show metrics to Prometheus on http://HOST:PORT/metrics, the first broker's there, the others' on the ports that follow; "
    "0: any free (default: nowhere)"
)


def main(argv: list[str]) -> int:
    """Run until SIGINT (130) or SIGTERM (0); 1 when the cluster does not come up."""
    given = _parser().parse_args(argv)
    outlive_output()
    if given.detach:
        return _detach([argument for argument in argv if argument not in ("--detach", "-d")])
    try:
        with _data_dir(given.data_dir) as directory:
            return _run(given, directory)
    except OSError as error:
        where = error.filename or given.data_dir or tempfile.gettempdir()
        remedy = "free some space, or " if error.errno == errno.ENOSPC else ""
        raise BarnabasError(
            f"{where}: {error.strerror or error}; {remedy}choose another folder with --data-dir"
        ) from None


def _parser() -> ToolParser:
    parser = ToolParser(
        "up",
        "Start a coordination server, or an ensemble of them, and brokers on this machine, print one line "
        "'ready BOOTSTRAP zk=ADDRESS pids=NAME:PID,...' when clients can work, and stay until Ctrl-C.",
    )
    parser.add_argument(
        "--brokers",
        type=int,
        default=1,
        metavar="N",
        help="how many brokers; more than one a core gain nothing (default 1)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on and to give to clients")
    parser.add_argument(
        "--port", type=int, default=9092, help="the first broker's port, the others follow; 0: any free (default 9092)"
    )
    parser.add_argument(
        "--zk-servers", type=int, default=1, metavar="N", help="how many coordination servers (default 1)"
    )
    parser.add_argument(
        "--zk-port",
        type=int,
        default=2181,
        help="the first coordination server's port, the others follow; their own ports follow 707 and 1707 above "
        "(2888 and 3888); 0: any free (default 2181)",
    )
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="use this coordination service and start none")
    parser.add_argument("--data-dir", metavar="DIR", help="keep the data here (default: a temporary folder)")
    parser.add_argument(
        "--security",
        choices=("SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        help="secure the brokers' listeners, with certificates that are made for this cluster; DIR/security/client.properties "
        "is what clients connect with",
    )
    parser.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="NAME=PASSWORD",
        help="a user of --security SASL_PLAINTEXT or SASL_SSL; may be repeated. Others see it among the processes: for tests",
    )
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help=_METRICS_HELP)
    parser.add_argument("--racks", type=int, default=0, metavar="N", help="spread the brokers over N racks, in order")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a broker property, for all brokers; may be repeated",
    )
    parser.add_argument(
        "-d",
        "--detach",
        action="store_true",
        help="return when the cluster is ready, and leave it in the background; see barnabas status, logs and down",
    )
    return parser


@contextlib.contextmanager
def _data_dir(given: str | None) -> Iterator[Path]:
    if given:
        path = Path(given).absolute()
        _check_name(path)
        path.mkdir(parents=True, exist_ok=True)
        yield path
    else:
        with tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True) as temporary:
            _check_name(Path(temporary))
            yield Path(temporary)


def _check_name(directory: Path) -> None:
    """Refuse a folder that `log.dirs` cannot name, before it is made: the records would be elsewhere."""
    if "," in str(directory):
        raise BarnabasError(
            f"{directory} cannot hold a cluster: log.dirs, which names the folders of the records, separates them with "
            "commas. Choose a folder without a comma with --data-dir"
        )


def _name_value(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BarnabasError(f"{option} {text if option == '--override' else '...'}: NAME=VALUE is expected")
    return name.strip(), value


def _run(given: argparse.Namespace, directory: Path) -> int:
    if given.brokers < 1:
        raise BarnabasError(f"--brokers {given.brokers}: at least one broker is needed")
    if not 0 <= given.racks <= given.brokers:
        raise BarnabasError(f"--racks {given.racks}: between 0 and the number of brokers, {given.brokers}")
    first: int = given.port
    ports = _ports(given, first)
    metrics_ports = [] if given.metrics_port is None else _ports(given, given.metrics_port)
    coordination = CoordinationPlan(given.zk_servers, given.host, given.zk_port, directory)
    zookeeper_connect = given.zookeeper or coordination.address
    security = _security(given, directory)
    overrides = dict(_name_value("--override", text) for text in given.override)
    files = BrokerFiles(
        directory, given.host, ports, metrics_ports, zookeeper_connect, given.racks, overrides, security
    )
    with locked(directory):
        if given.zookeeper:
            from barnabas.cli.unserved import require_coordination

            require_coordination(given.zookeeper)
        if security is not None:
            security.prepare()
        check_ports(given.host, [*ports, *metrics_ports, *([] if given.zookeeper else coordination.ports)])
        for warning in files.check():
            print(painted(Style.WARNING, f"warning: {warning}", sys.stderr), file=sys.stderr)
        plans = []
        if not given.zookeeper:
            paths = zip(coordination.names, coordination.write_files(), strict=True)
            plans += [ServerPlan(name, "zookeeper-server-start", path) for name, path in paths]
        plans += [ServerPlan(str(n), "server-start", files.write(n)) for n in range(given.brokers)]
        bootstrap = ",".join(f"{given.host}:{port}" for port in ports)
        supervisor = Supervisor(
            directory,
            plans,
            bootstrap,
            given.brokers,
            keeps_files=bool(given.data_dir),
            properties=None if security is None else security.own_properties(),
        )
        try:
            cluster = LocalCluster(
                str(directory), os.getpid(), bootstrap, zookeeper_connect, is_temporary=not given.data_dir
            )
            return _supervise(supervisor, cluster, security)
        finally:
            if not supervisor.has_failed:
                _remove_output_file()
            elif not given.data_dir:
                _keep_logs(directory)


def _ports(given: argparse.Namespace, first: int) -> list[int]:
    """A port of each broker, from the first one on; 0 stands for any free ones."""
    return [first + n for n in range(given.brokers)] if first else free_ports(given.host, given.brokers)


def _security(given: argparse.Namespace, directory: Path) -> "ClusterSecurity | None":
    users = dict(_name_value("--user", text) for text in given.user)
    if given.security is None:
        if users:
            raise BarnabasError("--user needs --security SASL_SSL or SASL_PLAINTEXT")
        return None
    from barnabas.testing.security import ClusterSecurity  # few clusters need it

    security = ClusterSecurity(given.security, users)
    security.directory = directory / "security"
    return security


def _supervise(supervisor: Supervisor, cluster: LocalCluster, security: "ClusterSecurity | None") -> int:
    supervisor.start()
    try:
        if not supervisor.wait_until_ready():
            return supervisor.exit_code if supervisor.is_stopping else 1
        if security is not None:
            security.create_users(cluster.bootstrap_servers)
            path = Path(cluster.data_dir) / "security" / "client.properties"
            servers = {"bootstrap.servers": cluster.bootstrap_servers}
            write_private(path, properties_text(servers | security.client_properties(java=True)))
        cluster.pids = supervisor.pids
        cluster.output = os.environ.get(_OUTPUT, "")
        record(cluster)
        pids = ",".join(f"{name}:{pid}" for name, pid in cluster.pids.items())
        print(f"ready {cluster.bootstrap_servers} zk={cluster.zookeeper_connect} pids={pids}")
        supervisor.watch()
        return supervisor.exit_code
    finally:
        supervisor.stop()


def _remove_output_file() -> None:
    """Remove the file of the supervisor's messages: it ends as it was asked to, and no command reads them afterwards."""
    if output := os.environ.get(_OUTPUT):
        Path(output).unlink(missing_ok=True)


def _keep_logs(directory: Path) -> None:
    """Save the logs and configuration files of a failure from the end of the temporary folder."""
    try:
        kept = Path(tempfile.mkdtemp(prefix="barnabas-failed-"))
        # Moved, not copied: the disk may be full, and that may be the failure.
        for path in (directory / "logs", *directory.glob("*.cfg"), *directory.glob("*.properties")):
            shutil.move(path, kept)
    except OSError as error:
        print(f"the logs cannot be kept: {error}", file=sys.stderr)
    else:
        print(f"the logs are kept in {kept}", file=sys.stderr)


def _detach(argv: list[str]) -> int:
    """Run the same command in the background; return when it is ready, with its line, or with what it said."""
    handle, output = tempfile.mkstemp(prefix="barnabas-up-", suffix=".log")
    with os.fdopen(handle, "wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "up", *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**os.environ, _OUTPUT: output},
        )
    end = time.monotonic() + _DETACH_TIMEOUT_S
    while child.poll() is None and time.monotonic() < end:
        lines = Path(output).read_text().splitlines(keepends=True)
        if any(line.startswith("ready ") and line.endswith("\n") for line in lines):
            print_lines("".join(lines), end="")
            return 0
        time.sleep(_POLL_S)
    child.terminate()
    child.wait()
    print_lines(Path(output).read_text(), end="", file=sys.stderr)
    Path(output).unlink()
    return 1
