"""``barnabas top``: brokers, topics, groups, coordination, flows, mirrors and the slowest requests
of a cluster, in one live view.

On a terminal it shows a screen until ``q``. Elsewhere (a pipe, a file, ``TERM=dumb``) and for
``--output json`` it prints one snapshot, and ends with 0, or 3 where something is missing, which
standard error names; with ``--refresh`` the snapshot is of two readings that are so far apart, and
has rates.

In Kafka: no counterpart; `top` and k9s are the models.
"""

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import install_command
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.machine.clusters import LocalCluster, running_clusters
from barnabas.cli.machine.local_sources import metrics_addresses, serves
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option, seconds
from barnabas.cli.output.colours import print_warning
from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.cli.output.standard_streams import in_blocks
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import columns, escaped, print, print_lines

if TYPE_CHECKING:
    from barnabas.top.rates import Seen
    from barnabas.top.reader import ClusterReader
    from barnabas.top.sources import TopSources

__all__ = ["main"]

_REFRESH_S = 2.0


def main(argv: list[str]) -> int:
    """Show the screen, or print a snapshot."""
    parser = ToolParser(
        "top", "Watch a cluster: brokers, topics, groups, coordination, flows, mirrors, slowest requests."
    )
    add_connection_options(parser)
    parser.add_argument(
        "--refresh",
        type=seconds,
        metavar="S",
        help=f"read again each S seconds (default: {_REFRESH_S:g}), or less often: a reading takes at most a tenth of the time",
    )
    parser.add_argument(
        "--metrics",
        metavar="[ID=]HOST:PORT[,...]",
        default="",
        help="the pages of brokers' metrics, with their ids, and of flows' dashboards (those of barnabas up here are found)",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...]",
        default="",
        help="the coordination servers (those of barnabas up here are found)",
    )
    parser.add_argument(
        "--flow", action="append", default=[], metavar="FILE", help="a declared pipeline; may be repeated"
    )
    add_output_option(parser)
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server")
    from barnabas.top.reader import ClusterReader

    sources = _sources(given)
    with connect(given, "barnabas-top") as connection:
        reader = ClusterReader(connection, sources, Gaps, given.refresh or _REFRESH_S)
        if given.output == "json" or not _is_for_screens():
            return _print_snapshot(reader, given)
        return _show_screen(reader, given.refresh or _REFRESH_S)


def _is_for_screens() -> bool:
    """Whether a screen can be shown, and keys be read."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM", "dumb") not in ("", "dumb")


def _sources(given: Any) -> "TopSources":
    from barnabas.coordination.client import ConnectString
    from barnabas.top.sources import PageAddress, TopSources, page_addresses

    pages = {place.address: place for place in page_addresses(given.metrics)}
    servers = ConnectString.parse(given.zookeeper).servers if given.zookeeper else []
    for cluster in running_clusters():
        if serves(cluster, given.bootstrap_server):
            for broker_id, address in metrics_addresses(cluster).items():
                pages.setdefault(address, PageAddress(address, broker_id))
            servers = servers or _coordination_of(cluster)
    return TopSources(list(pages.values()), servers, given.flow)


def _coordination_of(cluster: LocalCluster) -> "list[tuple[str, int]]":
    from barnabas.coordination.client import ConnectString

    return list(ConnectString.parse(cluster.zookeeper_connect).servers)


def _print_snapshot(reader: "ClusterReader", given: Any) -> int:
    from barnabas.top.document import document_of
    from barnabas.top.rates import Seen, rates_between

    before = None
    if given.refresh:
        before = reader.read()
        time.sleep(given.refresh)
    now = reader.read()
    seen = Seen(now, rates_between(before, now))
    if given.output == "json":
        print_json(document_of(seen))
    else:
        with in_blocks():
            _print_text(seen)
    sys.stdout.flush()
    for gap in now.gaps:
        print_warning(gap, label="Incomplete")
    return INCOMPLETE if now.gaps else 0


def _print_text(seen: "Seen") -> None:
    from barnabas.top.views import VIEWS

    print(f"cluster {seen.snapshot.cluster_id}")
    for view in VIEWS.values():
        table = view.table(seen)
        print(f"\n{view.title}:")
        if table.rows:
            titles = [column.title for column in table.columns]
            print_lines(aligned(titles, [[cell.text for cell in row.cells] for row in table.rows]))
        if table.note:
            print(table.note)


def _show_screen(reader: "ClusterReader", refresh_s: float) -> int:
    try:
        from barnabas.top.screen import run_screen
    except ImportError as error:
        if not (error.name or "").startswith(("textual", "rich")):
            raise
        raise BarnabasError(
            f"the live view needs the library textual: {install_command('console')}; without it, --output json and pipes get snapshots"
        ) from None
    return run_screen(reader, refresh_s, escaped, columns)
