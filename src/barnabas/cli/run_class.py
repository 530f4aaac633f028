"""``barnabas run-class``: commands under the names of Kafka's and ZooKeeper's Java classes, as ``kafka-run-class.sh`` has them."""

from importlib import import_module

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.cli.terminal import print

__all__ = ["CLASSES", "main"]

CLASSES = {
    "kafka.tools.MirrorMaker": "mirror-maker",
    "kafka.tools.ConsoleProducer": "console-producer",
    "org.apache.kafka.tools.ConsoleProducer": "console-producer",
    "kafka.tools.ConsoleConsumer": "console-consumer",
    "org.apache.kafka.tools.consumer.ConsoleConsumer": "console-consumer",
    "kafka.admin.TopicCommand": "topics",
    "org.apache.kafka.tools.TopicCommand": "topics",
    "kafka.admin.ConfigCommand": "configs",
    "kafka.admin.ConsumerGroupCommand": "consumer-groups",
    "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand": "consumer-groups",
    "kafka.admin.ReassignPartitionsCommand": "reassign-partitions",
    "org.apache.kafka.tools.reassign.ReassignPartitionsCommand": "reassign-partitions",
    "kafka.admin.LeaderElectionCommand": "leader-election",
    "org.apache.kafka.tools.LeaderElectionCommand": "leader-election",
    "kafka.admin.LogDirsCommand": "log-dirs",
    "org.apache.kafka.tools.LogDirsCommand": "log-dirs",
    "kafka.admin.DeleteRecordsCommand": "delete-records",
    "org.apache.kafka.tools.DeleteRecordsCommand": "delete-records",
    "kafka.admin.BrokerApiVersionsCommand": "broker-api-versions",
    "kafka.tools.GetOffsetShell": "get-offsets",
    "org.apache.kafka.tools.GetOffsetShell": "get-offsets",
    "kafka.tools.ClusterTool": "cluster",
    "org.apache.kafka.tools.ClusterTool": "cluster",
    "kafka.tools.DumpLogSegments": "dump-log",
    "kafka.tools.ReplicaVerificationTool": "replica-verification",
    "org.apache.kafka.tools.ReplicaVerificationTool": "replica-verification",
    "org.apache.kafka.tools.ProducerPerformance": "producer-perf-test",
    "kafka.tools.ConsumerPerformance": "consumer-perf-test",
    "org.apache.kafka.tools.ConsumerPerformance": "consumer-perf-test",
    "kafka.tools.EndToEndLatency": "e2e-latency",
    "org.apache.kafka.tools.EndToEndLatency": "e2e-latency",
    "org.apache.kafka.tools.VerifiableProducer": "verifiable-producer",
    "org.apache.kafka.tools.VerifiableConsumer": "verifiable-consumer",
    "kafka.Kafka": "server-start",
    "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka": "zookeeper-shell",
    "org.apache.zookeeper.ZooKeeperMain": "zookeeper-shell",
    "org.apache.zookeeper.server.quorum.QuorumPeerMain": "zookeeper-server-start",
}


def main(argv: list[str]) -> int:
    """Run the command that has the class's work."""
    if not argv or argv[0] in ("-h", "--help"):
        print("Usage: barnabas run-class CLASS [OPTION ...]", "", "Classes:", sep="\n")
        for name, command in CLASSES.items():
            print(f"  {name:<62}{command}")
        return 0 if argv else 2
    name, *rest = argv
    if name not in CLASSES:
        raise BarnabasError(f"there is no class {name} here{did_you_mean(name, CLASSES)}")
    code: int = import_module(f"barnabas.cli.{CLASSES[name].replace('-', '_')}").main(rest)
    return code
