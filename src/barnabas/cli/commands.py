"""The commands of ``barnabas``: a new one is a module with
``main(argv) -> exit code``, and one entry here.

The help, the completion of shells, ``run-class``, the scripts of ``shims`` and the reference page
follow from the entry. A command's module is imported when it runs, so that each tool starts in a
fraction of a second. Nothing else in this package imports a module by a name that it computes.

In Kafka: the scripts of ``bin``, each of which gives a class such as `TopicCommand`
to ``kafka-run-class.sh``.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

__all__ = ["COMMANDS", "CommandEntry", "by_class", "by_script", "command_main"]


class CommandEntry(NamedTuple):
    """A command's module in this package, and the line that ``--help`` shows.

    ``scripts`` are the names of Apache's scripts that do the same, without ``.sh``; ``classes``
    are Kafka's or ZooKeeper's.
    """

    module: str
    help: str
    scripts: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


COMMANDS = {
    "up": CommandEntry("local.up", "start a whole cluster on this machine and stay until Ctrl-C"),
    "status": CommandEntry("local.status", "show the clusters that up runs on this machine"),
    "logs": CommandEntry("local.logs", "show the logs of such a cluster"),
    "down": CommandEntry("local.down", "stop such a cluster"),
    "zookeeper-server-start": CommandEntry(
        "servers.zookeeper_server_start",
        "start a coordination server from a zoo.cfg",
        scripts=("zookeeper-server-start",),
        classes=("org.apache.zookeeper.server.quorum.QuorumPeerMain",),
    ),
    "server-stop": CommandEntry(
        "servers.server_stop", "stop the brokers that server-start runs on this machine", scripts=("kafka-server-stop",)
    ),
    "server-start": CommandEntry(
        "servers.server_start",
        "start a broker from a server.properties",
        scripts=("kafka-server-start",),
        classes=("kafka.Kafka",),
    ),
    "registry": CommandEntry(
        "servers.registry",
        "start a schema registry that speaks Confluent's REST API",
        scripts=("schema-registry-start",),
        classes=("io.confluent.kafka.schemaregistry.rest.SchemaRegistryMain",),
    ),
    "rest": CommandEntry(
        "servers.rest",
        "start a REST proxy that speaks Confluent's REST API",
        scripts=("kafka-rest-start",),
        classes=("io.confluent.kafkarest.KafkaRestMain",),
    ),
    "lag": CommandEntry(
        "groups.lag", "show how far groups are behind, in records and in time, and in which state they are"
    ),
    "overview": CommandEntry("cluster.overview", "show a cluster at a glance: brokers, topics, groups with their lag"),
    "doctor": CommandEntry(
        "cluster.doctor", "say what is wrong with a cluster or will be, and the command that mends it"
    ),
    "top": CommandEntry(
        "cluster.top", "watch a cluster live: brokers, topics, groups, coordination, flows, mirrors, slowest requests"
    ),
    "tail": CommandEntry("console.tail", "show the last records of a topic, and those that come"),
    "cat": CommandEntry("console.cat", "copy standard input to a topic, or a topic to standard output, as kcat does"),
    "groups": CommandEntry("groups.groups", "list consumer groups, or move one to another place"),
    "topics": CommandEntry(
        "topics.topics",
        "create, list, describe, alter and delete topics",
        scripts=("kafka-topics",),
        classes=(
            "kafka.admin.TopicCommand",
            "org.apache.kafka.tools.TopicCommand",
        ),
    ),
    "console-producer": CommandEntry(
        "console.console_producer",
        "send lines from standard input to a topic",
        scripts=("kafka-console-producer",),
        classes=(
            "kafka.tools.ConsoleProducer",
            "org.apache.kafka.tools.ConsoleProducer",
        ),
    ),
    "console-consumer": CommandEntry(
        "console.console_consumer",
        "print a topic's records",
        scripts=("kafka-console-consumer",),
        classes=(
            "kafka.tools.ConsoleConsumer",
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
        ),
    ),
    "consumer-groups": CommandEntry(
        "groups.consumer_groups",
        "list, describe, reset and delete consumer groups",
        scripts=("kafka-consumer-groups",),
        classes=(
            "kafka.admin.ConsumerGroupCommand",
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        ),
    ),
    "configs": CommandEntry(
        "configs.configs",
        "describe and alter configurations of topics and brokers",
        scripts=("kafka-configs",),
        classes=("kafka.admin.ConfigCommand",),
    ),
    "acls": CommandEntry(
        "acls.acls",
        "add, list and remove access control lists",
        scripts=("kafka-acls",),
        classes=("kafka.admin.AclCommand", "org.apache.kafka.tools.AclCommand"),
    ),
    "get-offsets": CommandEntry(
        "topics.get_offsets",
        "print offsets of partitions",
        scripts=("kafka-get-offsets",),
        classes=(
            "kafka.tools.GetOffsetShell",
            "org.apache.kafka.tools.GetOffsetShell",
        ),
    ),
    "delete-records": CommandEntry(
        "topics.delete_records",
        "let partitions begin at a later offset",
        scripts=("kafka-delete-records",),
        classes=(
            "kafka.admin.DeleteRecordsCommand",
            "org.apache.kafka.tools.DeleteRecordsCommand",
        ),
    ),
    "reassign-partitions": CommandEntry(
        "replicas.reassign_partitions",
        "move replicas between brokers and log dirs",
        scripts=("kafka-reassign-partitions",),
        classes=(
            "kafka.admin.ReassignPartitionsCommand",
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        ),
    ),
    "leader-election": CommandEntry(
        "replicas.leader_election",
        "elect preferred leaders, or any where none is in sync",
        scripts=("kafka-leader-election",),
        classes=(
            "kafka.admin.LeaderElectionCommand",
            "org.apache.kafka.tools.LeaderElectionCommand",
        ),
    ),
    "log-dirs": CommandEntry(
        "replicas.log_dirs",
        "show the replicas in brokers' log dirs",
        scripts=("kafka-log-dirs",),
        classes=(
            "kafka.admin.LogDirsCommand",
            "org.apache.kafka.tools.LogDirsCommand",
        ),
    ),
    "replica-verification": CommandEntry(
        "replicas.replica_verification",
        "compare all replicas of topics, batch by batch",
        scripts=("kafka-replica-verification",),
        classes=(
            "kafka.tools.ReplicaVerificationTool",
            "org.apache.kafka.tools.ReplicaVerificationTool",
        ),
    ),
    "broker-api-versions": CommandEntry(
        "cluster.broker_api_versions",
        "show the APIs and versions that each broker offers",
        scripts=("kafka-broker-api-versions",),
        classes=("kafka.admin.BrokerApiVersionsCommand",),
    ),
    "cluster": CommandEntry(
        "cluster.cluster",
        "show the cluster's id and its brokers' addresses",
        scripts=("kafka-cluster",),
        classes=(
            "kafka.tools.ClusterTool",
            "org.apache.kafka.tools.ClusterTool",
        ),
    ),
    "transactions": CommandEntry(
        "transactions.transactions",
        "look at transactions, and end those that hang",
        scripts=("kafka-transactions",),
        classes=("org.apache.kafka.tools.TransactionsCommand",),
    ),
    "features": CommandEntry(
        "transactions.features",
        "show and change the levels of the cluster's features",
        scripts=("kafka-features",),
        classes=("org.apache.kafka.tools.FeatureCommand",),
    ),
    "producer-perf-test": CommandEntry(
        "trials.producer_perf_test",
        "measure how fast records go to a topic",
        scripts=("kafka-producer-perf-test",),
        classes=("org.apache.kafka.tools.ProducerPerformance",),
    ),
    "consumer-perf-test": CommandEntry(
        "trials.consumer_perf_test",
        "measure how fast records come from a topic",
        scripts=("kafka-consumer-perf-test",),
        classes=(
            "kafka.tools.ConsumerPerformance",
            "org.apache.kafka.tools.ConsumerPerformance",
        ),
    ),
    "e2e-latency": CommandEntry(
        "trials.e2e_latency",
        "measure how long a record takes from a producer to a consumer",
        scripts=("kafka-e2e-latency",),
        classes=(
            "kafka.tools.EndToEndLatency",
            "org.apache.kafka.tools.EndToEndLatency",
        ),
    ),
    "verifiable-producer": CommandEntry(
        "trials.verifiable_producer",
        "send numbers, and print what became of each as JSON",
        scripts=("kafka-verifiable-producer",),
        classes=("org.apache.kafka.tools.VerifiableProducer",),
    ),
    "verifiable-consumer": CommandEntry(
        "trials.verifiable_consumer",
        "read in a group, and print what happens as JSON",
        scripts=("kafka-verifiable-consumer",),
        classes=("org.apache.kafka.tools.VerifiableConsumer",),
    ),
    "transactional-message-copier": CommandEntry(
        "trials.transactional_message_copier",
        "copy a partition to another topic in transactions, and print the progress as JSON",
        classes=("org.apache.kafka.tools.TransactionalMessageCopier",),
    ),
    "dump-log": CommandEntry(
        "log_files.dump_log",
        "print the contents of log segments, indexes and snapshots",
        scripts=("kafka-dump-log",),
        classes=("kafka.tools.DumpLogSegments",),
    ),
    "lost-records": CommandEntry(
        "log_files.lost_records", "show the records that a partition's folder lacks, or step over them"
    ),
    "zookeeper-shell": CommandEntry(
        "zookeeper.shell",
        "look at and change the znode tree",
        scripts=(
            "zookeeper-shell",
            "zkCli",
        ),
        classes=(
            "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
            "org.apache.zookeeper.ZooKeeperMain",
        ),
    ),
    "zookeeper-server-stop": CommandEntry(
        "servers.zookeeper_server_stop",
        "stop the coordination servers of this machine",
        scripts=("zookeeper-server-stop",),
    ),
    "zookeeper-status": CommandEntry(
        "zookeeper.status", "show role, lag, sessions and latency of coordination servers"
    ),
    "zookeeper-dump": CommandEntry("zookeeper.dump", "print the contents of coordination snapshots and logs"),
    "mirror-maker": CommandEntry(
        "servers.mirror_maker",
        "copy topics from one cluster to another, continuously",
        scripts=("kafka-mirror-maker",),
        classes=("kafka.tools.MirrorMaker",),
    ),
    "context": CommandEntry("setup.context", "name clusters, so that commands need no --bootstrap-server"),
    "completion": CommandEntry("setup.completion", "print a script that completes commands in bash, zsh or fish"),
    "shims": CommandEntry("setup.shims", "write kafka-topics.sh and the other scripts of Apache's to a folder"),
    "run-class": CommandEntry(
        "setup.run_class", "run a command under the name of Kafka's Java class", scripts=("kafka-run-class",)
    ),
    "metrics": CommandEntry(
        "monitoring.metrics", "list the metrics of all servers, and write dashboards and alert rules from them"
    ),
    "pipeline": CommandEntry("pipelines.pipeline", "run declared streaming pipelines on Spark"),
}
"""By their names, in the order of the help."""


def command_main(name: str) -> Callable[[list[str]], int]:
    """What runs a command, from its module, which is imported now."""
    main: Callable[[list[str]], int] = import_module(f"{__package__}.{COMMANDS[name].module}").main
    return main


def by_script() -> dict[str, str]:
    """The commands that do the work of Apache's scripts, by the names of these."""
    return {script: name for name, command in COMMANDS.items() for script in command.scripts}


def by_class() -> dict[str, str]:
    """The commands that do the work of Kafka's and ZooKeeper's Java classes, by the
    names of these."""
    return {each: name for name, command in COMMANDS.items() for each in command.classes}
