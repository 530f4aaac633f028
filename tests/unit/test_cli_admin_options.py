"""Options of the tools of a replicated cluster: what they refuse before anything is sent."""

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.cli.cluster import broker_api_versions, cluster
from barnabas.cli.replicas import leader_election, log_dirs, reassign_partitions, replica_verification
from barnabas.cli.topics import delete_records

BROKER = ["--bootstrap-server", "localhost:1"]
PLAN = ["--reassignment-json-file", "plan.json"]
PREFERRED = [*BROKER, "--election-type", "preferred"]


@pytest.mark.parametrize(
    ("tool", "argv", "message"),
    [
        (reassign_partitions, [*BROKER], "exactly one action: --generate, --execute, --verify, --cancel, --list"),
        (reassign_partitions, [*BROKER, "--list", "--verify", *PLAN], "exactly one action"),
        (reassign_partitions, ["--list"], "Please specify --bootstrap-server"),
        (reassign_partitions, ["--list", "--zookeeper", "localhost:2181"], "--zookeeper is gone"),
        (reassign_partitions, [*BROKER, "--execute"], 'Missing required argument "[reassignment-json-file]"'),
        (reassign_partitions, [*BROKER, "--generate", "--broker-list", "0"], '"[topics-to-move-json-file]"'),
        (
            reassign_partitions,
            [*BROKER, "--verify", *PLAN, "--throttle", "5"],
            '"[throttle]" can\'t be used with action',
        ),
        (reassign_partitions, [*BROKER, "--list", "--additional"], "can't be used with action"),
        (reassign_partitions, [*BROKER, "--execute", *PLAN, "--preserve-throttles"], "can't be used with action"),
        (leader_election, [*BROKER], "Missing required option(s): election-type"),
        (leader_election, [], "Missing required option(s): bootstrap-server, election-type"),
        (leader_election, [*BROKER, "--election-type", "fair", "--all-topic-partitions"], "invalid choice: 'fair'"),
        (leader_election, [*PREFERRED], "One and only one of the following options is required"),
        (leader_election, [*PREFERRED, "--topic", "t", "--all-topic-partitions"], "One and only one"),
        (leader_election, [*PREFERRED, "--topic", "t"], "Missing required option(s): partition"),
        (leader_election, [*PREFERRED, "--all-topic-partitions", "--partition", "0"], "only allowed if topic is used"),
        (log_dirs, [*BROKER], 'Missing required argument "[describe]"'),
        (delete_records, [*BROKER], 'Missing required argument "[offset-json-file]"'),
        (replica_verification, [], 'Missing required argument "[broker-list]"'),
        (broker_api_versions, [], 'Missing required argument "[bootstrap-server]"'),
        (cluster, ["cluster-id"], 'Missing required argument "[bootstrap-server]"'),
        (cluster, ["cluster-id", "-C", "localhost:1"], "names a KRaft controller"),
        (cluster, ["unregister", *BROKER], 'Missing required argument "[id]"'),
        (cluster, ["cluster-id", *BROKER, "--id", "1"], "--id belongs to unregister"),
        (cluster, ["cluster-id", *BROKER, "--include-fenced-brokers"], "belongs to list-endpoints"),
        (cluster, ["destroy", *BROKER], "invalid choice: 'destroy'"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tool: object, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and a line that says why."""
    with pytest.raises(SystemExit) as stop:
        tool.main(argv)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tool", "argv", "message"),
    [
        (log_dirs, ["--describe", "--broker-list", "a"], "broker ids are expected"),
        (replica_verification, ["--topics-include", "("], "not a regular expression"),
        (reassign_partitions, ["--list"], "localhost:1 refused the connection"),
        (leader_election, ["--election-type", "UNCLEAN", "--all-topic-partitions"], "refused the connection"),
    ],
)
def test_a_value_that_cannot_be_used_and_a_broker_that_is_not_there_are_named(
    tool: object, argv: list[str], message: str
) -> None:
    """An error of one line; types of election are taken in either case, as by Kafka's tool."""
    with pytest.raises(BarnabasError, match=message):
        tool.main([*BROKER, *argv])
