"""``barnabas delete-records``: let partitions begin at a later offset, with the options of
Kafka's DeleteRecordsCommand.

The file: ``{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}``; an
offset of -1 stands for the high watermark. A partition's refusal is a line of its own and, as with
Kafka's tool, no failure of the command.
"""

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.options.json_files import duplicates, integer, items, read_document, topic_partition
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.client.admin.offsets import delete_records
from barnabas.client.errors import ClientError, RefusedError

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Delete, and print each partition's low watermark: the least offset with which
    any of its replicas begins."""
    parser = ToolParser("delete-records", "Delete the records of partitions before given offsets.")
    add_connection_options(parser)
    parser.add_argument(
        "--offset-json-file",
        metavar="FILE",
        help='the offsets, as {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}; '
        "-1 is the high watermark",
    )
    add_output_option(parser)
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server", "offset-json-file")
    wanted = read_offset_file(given.offset_json_file)
    with connect(given, "barnabas-delete-records") as connection:
        if given.output == "text":
            print("Executing records delete operation")
        outcomes = delete_records(connection, wanted)
        gaps = Gaps(connection)
    if given.output == "json":
        print_json([_as_json(partition, outcome) for partition, outcome in outcomes.items()])
        return gaps.report()
    print("Records delete operation completed:")
    for partition, outcome in outcomes.items():
        if isinstance(outcome, RefusedError):
            print(f"partition: {partition}", f"error: {outcome.message} ({outcome.code.name})", sep="\t")
        elif isinstance(outcome, ClientError):
            print(f"partition: {partition}", f"error: {outcome}", sep="\t")
        else:
            print(f"partition: {partition}", f"low_watermark: {outcome}", sep="\t")
    return gaps.report()


def read_offset_file(path: str) -> dict[TopicPartition, int]:
    """The file's offsets by partition.

    Raises `ConfigError` for a file that is wrong or names a partition twice."""
    document = read_document(path)
    if "partitions" not in document:
        raise ConfigError(f"{path}: Missing partitions field")
    entries = [(topic_partition(item), integer(item, "offset")) for item in items(document, "partitions")]
    twice = duplicates(partition for partition, _ in entries)
    if twice:
        raise ConfigError(f"Offset json file contains duplicate topic partitions: {','.join(map(str, twice))}")
    return dict(entries)


def _as_json(topic_partition: TopicPartition, outcome: int | ClientError) -> dict[str, object]:
    result: dict[str, object] = {"topic": topic_partition.topic, "partition": topic_partition.partition}
    if isinstance(outcome, RefusedError):
        return {**result, "low_watermark": None, "error": outcome.code.name, "message": outcome.message}
    if isinstance(outcome, ClientError):
        return {**result, "low_watermark": None, "error": outcome.name, "message": str(outcome)}
    return {**result, "low_watermark": outcome, "error": None}
