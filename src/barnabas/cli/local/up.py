"""``barnabas up``: a whole cluster as child processes, supervised.

The data dir holds what the servers would be started with by hand (zoo.cfg, server.properties,
server1.properties ...) beside their data and logs, so that each can also be started alone.
Everything is checked and the data dir's lock is held before a file is written. With a temporary
data dir, the logs of a failure are kept.
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
from collections.abc import Iterator, Sequence
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.base.private_files import make_private_dirs
from barnabas.cli.local.broker_plan import check_settings
from barnabas.cli.local.cluster_plan import plan_cluster
from barnabas.cli.local.files import check_ports
from barnabas.cli.local.held_cluster import refuse_other_data
from barnabas.cli.local.options import overrides_of, up_parser
from barnabas.cli.local.security_plan import SecurityPlan, write_client_files
from barnabas.cli.local.supervisor import Supervisor
from barnabas.cli.machine.clusters import LocalCluster, locked, record, refuse_started_by_hand
from barnabas.cli.output.colours import print_warning
from barnabas.cli.output.standard_streams import outlive_output
from barnabas.cli.output.terminal import print, print_lines
from barnabas.coordination.quorum.members import HostAndPort
from barnabas.wire.jute.errors import KeeperError

__all__ = ["main"]

# The file for the messages of the process in the background; set by --detach.
_OUTPUT = "BARNABAS_UP_OUTPUT"
_DETACH_TIMEOUT_S = 90
_POLL_S = 0.02
_TEMPORARY = "the data of this cluster is temporary and goes when it stops; barnabas up --data-dir DIR keeps its data"


def main(argv: list[str]) -> int:
    """Run until SIGINT (130) or SIGTERM (0); 1 when the cluster does not come up."""
    given = up_parser().parse_args(argv)
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


@contextlib.contextmanager
def _data_dir(given: str | None) -> Iterator[Path]:
    if given == "":
        raise BarnabasError("--data-dir is empty (a variable that is not set?): name a folder, or leave the option out")
    if given is not None:
        path = Path(given).absolute()
        _check_name(path)
        make_private_dirs(path)
        yield path
    else:
        with tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True) as temporary:
            _check_name(Path(temporary))
            yield Path(temporary)


def _check_name(directory: Path) -> None:
    """Refuse a folder that `log.dirs` cannot name, before it is made: the records
    would be elsewhere."""
    if "," in str(directory):
        raise BarnabasError(
            f"{directory} cannot hold a cluster: log.dirs, which names the folders of the records, separates them with "
            "commas. Choose a folder without a comma with --data-dir"
        )


def _run(given: argparse.Namespace, directory: Path) -> int:
    refuse_other_data(directory)
    with locked(directory):
        refuse_started_by_hand(directory)
        coordination, brokers, security_plan, beside = plan = plan_cluster(given, directory)
        services = [each.address for each in beside]
        if not coordination.files:
            from barnabas.cli.zookeeper.diagnosis import require_coordination

            require_coordination(coordination.address)
        if security_plan.security is not None:
            security_plan.security.prepare()
        check_ports([*brokers.addresses, *brokers.metrics, *coordination.listens, *services])
        for warning in check_settings(brokers, overrides_of(given)):
            print_warning(warning)
        supervisor = Supervisor(
            directory,
            plan.write(directory),
            brokers.bootstrap,
            len(brokers.files),
            keeps_files=bool(given.data_dir),
            properties=None if security_plan.security is None else security_plan.security.own_properties(),
        )
        try:
            cluster = LocalCluster(
                str(directory),
                os.getpid(),
                brokers.bootstrap,
                brokers.zookeeper_connect,
                is_temporary=not given.data_dir,
                services={each.name: each.url for each in beside},
            )
            return _supervise(supervisor, cluster, security_plan, services)
        finally:
            if not supervisor.has_failed:
                _remove_output_file()
            elif not given.data_dir:
                _keep_logs(directory)


def _supervise(
    supervisor: Supervisor, cluster: LocalCluster, security_plan: SecurityPlan, services: Sequence[HostAndPort]
) -> int:
    security = security_plan.security
    files: dict[str, Path] = {}
    try:
        supervisor.start_coordination()
        if security is not None:
            try:
                security.prepare_coordination(cluster.zookeeper_connect, security_plan.new_users)
            except KeeperError:
                if supervisor.report_ended():
                    return 1
                raise
        supervisor.start_brokers()
        if not supervisor.wait_until_ready():
            return supervisor.exit_code if supervisor.is_stopping else 1
        if not supervisor.start_services((each.reachable().host, each.port) for each in services):
            return supervisor.exit_code if supervisor.is_stopping else 1
        if security is not None:
            files = write_client_files(security, cluster.bootstrap_servers, Path(cluster.data_dir))
        cluster.pids = supervisor.pids
        cluster.output = os.environ.get(_OUTPUT, "")
        record(cluster)
        if cluster.is_temporary:
            print_warning(_TEMPORARY, label="note")
        if security is not None and security.acls is not None:
            for user, path in files.items():
                print_warning(f"{user or 'clients'}: --command-config {path}", label="note")
        pids = ",".join(f"{name}:{pid}" for name, pid in cluster.pids.items())
        more = "".join(f" {name}={url}" for name, url in cluster.services.items())
        print(f"ready {cluster.bootstrap_servers} zk={cluster.zookeeper_connect} pids={pids}{more}")
        supervisor.watch()
        return supervisor.exit_code
    finally:
        supervisor.stop()


def _remove_output_file() -> None:
    """Remove the file of the supervisor's messages: it ends as it was asked to, and no
    command reads them afterwards."""
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
    """Run the same command in the background.

    Return when it is ready, with its line, or with what it said."""
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
        lines = Path(output).read_text(encoding="utf-8").splitlines(keepends=True)
        ready = [line for line in lines if line.startswith("ready ") and line.endswith("\n")]
        if ready:
            print_lines("".join(line for line in lines if line not in ready), end="", file=sys.stderr)
            print_lines("".join(ready), end="")
            return 0
        time.sleep(_POLL_S)
    child.terminate()
    child.wait()
    print_lines(Path(output).read_text(encoding="utf-8"), end="", file=sys.stderr)
    Path(output).unlink()
    return 1
