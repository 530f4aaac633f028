"""``barnabas zookeeper-server-start zoo.cfg [--override key=value]``: run a coordination server."""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.files import OsFiles
from barnabas.base.settings import Values
from barnabas.cli.machine.server_names import coordination_name
from barnabas.cli.options.helpful_parser import HelpfulParser
from barnabas.cli.output.colours import print_error
from barnabas.cli.output.log_lines import LogFormatter, log_to_standard_error
from barnabas.cli.output.repeated_lines import AT_COORDINATION_SERVERS, RepeatedLines
from barnabas.cli.output.standard_streams import outlive_output
from barnabas.cli.servers.faults import faults_of_cluster
from barnabas.coordination.admin.server import AdminServer
from barnabas.coordination.quorum.configuration_files import read_zoo_cfg
from barnabas.coordination.server.peer_config import PeerConfig, configuration_warnings, read_peer_config
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import ineffective_lines, parse_settings
from barnabas.net.descriptors import raise_descriptor_limit
from barnabas.net.event_loop import count_after_start, count_pauses, limit_pauses, new_event_loop

__all__ = ["main"]

logger = logging.getLogger(__name__)
_LOG_FORMAT = "[%(asctime)s] {}%(levelname)s %(message)s (%(name)s)"
_INVALID_INVOCATION = 2  # as ZooKeeper's ExitCode


def main(argv: list[str]) -> int:
    """Run until SIGINT or SIGTERM.

    0 after a clean stop, 2 for a configuration and 1 for a disk that cannot be used."""
    arguments = _parser().parse_args(argv)
    outlive_output()
    log_to_standard_error(logging.INFO, _LOG_FORMAT.format(""))
    try:
        settings, peer_config = _settings(arguments.config, arguments.override)
    except BarnabasError as error:
        return _refused(error, _INVALID_INVOCATION)
    try:
        raise_descriptor_limit()
        return _run(settings, peer_config, os.path.realpath(arguments.config))
    except BarnabasError as error:
        return _refused(error, 1)


def _refused(error: BarnabasError, status: int) -> int:
    print_error(f"zookeeper-server-start: {error}")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = HelpfulParser(
        prog="barnabas zookeeper-server-start",
        description="Run a coordination server that speaks Apache ZooKeeper's protocol.",
    )
    parser.add_argument("config", metavar="zoo.cfg", help="settings as ZooKeeper's zoo.cfg names them")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="key=value",
        help="a setting that replaces the one in the file",
    )
    return parser


def _settings(path: str, overrides: list[str]) -> tuple[Values, PeerConfig]:
    given: dict[str, str] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"--override {override}: key=value is expected")
        given[name.strip()] = text
    logger.info("Reading configuration from: %s", path)
    files = OsFiles()
    settings = parse_settings(read_zoo_cfg(files.read, path, given, logger.warning))
    config = read_peer_config(settings, files)
    if config.my_id is not None:
        _log_with_id(config.my_id)
    for line in (*ineffective_lines(settings), *configuration_warnings(settings, config)):
        logger.warning("%s", line)
    return settings, config


def _log_with_id(my_id: int) -> None:
    """Each line names its server from now on, as the lines of Apache's servers do: logs of
    several are read together."""
    formatter = LogFormatter(_LOG_FORMAT.format(f"[myid:{my_id}] "))
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)


def _run(settings: Values, peer_config: PeerConfig, path: str) -> int:
    limit_pauses()
    gc.freeze()  # what was imported lives long
    with RepeatedLines(AT_COORDINATION_SERVERS):
        return asyncio.Runner(loop_factory=_new_loop).run(_serve(settings, peer_config, path))


def _new_loop() -> asyncio.AbstractEventLoop:
    loop = new_event_loop()
    count_pauses(loop)
    return loop


async def _serve(settings: Values, peer_config: PeerConfig, path: str) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    begin_counting = count_after_start(loop)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    faults = faults_of_cluster(lambda: coordination_name(path))
    parts = {} if faults is None else faults.parts
    server = CoordinationServer(settings, config_path=path, peer_config=peer_config, **parts)
    await server.start()
    admin = AdminServer(settings, server)
    try:
        await admin.start()
    except BaseException:
        await server.close()
        raise
    begin_counting()
    gc.freeze()  # the tree's nodes have no cycles: walking them again and again would find nothing
    stopped = asyncio.create_task(stop.wait())
    failed = asyncio.create_task(server.wait_failed())
    try:
        await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
    finally:
        for task in (stopped, failed):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, BarnabasError):
                await task
        await admin.close()
        await server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
