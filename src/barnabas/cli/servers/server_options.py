"""What the commands have in common that start a server from a properties file: its options, its
log, and how its files are read.

In Kafka: kafka-server-start, and Confluent's commands after it.
"""

import asyncio
import logging
import os

from barnabas.base.errors import BarnabasError
from barnabas.cli.connection.properties import read_properties_file
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.log_lines import log_to_standard_error
from barnabas.net.event_loop import new_event_loop

__all__ = ["add_server_options", "log_at", "new_server_loop", "server_properties_file"]

logger = logging.getLogger(__name__)

_FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"


def add_server_options(parser: ToolParser) -> None:
    """Add ``--override`` and ``--log-level``."""
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property that takes the place of the file's; may be repeated",
    )
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"), help="what to log (default info)"
    )


def log_at(level: str) -> None:
    """Log to standard error, in Kafka's form, from the level of ``--log-level`` on."""
    log_to_standard_error(level.upper(), _FORMAT, "%Y-%m-%d %H:%M:%S")


def server_properties_file(path: str) -> dict[str, str]:
    """The properties of a server's file. Raises `BarnabasError`."""
    try:
        return read_properties_file(path, logger.warning)
    except OSError as error:
        raise BarnabasError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BarnabasError(f"{path} is not a properties file: {error}") from error


def new_server_loop() -> asyncio.AbstractEventLoop:
    """The event loop of a server: uvloop's, unless ``BARNABAS_LOOP=asyncio`` is set."""
    return new_event_loop(use_uvloop=os.environ.get("BARNABAS_LOOP") != "asyncio")
