"""``barnabas zookeeper-status HOSTS``: the servers of a coordination service at a glance.

The lag is the number of transactions that a server is behind the most advanced one. 0 when all
serve, 1 when one does not, or none is reached, or there are two leaders, 3 when one is not
reached while the others serve.
"""

from collections.abc import Mapping, Sequence

from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.options.tool_parser import ToolParser, add_connect_timeout, add_output_option
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import print_lines
from barnabas.client.network.deadline import Deadline
from barnabas.client.network.server_status import ServingState, statuses_of, zxid_lags
from barnabas.coordination.client import ConnectString

__all__ = ["main"]

_COLUMNS = (
    "server",
    "role",
    "zxid",
    "lag",
    "sessions",
    "connections",
    "outstanding",
    "latency_avg_max_ms",
    "nodes",
    "version",
)


def main(argv: list[str]) -> int:
    """Print a line for each server."""
    parser = ToolParser("zookeeper-status", "Show role, zxid, lag, sessions and latency of coordination servers.")
    parser.add_argument("servers", metavar="HOST:PORT[,...]", help="the servers, as in zookeeper.connect")
    add_connect_timeout(parser)
    add_output_option(parser)
    arguments = parser.parse_args(argv)
    servers = ConnectString.parse(arguments.servers).servers
    found = statuses_of(servers, Deadline(arguments.connect_timeout))
    rows = [
        {name: lag if name == "lag" else getattr(status, name) for name in _COLUMNS}
        for status, lag in zip(found, zxid_lags(found), strict=True)
    ]
    if arguments.output == "json":
        print_json({"servers": rows})
    else:
        print_lines(aligned([name.upper() for name in _COLUMNS], [_row(row) for row in rows]))
    leaders = sum(each.role == "leader" for each in found)
    reached = [each for each in found if each.state is not ServingState.UNREACHABLE]
    if not reached or leaders > 1 or any(each.zxid is None for each in reached):
        return 1
    gaps = Gaps()
    for each in found:
        if each not in reached:
            gaps.add(f"{each.server}: {each.role}")
    return gaps.report()


def _row(status: Mapping[str, object]) -> Sequence[object]:
    return ["-" if status[name] is None else status[name] for name in _COLUMNS]
