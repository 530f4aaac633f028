"""README's table of what works with what: each of its lines is run by tests, which are
named here, and only here.

Both ways: a claim without a test fails, and so does a test of this list that is gone, or that
neither CI nor the trial of its line runs. A client's line holds for each client and each thing that
is tried.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from trials import trials

ROOT = Path(__file__).parents[2]
JAVA_TOOLS = "interop/test_java_tools.py"
CLIENTS = "interop/test_client_administration.py"
GROUPS = "interop/test_groups_clients.py"
BROKER_CLIENTS = "interop/test_broker_clients.py"
FAILOVER = "interop/test_failover_clients.py::test_producers_lose_and_double_nothing_when_brokers_are_killed"
REST = "interop/rest/test_rest_"
REGISTRY_CLIENT = "interop/test_registry_confluent_client.py"
GO = "interop/test_other_languages.py::test_go_clients_do_all_they_do_elsewhere"
JAVASCRIPT = "interop/test_other_languages.py::test_javascript_clients_do_all_they_do_elsewhere"
TRANSACTIONS = "interop/test_transactions_clients.py"
MIXED_TRANSACTIONS = "interop/test_transactions_mixed.py"
ZOOKEEPER_FILES = "interop/test_coordination_apache.py"
ENSEMBLE = "interop/test_ensemble.py"
DAEMONS = "interop/test_log_daemons.py"
ENSEMBLE_CLIENTS = "interop/test_ensemble_clients.py"
FRAMEWORKS = "strangers/test_python_frameworks.py::test_a_killed_program_processes_each_record_once"
JAVA_FRAMEWORKS = "strangers/test_java_frameworks.py"
CONNECT = "strangers/test_connect.py"
PYTHON_SYSTEMS = "strangers/test_python_systems.py"
REPEATED_COPIES = "strangers/test_repeated_copies.py"
PATRONI = "interop/test_patroni.py::test_patroni_switches_and_fails_over_without_a_lost_row_or_a_second_primary"
DUBBO = "strangers/test_dubbo.py::test_a_consumer_asks_those_that_are_registered_after_kills"
KASKADE = "strangers/test_kaskade.py"
LAG = "interop/test_lag_clusters.py"
PROMETHEUS = "interop/test_prometheus_scrapes.py::test_a_killed_broker_raises_alarms_until_it_is_back"

PROOFS: dict[str, dict[str, dict[str, str]]] = {
    "Clients": {
        "confluent-kafka (librdkafka)": {
            "produce with every codec": f"{BROKER_CLIENTS}::test_librdkafka_reads_what_it_wrote_with_every_codec",
            "idempotence": f"{BROKER_CLIENTS}::test_librdkafka_reads_what_it_wrote_with_every_codec",
            "consume": f"{BROKER_CLIENTS}::test_librdkafka_reads_what_it_wrote_with_every_codec",
            "groups with members coming and going": f"{GROUPS}::test_members_share_the_partitions_as_they_come_and_go",
            "offsets": f"{BROKER_CLIENTS}::test_offsets_are_found_by_time",
            "admin calls": f"{CLIENTS}::test_librdkafkas_admin_client_takes_a_topic_through_its_life",
        },
        "kafka-python": {
            "produce with gzip": f"{BROKER_CLIENTS}::test_kafka_python_writes_what_librdkafka_reads_and_the_reverse",
            "idempotence": f"{CLIENTS}::test_kafka_python_writes_idempotently",
            "consume": f"{BROKER_CLIENTS}::test_kafka_python_writes_what_librdkafka_reads_and_the_reverse",
            "groups with members coming and going": f"{GROUPS}::test_kafka_python_shares_commits_and_leaves",
            "offsets": f"{CLIENTS}::test_kafka_python_finds_offsets_by_time_and_at_both_ends",
            "admin calls": f"{CLIENTS}::test_kafka_pythons_admin_client_takes_a_topic_through_its_life",
        },
        "aiokafka": {
            "produce with every codec": f"{CLIENTS}::test_aiokafka_reads_what_it_wrote_with_every_codec",
            "idempotence": f"{BROKER_CLIENTS}::test_aiokafka_writes_idempotently_and_reads_in_a_group",
            "consume": f"{CLIENTS}::test_aiokafka_reads_what_it_wrote_with_every_codec",
            "groups with members coming and going": f"{GROUPS}::test_aiokafka_shares_commits_and_leaves",
            "offsets": f"{CLIENTS}::test_aiokafka_finds_offsets_by_time_and_at_both_ends",
            "admin calls": f"{CLIENTS}::test_aiokafkas_admin_client_takes_a_topic_through_its_life",
        },
        "franz-go, Sarama, segmentio/kafka-go": {
            "produce": GO,
            "groups": GO,
            "committed offsets": GO,
            "administration": GO,
        },
        "KafkaJS, @platformatic/kafka": {
            "produce": JAVASCRIPT,
            "groups": JAVASCRIPT,
            "committed offsets": JAVASCRIPT,
            "administration": JAVASCRIPT,
        },
        "rskafka 0.6.0 (Rust)": {
            "program and leader killed, it copies each record at least once": f"{REPEATED_COPIES}::test_a_killed_program_with_rskafka_copies_each_record_at_least_once"
        },
        "failover: librdkafka, kafka-python, aiokafka, Java's clients": {
            "every broker killed in turn under producers and groups: no record lost or doubled": FAILOVER,
        },
        "exactly once: transactions of librdkafka, kafka-python, aiokafka, franz-go, Sarama, KafkaJS, and of Java's TransactionalMessageCopier, 3.9.1, 4.3.0 and 4.4.0, and TransactionsCommand, 3.9.1 and 4.4.0": {
            "copies with aborts are exact, and the group's offsets with them": (
                f"{TRANSACTIONS}::test_a_copy_in_transactions_is_exact"
            ),
            "the same by franz-go and Sarama": f"{TRANSACTIONS}::test_go_clients_copy_exactly",
            "by KafkaJS": f"{TRANSACTIONS}::test_kafkajs_copies_exactly",
            "by TransactionalMessageCopier": f"{TRANSACTIONS}::test_apaches_copier_copies_exactly",
            "TransactionsCommand prints what ours prints": (
                f"{TRANSACTIONS}::test_apaches_transactions_command_prints_what_ours_prints"
            ),
        },
        "access control: ACLs, with AclCommand of Apache Kafka 3.9.1 and 4.4.0, librdkafka, kafka-python, aiokafka": {
            "AclCommand adds, lists and removes": "interop/test_acls.py::test_apaches_tool_administers_our_broker_as_its_own",
            "brokers of both kinds change each other's": (
                "interop/test_acls.py::test_brokers_of_either_kind_see_and_change_the_entries_of_the_other"
            ),
            "each API asks for the rights that Apache's 3.9.1 asks for": (
                "interop/test_acl_matrix.py::test_each_right_is_asked_for_as_by_apache"
            ),
            "a client names the right that it lacks": (
                "interop/test_acl_strangers.py::test_a_client_without_a_right_names_the_kind_of_resource"
            ),
        },
        "schema registry: confluent-kafka's SchemaRegistryClient, sync and async, and its serializers": {
            "each method of the client against our registry": f"{REGISTRY_CLIENT}::test_registered_schema_is_found_by_each_method",
            "values come back through a topic": f"{REGISTRY_CLIENT}::test_value_comes_back_through_the_topic",
            "the leader of three registries killed: no id twice, no schema lost": (
                "fault/test_registry_kills.py::test_leader_that_is_killed_or_stands_still_loses_nothing"
            ),
        },
        "REST: Confluent's API, versions 2 and 3, by curl and over sockets": {
            "the documented requests against our proxy: topics and configurations": f"{REST}version_3.py::test_curl_creates_describes_and_deletes_a_topic_as_documented",
            "produce in a stream": f"{REST}version_3.py::test_reports_come_while_the_stream_is_open_and_in_its_order",
            "consumers with offsets and lags": f"{REST}version_2.py::test_a_consumer_of_version_2_does_as_documented",
            "values that Confluent's deserializers read": f"{REST}schemas.py::test_confluents_deserializers_read_what_was_produced_over_http",
            "JSON Schema and Protobuf by the registry": f"{REST}schemas.py::test_values_of_protobuf_go_through_the_registry_both_ways",
            "event streams": f"{REST}event_streams.py::test_a_stream_has_what_was_there_and_what_comes",
        },
        "kazoo": {
            "nodes and ACLs": (
                "interop/test_coordination_kazoo.py::test_plain_operations_return_and_raise_what_kazoo_users_expect"
            ),
            "watches": "interop/test_coordination_kazoo.py::test_watchers_follow_every_change",
            "sessions": "interop/test_coordination_kazoo.py::test_a_session_and_its_watches_outlive_a_killed_server",
            "recipes": "interop/test_coordination_kazoo.py::test_counter_party_queues_and_semaphore_work_across_clients",
            "recipes while each member of an ensemble is killed in turn": (
                f"{ENSEMBLE_CLIENTS}::test_kazoos_recipes_go_on_while_each_member_is_killed_in_turn"
            ),
        },
        "Apache Curator": {
            "recipes while the leader of an ensemble is killed": (
                f"{ENSEMBLE_CLIENTS}::test_curators_recipes_work_and_go_on"
            ),
        },
        "go-zookeeper": {
            "a session with watches and locks while the leader of an ensemble is killed": (
                f"{ENSEMBLE_CLIENTS}::test_go_zookeeper_keeps_its_session_watches_and_locks"
            ),
        },
        "ZooKeeper's client in C": {
            "a session with watches while the leader of an ensemble is killed": (
                f"{ENSEMBLE_CLIENTS}::test_zookeepers_own_client_in_c_keeps_its_session_and_watches"
            ),
        },
    },
    "Frameworks": {
        "Spark 4.3 through PySpark": {
            "a source of our own": "spark/test_spark_source.py::test_a_batch_has_every_record_with_all_its_columns",
            "a sink of our own": "spark/test_spark_source.py::test_rows_written_are_rows_read",
        },
        "Kafka Streams with exactly_once_v2 (3.9.1 and 4.4.0)": {
            "Streams that are killed count each record once": "interop/test_transactions_streams.py::test_streams_that_are_killed_count_each_record_once",
        },
        "Kafka Streams 3.9.1: joins, windows, queries, standbys": {
            "joins, windows, sessions and queries are exact through kills of an instance and a coordinator, and a standby takes over": (
                "interop/test_streams_shop.py::test_results_are_exact_through_kills_and_a_standby_takes_over"
            ),
            "internal topics are set up and purged as it asks": (
                "interop/test_streams_shop.py::test_internal_topics_are_set_up_and_purged_as_streams_asks"
            ),
        },
        "Spring Kafka 4.1.2 with transactions of version 1 and 2": {
            "program and coordinator killed in a transaction, a listener copies each record once": (
                f"{JAVA_FRAMEWORKS}::test_a_killed_listener_of_spring_copies_each_record_once"
            ),
        },
        "Flink 2.2.1 with its exactly-once Kafka sink 5.0.0": {
            "job and coordinator killed in a transaction, each record is copied once": (
                f"{JAVA_FRAMEWORKS}::test_a_killed_job_of_flink_copies_each_record_once"
            ),
        },
        "FastStream 0.7.8 on aiokafka and on confluent-kafka, Quix Streams 3.28.1 with exactly-once": {
            "killed while a transaction is open, they process each record once": FRAMEWORKS,
        },
        "Pekko Connectors 1.1.0 with transactions": {
            "program and coordinator killed in a transaction, a stream copies each record once": f"{JAVA_FRAMEWORKS}::test_a_killed_stream_of_pekko_copies_each_record_once",
        },
        "Apache Camel 4.22.0": {
            "program, leader and coordinator killed, a route copies each record at least once": f"{REPEATED_COPIES}::test_a_killed_route_of_camel_copies_each_record_at_least_once"
        },
        "Vert.x 5.0.7's client for Kafka": {
            "program, leader and coordinator killed, it copies each record at least once": f"{REPEATED_COPIES}::test_a_killed_client_of_vertx_copies_each_record_at_least_once"
        },
        "Watermill 1.5.1 with watermill-kafka 3.0.6 (Go)": {
            "program, leader and coordinator killed, each message is copied at least once": f"{REPEATED_COPIES}::test_a_killed_router_of_watermill_copies_each_message_at_least_once",
        },
        "Bytewax 0.21.1": {
            "program and leader killed, a dataflow copies each record at least once": f"{REPEATED_COPIES}::test_a_killed_dataflow_of_bytewax_copies_each_record_at_least_once",
        },
        "OpenTelemetry's instrumentation 0.66b1 of confluent-kafka and of kafka-python": {
            "leader killed, the trace of each record goes with it": f"{PYTHON_SYSTEMS}::test_a_trace_goes_with_each_record_while_the_leader_is_killed",
        },
    },
    "Systems on Kafka": {
        "Kafka Connect 3.9.1 and 4.3.0 with exactly-once support for sources": {
            "worker and coordinator killed in a transaction, a source writes each line once, and a sink gets what is committed": (
                f"{CONNECT}::test_a_killed_source_writes_each_line_once_and_a_sink_gets_what_is_committed"
            ),
        },
        "Kafka Connect 3.9.1, two workers, with Debezium's PostgreSQL source and JDBC sink 3.5.0": {
            "a worker and the leaders of its topics killed: each row once, each line of a file once": (
                "interop/test_connect_workers.py::test_killed_worker_and_leaders_of_connects_topics_cost_no_row_and_no_line"
            ),
            "connectors stop and go on where their offsets say": (
                "interop/test_connect_workers.py::test_connector_stops_and_goes_on_where_its_offsets_say"
            ),
            "its topics are compacted": (
                "interop/test_connect_workers.py::test_connects_topics_are_made_as_it_asks_and_compacted"
            ),
        },
        "Debezium 3.6.1 (PostgreSQL) in Connect with exactly-once support": {
            "worker and coordinator killed in a transaction, it writes each row once": (
                f"{CONNECT}::test_a_killed_debezium_writes_each_row_once"
            ),
        },
        "Celery 5.7.0 over kombu's transport for Kafka": {
            "worker, leader and coordinator killed, each task runs at least once": f"{PYTHON_SYSTEMS}::test_celerys_tasks_run_at_least_once_through_kills_of_worker_and_brokers",
        },
        "kombu 5.7.0": {
            "its own tests of its transport for Kafka": f"{PYTHON_SYSTEMS}::test_kombus_own_tests_of_its_transport_for_kafka_pass",
        },
        "rsyslog's omkafka and imkafka": {
            "leader and coordinator killed, each line of a file is in a topic once": (
                f"{DAEMONS}::test_rsyslog_writes_each_line_once_and_reads_all_through_kills"
            ),
            "a group reads all of them": f"{DAEMONS}::test_rsyslog_writes_each_line_once_and_reads_all_through_kills",
        },
        "collectd's write_kafka": {
            "each value is in a topic once while its leader is killed": (
                f"{DAEMONS}::test_collectd_writes_each_value_once_while_the_leader_is_killed"
            ),
        },
        "syslog-ng 3.38's destination for Kafka": {
            "daemon and leader killed, each line of a file is sent at least once": "strangers/test_syslog_ng.py::test_a_killed_syslog_ng_sends_each_line_at_least_once_while_the_leader_is_killed",
        },
        "MirrorMaker 2 with exactly-once support (3.9.1)": {
            "MirrorMaker 2 and the brokers of both sides killed, it copies each record once": (
                "interop/test_transactions_connect.py::test_mirror_maker_2_that_is_killed_copies_each_record_once"
            ),
            "the topic's settings, the group's offsets and heartbeats come over": (
                "interop/test_transactions_connect.py::test_mirror_maker_2_that_is_killed_copies_each_record_once"
            ),
        },
        "Apache Kafka 3.9.1 and 4.3.0 as the other side of a mirror": {
            "records, partitions and group offsets in both directions, while the mirrors and the brokers of both are killed": (
                "interop/test_mirror_apache.py::test_records_and_groups_go_both_ways_through_kills_of_mirrors_and_brokers"
            ),
            "the same with KRaft brokers, without kills": (
                "interop/test_mirror_apache.py::test_records_and_groups_go_between_a_cluster_of_apaches_4_3_and_ours"
            ),
            "MirrorClient and RemoteClusterUtils translate offsets": (
                "interop/test_mirror_link.py::test_apaches_mirror_client_translates_offsets_and_sees_the_way"
            ),
        },
        "Apache Kafka 3.9.1 broker": {
            "starts on a log dir that ours wrote, and the reverse": "interop/test_log_apache.py::test_apaches_broker_and_ours_take_over_each_others_log_dirs",
            "stands in one cluster with ours, either kind as leader and as controller": "interop/test_mixed_cluster.py::test_topics_are_made_changed_and_deleted_on_brokers_of_both_kinds",
            "a cluster moves to ours and back, broker by broker, without an error for its clients": "interop/test_migration.py::test_a_cluster_moves_to_ours_and_back_and_no_client_notices",
            "transactions span both kinds, either kind as coordinator": f"{MIXED_TRANSACTIONS}::test_a_transaction_spans_partitions_and_groups_of_both_kinds",
            "each kind ends what the other began": f"{MIXED_TRANSACTIONS}::test_the_other_kind_continues_what_a_coordinator_began",
            "open, aborted and decided transactions of a log dir go on at the other kind": "interop/test_transactions_swapped.py::test_the_other_kind_continues_each_transaction_of_a_log_dir",
            "stops where a feature is finalized": f"{MIXED_TRANSACTIONS}::"
            "test_apaches_broker_keeps_out_of_a_cluster_with_a_feature_until_it_is_taken_back",
        },
    },
    "Systems on ZooKeeper": {
        "Apache Kafka 3.9.1 on our coordination": {
            "runs on our coordination server": f"{ZOOKEEPER_FILES}::test_apache_kafka_runs_and_outlives_a_killed_server",
            "keeps its brokers while the leader of our ensemble is killed": f"{ENSEMBLE_CLIENTS}::test_apache_kafka_keeps_its_brokers_and_records_while_the_leader_is_killed",
        },
        "Patroni 4.1.5 with PostgreSQL 15": {
            "one primary at a time through a switchover and kills of primary and ensemble's leader": PATRONI,
            "no acknowledged row lost": PATRONI,
        },
        "ClickHouse 18.16.1 with replicated tables": {
            "leading replica and ensemble's leader killed, each number is in both replicas once": (
                "strangers/test_clickhouse.py::test_replicas_have_each_number_once_after_kills_of_both_leaders"
            ),
        },
        "Apache BookKeeper 4.17.2 with auto-recovery": {
            "two of three bookies, the auditor's among them, and ensemble's leader killed, each acknowledged ledger is read back": (
                "strangers/test_bookkeeper.py::test_ledgers_are_read_back_after_kills_of_bookies_and_of_the_ensembles_leader"
            ),
        },
        "Apache Solr 9.10.1 (SolrCloud)": {
            "shard's leader and ensemble's leader killed, each acknowledged document is in every replica": (
                "strangers/test_solr.py::test_each_replica_has_each_document_after_kills_of_three_leaders"
            ),
        },
        "Apache Flink 2.2.1 with high availability": {
            "leading JobManager and ensemble's leader killed, a job writes each number once": (
                "strangers/test_flink_ha.py::test_a_job_goes_on_at_another_job_manager_and_writes_each_number_once"
            ),
        },
        "Apache HBase 2.6.3": {
            "active master, a region server and ensemble's leader killed, each acknowledged row is there": (
                "strangers/test_hbase.py::test_each_acknowledged_row_is_there_after_kills_of_master_region_server_and_ensembles_leader"
            ),
        },
        "Apache Dubbo 3.3.5's registry": {
            "a provider and ensemble's leader killed, a consumer asks those that are registered": DUBBO,
            "no call fails": DUBBO,
        },
        "Apache ZooKeeper's server and formatters": {
            "read our transaction logs and snapshots": f"{ZOOKEEPER_FILES}::test_apaches_tools_read_our_log_and_snapshot",
            "ours reads theirs": f"{ZOOKEEPER_FILES}::test_a_server_starts_on_the_other_kinds_files_and_serves_the_same_tree",
            "members of both kinds stand in one ensemble, either kind as leader": (
                f"{ENSEMBLE}::test_every_kind_of_write_through_every_member_reaches_all"
            ),
            "every member of an ensemble is replaced by ours and back": (
                f"{ENSEMBLE}::test_every_member_of_a_live_ensemble_of_apaches_is_replaced_by_ours_and_back"
            ),
        },
    },
    "Tools and files": {
        "kcat": {
            "produce with every codec": "interop/test_kcat.py::test_lines_go_in_and_come_out_through_every_codec",
            "idempotence": f"{CLIENTS}::test_kcat_writes_idempotently",
            "consume": "interop/test_kcat.py::test_lines_go_in_and_come_out_through_every_codec",
            "groups with members coming and going": f"{CLIENTS}::test_kcats_group_goes_on_with_one_member_when_the_other_leaves",
            "offsets": "interop/test_kcat.py::test_an_offset_is_found_by_its_timestamp",
            "metadata": "interop/test_kcat.py::test_metadata_is_listed_as_json",
        },
        "Apache Kafka's tools, 3.9.1 and 4.3.0": {
            "TopicCommand": f"{JAVA_TOOLS}::test_topics_are_created_described_grown_and_deleted",
            "ConsoleProducer": f"{JAVA_TOOLS}::test_what_the_console_producer_writes_the_console_consumer_reads",
            "ConsoleConsumer": f"{JAVA_TOOLS}::test_what_the_console_producer_writes_the_console_consumer_reads",
            "ConsumerGroupCommand": f"{JAVA_TOOLS}::test_groups_are_listed_described_reset_and_deleted",
            "ConfigCommand": f"{JAVA_TOOLS}::test_configurations_are_altered_and_described",
            "ReassignPartitionsCommand": (
                "interop/test_reassignment_apache.py::test_apaches_tool_moves_partitions_of_our_brokers"
            ),
            "LeaderElectionCommand": "interop/test_reassignment_apache.py::test_apaches_tool_elects_leaders_of_our_brokers",
            "LogDirsCommand": f"{JAVA_TOOLS}::test_offsets_and_log_dirs_are_listed",
            "GetOffsetShell": f"{JAVA_TOOLS}::test_offsets_and_log_dirs_are_listed",
            "ProducerPerformance": f"{JAVA_TOOLS}::test_the_performance_tools_move_records",
            "ConsumerPerformance": f"{JAVA_TOOLS}::test_the_performance_tools_move_records",
            "VerifiableProducer": f"{JAVA_TOOLS}::test_the_verifiable_clients_agree",
            "VerifiableConsumer": f"{JAVA_TOOLS}::test_the_verifiable_clients_agree",
            "ReplicaVerificationTool (3.9.1)": (
                "interop/test_replication_reads.py::test_apaches_replica_verification_finds_equal_replicas_and_a_corrupt_one"
            ),
        },
        "kaskade 5.1.0": {
            "its admin mode shows topics, partitions and groups": f"{KASKADE}::test_its_admin_mode_shows_topics_partitions_and_groups",
            "its consumer mode shows records, and Avro by our registry": f"{KASKADE}::test_its_consumer_mode_shows_records",
        },
        "Apache Kafka 3.9.1 and 4.4.0, watched by ours": {
            "`lag` has the seconds of the records' timestamps": f"{LAG}::test_the_time_is_that_of_the_records",
            "`lag` names missing rights": f"{LAG}::test_what_may_not_be_seen_is_named",
            "`top` shows them": (
                "interop/test_top.py::test_apaches_clusters_are_shown_and_what_they_do_not_show_is_named"
            ),
            "`doctor` finds nothing wrong, then the faults that are prepared": (
                "interop/test_doctor_apache.py::test_apaches_cluster_is_healthy_until_faults_are_prepared"
            ),
        },
        "Prometheus (Debian)": {
            "it scrapes the brokers and evaluates all our rules": PROMETHEUS,
            "a killed broker raises alarms until it is back": PROMETHEUS,
        },
        "Apache's zkCli": {
            "nodes and quotas": f"{ZOOKEEPER_FILES}::test_zkcli_works",
            "a session while the leader of an ensemble is killed": (
                f"{ENSEMBLE_CLIENTS}::test_zkcli_goes_on_at_another_member"
            ),
        },
        "Apache Kafka's DumpLogSegments": {
            "finds no fault in our segments, indexes and snapshots": (
                "interop/test_log_apache.py::test_apaches_dump_finds_no_fault_in_our_files_and_both_print_the_same"
            ),
            "prints of its own what our `dump-log` prints": (
                "interop/test_log_apache.py::test_apaches_broker_and_ours_take_over_each_others_log_dirs"
            ),
        },
    },
}


CONFTEST = (ROOT / "tests" / "conftest.py").read_text()
NOT_IN_CI = re.findall(r'"(\w+/\w+\.py)"', CONFTEST[CONFTEST.index("collect_ignore") :].split("\n)")[0])


@dataclass(frozen=True)
class Line:
    """A line of README's table."""

    group: str
    software: str
    tried: str
    run_by: str
    """CI, or a trial."""

    @property
    def tests(self) -> dict[str, str]:
        """What is tried, each with its test."""
        return PROOFS[self.group][self.software]


def lines() -> list[Line]:
    """All of the table, in the order of the page."""
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## What works with what") :]
    section = section[: section.index("\n## ", 1)]
    return [
        Line(group, *cells)
        for group, table in re.findall(r"^### (.+)\n\n\| software \| .+\n\|[-|]+\n((?:\|.+\n)+)", section, re.MULTILINE)
        for cells in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", table, re.MULTILINE)
    ]


LINES = [pytest.param(line, id=line.software) for line in lines()]


@cache
def defined_in(module: str) -> set[str]:
    path = ROOT / "tests" / module
    return {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_table_and_the_tests_that_run_it_name_the_same_software() -> None:
    """A new line needs tests, and tests without a line are not shown to readers."""
    named = [(group, software) for group, rows in PROOFS.items() for software in rows]
    assert [(line.group, line.software) for line in lines()] == named


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_table_names_what_its_tests_try(line: Line) -> None:
    """Each thing in the second column has a test, and no more things are tested than are named."""
    assert line.tried in (separator.join(line.tests) for separator in ("; ", ", "))


@pytest.mark.parametrize("line", LINES)
def test_the_tests_of_a_line_are_run_by_what_its_last_column_names(line: Line) -> None:
    """CI runs what the Makefile's test target runs, a trial the tests that it names."""
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile[makefile.index("\ntest:") :].split("\n\n")[0]
    trial = re.fullmatch("trial `(.+)`", line.run_by)
    assert trial or line.run_by == "CI"
    for test in line.tests.values():
        module, name = test.split("::")
        assert name in defined_in(module)
        if trial:
            assert {f"tests/{module}", f"tests/{test}"} & {*trials("1-1")[trial[1]].tests}
        else:
            assert f"tests/{module.split('/')[0]}" in recipe
            assert module not in NOT_IN_CI


def test_the_versions_of_software_that_trials_fetch_are_those_that_are_pinned() -> None:
    """In lock files, poms, go.mod, or a test."""
    files = [*(ROOT / "tests" / "other_languages").rglob("*"), *(ROOT / "tests" / "strangers").glob("*.py")]
    pins = "\n".join(
        file.read_text()
        for file in files
        if file.name in ("pom.xml", "go.mod", "Cargo.toml") or file.suffix in (".lock", ".py")
    )
    for line in lines():
        if line.run_by != "CI":
            for version in re.findall(r"\d+(?:\.\d+)+(?:b\d+)?", line.software):
                assert version in pins, line.software


def test_a_tool_of_apaches_is_run_by_the_test_that_is_named_for_it() -> None:
    """Its class stands in the test's module."""
    for tool, test in PROOFS["Tools and files"]["Apache Kafka's tools, 3.9.1 and 4.3.0"].items():
        module = (ROOT / "tests" / test.split("::")[0]).read_text()
        assert tool.split(" ")[0] in module, tool
