"""What the commands of the schema registry and of the REST proxy have in common: Confluent's
properties file, or options in its place, and how their servers run.
"""

import argparse
import asyncio
import gc
from collections.abc import Callable, Coroutine

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import install_command
from barnabas.cli.connection.properties import properties_file
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.repeated_lines import AT_BROKERS, RepeatedLines
from barnabas.cli.servers.server_options import new_server_loop, server_properties_file
from barnabas.net.descriptors import raise_descriptor_limit

__all__ = ["add_web_server_options", "run_web_server", "web_server_properties"]

_LISTENERS = "listeners"


def add_web_server_options(parser: ToolParser, *, what: str, file: str, servers: str) -> None:
    """Add the properties file, and options for its brokers and its port.

    ``what`` is the server, such as "registry"; ``servers`` is the property with its brokers."""
    parser.add_argument("properties", metavar=file, nargs="?", help=f"the {what}'s properties file, as Confluent's")
    parser.add_argument(
        "--bootstrap-server", dest="servers", metavar="HOST:PORT", help=f"the brokers, in place of the file's {servers}"
    )
    parser.add_argument(
        "--command-config", metavar="FILE", help=f"properties with which the {what} connects to the brokers"
    )
    parser.add_argument(
        "--port", type=int, help="listen for http on this port of 127.0.0.1, in place of the file's listeners"
    )


def web_server_properties(
    parser: ToolParser, given: argparse.Namespace, *, file: str, servers: str, of_client: str
) -> dict[str, str]:
    """What the file and these options say. Those of ``--command-config`` begin with ``of_client``.

    Raises `BarnabasError`; exits where there are no brokers."""
    if given.properties is None and given.servers is None:
        parser.error(f"one of {file} and --bootstrap-server is needed")
    texts = {} if given.properties is None else server_properties_file(given.properties)
    if given.command_config is not None:
        texts |= {f"{of_client}{name}": text for name, text in properties_file(given.command_config).items()}
    if given.servers is not None:
        texts[servers] = given.servers
    if given.port is not None:
        texts[_LISTENERS] = f"http://127.0.0.1:{given.port}"
    return texts


def run_web_server(load: Callable[[], None], serve: Callable[[], Coroutine[None, None, int]], *, what: str) -> int:
    """Import a server by ``load``, and serve; returns the exit code.

    Raises `BarnabasError` where the extra is not installed. ``what`` is the server, such as "schema
    registry"."""
    raise_descriptor_limit()
    try:
        load()  # before the event loop runs, which it would hold
    except ModuleNotFoundError as error:
        raise BarnabasError(f"the {what} needs {error.name}: {install_command('registry')}") from None
    gc.freeze()  # what was imported lives long
    with RepeatedLines(AT_BROKERS):
        return asyncio.Runner(loop_factory=new_server_loop).run(serve())
