"""``barnabas leader-election``: elect leaders on demand, with the options of Kafka's
LeaderElectionCommand."""

import argparse
from collections.abc import Mapping
from operator import itemgetter

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.connect import connect
from barnabas.cli.options.json_files import duplicates, items, read_document, topic_partition
from barnabas.cli.options.tool_parser import (
    ToolParser,
    add_connection_options,
    add_output_option,
    where_to_name_brokers,
)
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.client.admin.elections import ElectionType, elect_leaders
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["main"]

_SCOPES = ("topic", "all-topic-partitions", "path-to-json-file")
_API_TIMEOUT_MS = 30_000


def main(argv: list[str]) -> int:
    """Elect, and print for each kind of outcome its partitions.

    1 when any partition could not get its leader."""
    parser = _parser()
    given = parser.parse_args(argv)
    _check(parser, given)
    election = ElectionType[given.election_type.upper()]
    partitions = _partitions(given)
    with connect(given, "barnabas-leader-election") as connection:
        connection.api_timeout_ms = min(connection.api_timeout_ms, _API_TIMEOUT_MS)
        connection.request_timeout_ms = min(connection.request_timeout_ms, _API_TIMEOUT_MS // 2)
        try:
            outcomes = dict(sorted(elect_leaders(connection, election, partitions).items(), key=itemgetter(0)))
        except KafkaError as error:
            if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise BarnabasError("Not authorized to perform leader election") from error
            raise
    if given.output == "json":
        print_json([_as_json(partition, error) for partition, error in outcomes.items()])
    else:
        _report(election, outcomes)
    failed = sum(error is not None and not _is_needless(error) for error in outcomes.values())
    if failed:
        raise BarnabasError(f"{failed} replica(s) could not be elected")
    return 0


def _report(election: ElectionType, outcomes: Mapping[TopicPartition, KafkaError | None]) -> None:
    elected = [str(partition) for partition, error in outcomes.items() if error is None]
    needless = [str(partition) for partition, error in outcomes.items() if _is_needless(error)]
    if elected:
        print(f"Successfully completed leader election ({election.name}) for partitions {', '.join(elected)}")
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(needless)}")
    for partition, error in outcomes.items():
        if error is not None and not _is_needless(error):
            print(
                f"Error completing leader election ({election.name}) for partition: {partition}: "
                f"{error.message} ({error.code.name})"
            )


def _is_needless(error: KafkaError | None) -> bool:
    return error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED


def _as_json(topic_partition: TopicPartition, error: KafkaError | None) -> dict[str, object]:
    return {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "elected": error is None,
        "error": None if error is None else error.code.name,
        "message": None if error is None else error.message,
    }


def _partitions(given: argparse.Namespace) -> list[TopicPartition] | None:
    if given.all_topic_partitions:
        return None
    if given.topic is not None:
        return [TopicPartition(given.topic, given.partition)]
    document = read_document(given.path_to_json_file)
    if "partitions" not in document:
        raise ConfigError('Replica election data is missing "partitions" field')
    partitions = [topic_partition(item) for item in items(document, "partitions")]
    twice = duplicates(partitions)
    if twice:
        raise ConfigError(f"Replica election data contains duplicate partitions: {','.join(map(str, twice))}")
    return partitions


def _check(parser: ToolParser, given: argparse.Namespace) -> None:
    missing = [option for option in ("bootstrap-server", "election-type") if not parser.has(given, option)]
    if missing:
        parser.error(f"Missing required option(s): {', '.join(missing)}{where_to_name_brokers(*missing)}")
    if sum(parser.has(given, option) for option in _SCOPES) != 1:
        parser.error(f"One and only one of the following options is required: {', '.join(_SCOPES)}")
    if given.topic is not None and given.partition is None:
        parser.error("Missing required option(s): partition")
    if given.topic is None and given.partition is not None:
        parser.error("Option partition is only allowed if topic is used")


def _parser() -> ToolParser:
    parser = ToolParser("leader-election", "Elect leaders of partitions: the preferred ones, or any left.")
    add = parser.add_argument
    add_connection_options(parser)
    add("--admin.config", dest="command_config", metavar="FILE", help="the same as --command-config")
    add(
        "--election-type",
        type=str.lower,
        choices=[election.name.lower() for election in ElectionType],
        help="preferred: the first replica, where another leads; unclean: any live replica, where none in sync is left, "
        "at the price of acknowledged records",
    )
    add("--topic", metavar="NAME", help="the topic of the partition to elect a leader for")
    add("--partition", type=int, metavar="N", help="the partition, with --topic")
    add("--all-topic-partitions", action="store_true", help="every partition that needs the election")
    add(
        "--path-to-json-file",
        metavar="FILE",
        help='the partitions, as {"partitions": [{"topic": "foo", "partition": 1}]}',
    )
    add_output_option(parser)
    return parser
