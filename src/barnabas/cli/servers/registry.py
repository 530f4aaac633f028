"""``barnabas registry``: an instance of the schema registry, until SIGTERM or Ctrl-C.

The file is Confluent's schema-registry.properties. In Confluent's registry: schema-registry-start.
"""

import asyncio
import gc
from collections.abc import Mapping

from barnabas.cli.connection.properties import key_values
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.standard_streams import outlive_output
from barnabas.cli.servers.server_options import add_server_options, log_at, server_properties_file
from barnabas.cli.servers.signals import start_unless_stopped, stop_event
from barnabas.cli.servers.web_server_options import add_web_server_options, run_web_server, web_server_properties

__all__ = ["main"]

_FILE, _SERVERS = "schema-registry.properties", "kafkastore.bootstrap.servers"


def main(argv: list[str]) -> int:
    """Run until a signal; 0 after a clean stop, 1 when it cannot start, or has to stop."""
    parser = _parser()
    given = parser.parse_args(argv)
    outlive_output()
    log_at(given.log_level)
    texts = web_server_properties(parser, given, file=_FILE, servers=_SERVERS, of_client="kafkastore.")
    texts |= key_values(given.override, "--override")
    return run_web_server(_load, lambda: _serve(texts), what="schema registry")


def _load() -> None:
    import barnabas.registry.server  # noqa: F401


def _parser() -> ToolParser:
    parser = ToolParser("registry", "Start a schema registry, which speaks Confluent's REST API, until Ctrl-C.")
    add_web_server_options(parser, what="registry", file=_FILE, servers=_SERVERS)
    add_server_options(parser)
    return parser


async def _serve(texts: Mapping[str, str]) -> int:
    from barnabas.registry.server import RegistryServer

    stop = stop_event()
    server = RegistryServer(texts, server_properties_file)
    if not await start_unless_stopped(server.start(), stop):
        return 0
    gc.freeze()  # what a start loads lives long
    loop = asyncio.get_running_loop()
    stopping, failing = loop.create_task(stop.wait()), loop.create_task(server.wait_failed())
    await asyncio.wait({stopping, failing}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    failing.cancel()
    await server.close()
    return 1 if server.has_failed else 0
