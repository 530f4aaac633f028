"""``barnabas rest``: a REST proxy before a cluster, until SIGTERM or Ctrl-C.

The file is Confluent's kafka-rest.properties. In Confluent's proxy: kafka-rest-start.
"""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Mapping

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import install_command
from barnabas.cli.connection.properties import key_values, properties_file, read_properties_file
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.log_lines import log_to_standard_error
from barnabas.cli.output.repeated_lines import AT_BROKERS, RepeatedLines
from barnabas.cli.output.standard_streams import outlive_output
from barnabas.net.descriptors import raise_descriptor_limit
from barnabas.net.event_loop import new_event_loop

__all__ = ["main"]

logger = logging.getLogger(__name__)

_FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"
_SERVERS, _LISTENERS, _REGISTRY = "bootstrap.servers", "listeners", "schema.registry.url"


def main(argv: list[str]) -> int:
    """Run until a signal; 0 after a clean stop, 1 when it cannot start."""
    parser = _parser()
    given = parser.parse_args(argv)
    outlive_output()
    log_to_standard_error(given.log_level.upper(), _FORMAT, "%Y-%m-%d %H:%M:%S")
    if given.properties is None and given.servers is None:
        parser.error("one of kafka-rest.properties and --bootstrap-server is needed")
    texts = {} if given.properties is None else _file(given.properties)
    if given.command_config is not None:
        texts |= {f"client.{name}": text for name, text in properties_file(given.command_config).items()}
    if given.servers is not None:
        texts[_SERVERS] = given.servers
    if given.port is not None:
        texts[_LISTENERS] = f"http://127.0.0.1:{given.port}"
    if given.registry is not None:
        texts[_REGISTRY] = given.registry
    texts |= key_values(given.override, "--override")
    raise_descriptor_limit()
    try:
        import barnabas.rest.server  # noqa: F401  # before the event loop runs, which it would hold
    except ModuleNotFoundError as error:
        raise BarnabasError(f"the REST proxy needs {error.name}: {install_command('registry')}") from None
    gc.freeze()  # what was imported lives long
    with RepeatedLines(AT_BROKERS):
        return asyncio.Runner(loop_factory=_new_loop).run(_serve(texts))


def _new_loop() -> asyncio.AbstractEventLoop:
    return new_event_loop(use_uvloop=os.environ.get("BARNABAS_LOOP") != "asyncio")


def _parser() -> ToolParser:
    parser = ToolParser("rest", "Start a REST proxy, which speaks Confluent's REST API, until Ctrl-C.")
    parser.add_argument(
        "properties", metavar="kafka-rest.properties", nargs="?", help="the proxy's properties file, as Confluent's"
    )
    parser.add_argument(
        "--bootstrap-server",
        dest="servers",
        metavar="HOST:PORT",
        help="the brokers, in place of the file's bootstrap.servers",
    )
    parser.add_argument(
        "--command-config", metavar="FILE", help="properties with which the proxy connects to the brokers"
    )
    parser.add_argument(
        "--port", type=int, help="listen for http on this port of 127.0.0.1, in place of the file's listeners"
    )
    parser.add_argument(
        "--registry", metavar="URL", help="the schema registry, in place of the file's schema.registry.url"
    )
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
    return parser


def _file(path: str) -> dict[str, str]:
    try:
        return read_properties_file(path, logger.warning)
    except OSError as error:
        raise BarnabasError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BarnabasError(f"{path} is not a properties file: {error}") from error


async def _serve(texts: Mapping[str, str]) -> int:
    from barnabas.rest.server import RestServer

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = RestServer(texts, _file)
    await server.start()
    gc.freeze()  # what a start loads lives long
    await stop.wait()
    await server.close()
    return 0
