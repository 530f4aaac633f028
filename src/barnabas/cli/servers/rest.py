"""``barnabas rest``: a REST proxy before a cluster, until SIGTERM or Ctrl-C.

The file is Confluent's kafka-rest.properties. In Confluent's proxy: kafka-rest-start.
"""

import asyncio
import gc
from collections.abc import Mapping

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import install_command
from barnabas.cli.connection.properties import key_values
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.repeated_lines import AT_BROKERS, RepeatedLines
from barnabas.cli.output.standard_streams import outlive_output
from barnabas.cli.servers.server_options import add_server_options, log_at, new_server_loop, server_properties_file
from barnabas.cli.servers.signals import start_unless_stopped, stop_event
from barnabas.cli.servers.web_server_options import add_web_server_options, web_server_properties
from barnabas.net.descriptors import raise_descriptor_limit

__all__ = ["main"]

_FILE, _SERVERS = "kafka-rest.properties", "bootstrap.servers"
_REGISTRY = "schema.registry.url"


def main(argv: list[str]) -> int:
    """Run until a signal; 0 after a clean stop, 1 when it cannot start."""
    parser = _parser()
    given = parser.parse_args(argv)
    outlive_output()
    log_at(given.log_level)
    texts = web_server_properties(parser, given, file=_FILE, servers=_SERVERS, of_client="client.")
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
        return asyncio.Runner(loop_factory=new_server_loop).run(_serve(texts))


def _parser() -> ToolParser:
    parser = ToolParser("rest", "Start a REST proxy, which speaks Confluent's REST API, until Ctrl-C.")
    add_web_server_options(parser, what="proxy", file=_FILE, servers=_SERVERS)
    parser.add_argument(
        "--registry", metavar="URL", help="the schema registry, in place of the file's schema.registry.url"
    )
    add_server_options(parser)
    return parser


async def _serve(texts: Mapping[str, str]) -> int:
    from barnabas.rest.server import RestServer

    stop = stop_event()
    server = RestServer(texts, server_properties_file)
    if not await start_unless_stopped(server.start(), stop):
        return 0
    gc.freeze()  # what a start loads lives long
    await stop.wait()
    await server.close()
    return 0
