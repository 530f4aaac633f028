"""``barnabas log-dirs``: which replicas lie in brokers' log dirs, with the options and JSON
of Kafka's LogDirsCommand."""

from typing import Any

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.numbers import whole_number
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.options.json_files import compact
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print, print_document
from barnabas.client.admin.log_dirs import LogDirContents, describe_log_dirs
from barnabas.client.cluster.each_broker import ask_each, reached
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Ask the brokers and print one line of JSON after two lines about the request.

    ``--output json``: JSON alone."""
    parser = ToolParser("log-dirs", "Show the replicas in brokers' log dirs, with their sizes.")
    add_connection_options(parser)
    add = parser.add_argument
    add("--describe", action="store_true", help="describe the log dirs of the brokers (required)")
    add("--broker-list", default="", metavar="0,1,2", help="the brokers to ask (default: all)")
    add("--topic-list", default="", metavar="TOPIC,...", help="only the replicas of these topics (default: all)")
    add_output_option(parser)
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server", "describe")
    topics = set(filter(None, given.topic_list.split(",")))
    wanted = _brokers(given.broker_list)
    with connect(given, "barnabas-log-dirs") as connection:
        there = [broker.id for broker in connection.describe_cluster().brokers]
        missing = [broker for broker in wanted if broker not in there]
        if missing:
            raise BarnabasError(
                f"The given brokers do not exist from --broker-list: {_ids(missing)}. "
                f"Current existent brokers: {_ids(there)}"
            )
        asked = wanted or there
        if given.output == "text":
            print("Querying brokers for log directories information")
        found = reached(ask_each(connection, asked, describe_log_dirs, is_last=True))
        gaps = Gaps(connection)
    # Names stand in the order in which Kafka's tool happens to write them, for
    # scripts that look at the text.
    document: dict[str, Any] = {
        "brokers": [
            {"broker": broker, "logDirs": [_as_json(log_dir, topics) for log_dir in dirs]}
            for broker, dirs in found.items()
        ],
        "version": 1,
    }
    if gaps.lines:
        document["errors"] = gaps.lines
    if given.output == "json":
        print_json(document)
    else:
        print(f"Received log directory information from brokers {_ids(list(found))}")
        print_document(compact(document))
    return gaps.report()


def _brokers(text: str) -> list[int]:
    try:
        return sorted({whole_number(part) for part in text.split(",") if part})
    except ValueError:
        raise ConfigError(f"--broker-list {text}: broker ids are expected, such as 0,1,2") from None


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers))


def _as_json(log_dir: LogDirContents, topics: set[str]) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": str(partition),
                "size": stored.size_bytes,
                "offsetLag": stored.offset_lag,
                "isFuture": stored.is_future,
            }
            for partition, stored in sorted(log_dir.replicas.items())
            if not topics or partition.topic in topics
        ],
        "error": _exception(log_dir.error),
        "logDir": log_dir.path,
    }


def _exception(code: ErrorCode) -> str | None:
    """The Java exception's name, which is what Kafka's tool shows of an error and
    scripts look for."""
    if code is ErrorCode.NONE:
        return None
    name = code.name.removesuffix("_ERROR").removesuffix("_EXCEPTION").title().replace("_", "")
    return f"org.apache.kafka.common.errors.{name}Exception"
