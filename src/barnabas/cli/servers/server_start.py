"""``barnabas server-start``: a broker from a server.properties, until SIGTERM or Ctrl-C."""

import asyncio
import gc
import logging
import signal
import sys

from barnabas.broker.configuration.kraft import refuse_kraft
from barnabas.cli.connection.properties import key_values
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.authorizer_log import AUDIT_LOG_FORMATS, keep_audit_lines, write_audit_lines_to
from barnabas.cli.output.repeated_lines import AT_BROKERS, RepeatedLines
from barnabas.cli.output.standard_streams import outlive_output
from barnabas.cli.servers.faults import faults_of_cluster
from barnabas.cli.servers.server_options import add_server_options, log_at, new_server_loop, server_properties_file
from barnabas.net.descriptors import check_descriptor_limit, raise_descriptor_limit
from barnabas.net.event_loop import budget_of, count_after_start, count_pauses, limit_pauses

__all__ = ["main"]

logger = logging.getLogger(__name__)

_SWITCH_S = 0.0002
"""How long a thread that syncs, compacts or copies may keep the event loop waiting for the
interpreter (else 5 ms).

A request gives the interpreter up at each call of the system, so it waits for it several times."""


def main(argv: list[str]) -> int:
    """Run until a signal; 0 after a clean stop, 1 when the broker cannot start, or has to stop."""
    given = _parser().parse_args(argv)
    outlive_output()
    log_at(given.log_level)
    keep_audit_lines()
    if given.authorizer_log is not None:
        write_audit_lines_to(given.authorizer_log, given.authorizer_log_format)
    texts = _settings(given.properties, given.override)
    sys.setswitchinterval(_SWITCH_S)
    check_descriptor_limit(raise_descriptor_limit())
    limit_pauses()
    # Imported here: after the errors above, which then cost no import, and before the event loop
    # runs, which it would hold.
    import barnabas.broker.server  # noqa: F401

    gc.freeze()  # what was imported lives long
    with RepeatedLines(AT_BROKERS):
        return asyncio.Runner(loop_factory=_new_loop).run(_serve(texts))


def _parser() -> ToolParser:
    parser = ToolParser("server-start", "Start a broker from a properties file and stay until Ctrl-C.")
    parser.add_argument("properties", metavar="server.properties", help="the broker's properties file")
    add_server_options(parser)
    parser.add_argument(
        "--authorizer-log",
        metavar="FILE",
        help="write what is denied, and what administrators do, to this file instead of the log",
    )
    parser.add_argument(
        "--authorizer-log-format",
        default=AUDIT_LOG_FORMATS[0],
        choices=AUDIT_LOG_FORMATS,
        help="lines of text as Kafka writes them, or of JSON, in the file of --authorizer-log (default text)",
    )
    return parser


def _settings(path: str, overrides: list[str]) -> dict[str, str]:
    texts = server_properties_file(path)
    texts |= key_values(overrides, "--override")
    refuse_kraft(path, texts)
    return texts


def _new_loop() -> asyncio.AbstractEventLoop:
    loop = new_server_loop()
    count_pauses(loop)
    return loop


async def _serve(texts: dict[str, str]) -> int:
    loop = asyncio.get_running_loop()
    begin_counting = count_after_start(loop)
    from barnabas.broker.server import BrokerServer

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    faults = faults_of_cluster(lambda: texts.get("broker.id", ""))
    server = (
        BrokerServer(texts) if faults is None else BrokerServer(texts, **faults.parts, needed_acls=faults.needed_acls)
    )
    starting = loop.create_task(server.start())
    stopping = loop.create_task(stop.wait())
    failing = loop.create_task(server.failed.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return 0
        starting.result()
        if faults is not None:
            faults.watch(server)
        begin_counting()
        gc.freeze()  # what a start loads lives long
        await asyncio.wait({stopping, failing}, return_when=asyncio.FIRST_COMPLETED)
        await server.close()
        budget = budget_of(loop)
        if budget is not None and (budget.slow_count or budget.gc_count):
            logger.info("%s", budget.summary())
        return 1 if server.failed.is_set() else 0
    finally:
        for task in (stopping, failing):
            task.cancel()
