"""``barnabas rest``: a REST proxy before a cluster, until SIGTERM or Ctrl-C.

The file is Confluent's kafka-rest.properties. In Confluent's proxy: kafka-rest-start.
"""

import gc
from collections.abc import Mapping

from barnabas.cli.connection.properties import key_values
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.standard_streams import outlive_output
from barnabas.cli.servers.server_options import add_server_options, log_at, server_properties_file
from barnabas.cli.servers.signals import start_unless_stopped, stop_event
from barnabas.cli.servers.web_server_options import add_web_server_options, run_web_server, web_server_properties

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
    return run_web_server(_load, lambda: _serve(texts), what="REST proxy")


def _load() -> None:
    import barnabas.rest.server  # noqa: F401


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
