"""``make trials``: every promise about reliability, tried with the numbers of a full trial, and
one table of what came out.

CI runs the same tests with small numbers. Each row is one trial: what is promised, what was asked
for, what the tests measured, their seeds, and how long it took.
``python tests/trials.py NAME ...`` runs some of them; ``--list`` names them; ``--small`` runs them
with CI's numbers. The exit status is 1 if one failed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree  # of reports that pytest wrote a moment ago

ROOT = Path(__file__).parents[1]
SIMULATION = ("tests/simulation/run.py", "--jobs", str(os.cpu_count() or 1), "--seeds")


@dataclass(frozen=True)
class Trial:
    """One row of the table: tests of pytest with the variables that make them long,
    or another program."""

    promise: str
    tests: tuple[str, ...] = ()
    asked: Mapping[str, str | int] = field(default_factory=dict)
    """Environment variables."""
    program: tuple[str, ...] = ()
    """Arguments for Python, in place of ``tests``."""


@dataclass
class Row:
    """What came of a trial."""

    name: str
    promise: str
    command: str
    asked: dict[str, str]
    got: list[str]
    held: bool
    duration_s: float


def trials(seeds: str) -> dict[str, Trial]:
    """By name. ``seeds`` are those of simulated clusters, FIRST-LAST."""
    return {
        "kills": Trial(
            "acks=all is never lost: 3 brokers, RF 3, min ISR 2; leader, controller and coordination killed",
            ("tests/fault/test_replication_trials.py",),
            {"BARNABAS_RUNS": 20, "BARNABAS_KILLS": 5, "BARNABAS_ACKNOWLEDGED": 20_000},
        ),
        "transactions": Trial(
            "each record of a copy job in transactions once and in order; brokers, coordinators and the client killed",
            ("tests/fault/test_transaction_trials.py",),
            {"BARNABAS_RUNS": 20, "BARNABAS_KILLS": 5, "BARNABAS_RECORDS": 100_000},
        ),
        "restarts": Trial(
            "one broker, or its coordination server, is killed: nothing acknowledged is lost or doubled",
            ("tests/fault/test_kill_trials.py",),
            {"BARNABAS_KILLS": 20},
        ),
        "registry": Trial(
            "three schema registries, the leader killed or paused: no id is given twice, no schema is lost",
            ("tests/fault/test_registry_kills.py",),
            {"BARNABAS_KILLS": 12},
        ),
        "prometheus": Trial(
            "Debian's Prometheus evaluates all rules; a broker that is killed raises alarms until it is back",
            ("tests/interop/test_prometheus_scrapes.py",),
            {"BARNABAS_LONG": 1},
        ),
        "registry-calls": Trial(
            "44 calls to Apicurio's registry and to ours have the same answers, but for nine that are named",
            ("tests/interop/test_registry_apicurio.py",),
            {"BARNABAS_LONG": 1},
        ),
        "ensemble": Trial(
            "members of an ensemble are killed under brokers and a load: no session and no record is lost",
            ("tests/fault/test_ensemble_trials.py",),
            {"BARNABAS_KILLS": 20},
        ),
        "zombies": Trial(
            "zombies are fenced: leader, controller and coordination stopped past their sessions, then continued",
            ("tests/fault/test_pause_trials.py",),
            {"BARNABAS_PAUSES": 50},
        ),
        "elections": Trial(
            "two of three brokers lost at once, an unclean election, a rolling restart with many partitions",
            ("tests/fault/test_election_trials.py",),
            {"BARNABAS_PARTITIONS": 1000},
        ),
        "in-sync sets": Trial(
            "the ISR tracks reality: it shrinks within replica.lag.time.max.ms + 10 s and expands within 60 s",
            ("tests/fault/test_network_cuts.py",),
        ),
        "log dirs": Trial(
            "one log dir fails alone (ENOSPC, EFBIG, EIO, unreadable), and replicas move between dirs under load",
            ("tests/fault/test_log_dir_failures.py",),
            {"BARNABAS_MOVES": 50},
        ),
        "recovery": Trial(
            "a log recovers: a tail cut at every byte, damaged indexes, flipped bits",
            ("tests/unit/test_log_partition.py", "tests/unit/test_log_model.py", "tests/fuzz"),
        ),
        "damaged files": Trial(
            "one stored file of a server is damaged, each kind of byte: nothing acknowledged is lost in silence",
            ("tests/simulation/test_damage_sweep.py",),
            {"BARNABAS_DAMAGES": 0},
        ),
        "compaction": Trial(
            "kills during compactions neither lose nor revive a key",
            ("tests/interop/test_log_compaction_kills.py",),
            {"BARNABAS_KILLS": 20},
        ),
        "coordination": Trial(
            "coordination writes are durable: the server is killed under load, and a failed sync ends it",
            ("tests/interop/test_coordination_faults.py::test_nothing_acknowledged_is_lost_when_the_server_is_killed",
             "tests/interop/test_coordination_faults.py::test_a_failed_sync_stops_the_server_without_an_acknowledgement"),
            {"BARNABAS_KILL_TRIALS": 20},
        ),
        "damaged coordination": Trial(
            "damaged coordination state is refused",
            ("tests/unit/test_coordination_storage.py",),
        ),
        "groups": Trial(
            "groups are stable: rolling stops and kills under Apache's verifiable clients, each record once",
            ("tests/interop/test_rolling_bounces.py", "tests/interop/test_failover_clients.py"),
            {"BARNABAS_LONG": 1},
        ),
        "both kinds": Trial(
            "brokers of Apache's and ours in one cluster: kills, moves to ours and back, equal bytes",
            ("tests/interop/test_replication_apache.py", "tests/interop/test_migration.py",
             "tests/interop/test_mixed_cluster.py", "tests/interop/test_acl_broker_rights.py",
             "tests/interop/test_transactions_swapped.py"),
            {"BARNABAS_LONG": 1},
        ),
        "mirror": Trial(
            "mirroring is at least once: the mirror is killed, nothing is missing",
            ("tests/interop/test_client_mirror.py",),
            {"BARNABAS_BOUNCES": 3},
        ),
        "pipelines": Trial(
            "flows are exact: driver and workers killed; rows and files once, the topic at least once, the group at the checkpoint",
            ("tests/spark/test_spark_flow.py::test_after_kills_of_the_driver_nothing_is_twice_and_nothing_missing",
             "tests/spark/test_spark_flow.py::test_kills_of_drivers_and_workers_leave_rows_files_and_topics_whole"),
            {"BARNABAS_KILLS": 20, "BARNABAS_RECORDS": 1_000_000},
        ),
        "keys": Trial(
            "keys of every type are equal by one rule in every output: inserted, again, updated, deleted, in two runs; and in whole flows",
            ("tests/unit/test_pipeline_keys.py", "tests/spark/test_spark_keys.py",
             "tests/spark/test_spark_opensearch.py::test_rows_of_equal_keys_are_one_document"),
            {"BARNABAS_KEYS": "all"},
        ),
        "flows on apache": Trial(
            "the same flows give the same results on Apache Kafka 3.9.1 and 4.3.0 and on our broker",
            ("tests/spark/test_spark_apache.py",),
            {"BARNABAS_BROKERS": "3.9.1 4.3.0 barnabas"},
        ),
        "flows on apache with kills": Trial(
            "a flow that Apache Kafka 3.9.1 and 4.4.0 throttle is exact; driver, workers and broker killed, each record once",
            ("tests/spark/test_spark_apache_kills.py",),
            {"BARNABAS_BROKERS": "3.9.1 4.4.0", "BARNABAS_KILLS": 12, "BARNABAS_RECORDS": 130_000},
        ),
        "access control lists": Trial(
            "acls says and does what Apache's kafka-acls says and does, line by line; what is refused there is refused",
            ("tests/interop/test_refused_rights.py::test_acls_prints_what_apaches_tool_prints",),
            {"BARNABAS_LONG": 1},
        ),
        "faststream-quix": Trial(
            "frameworks in Python that are killed in the middle of a transaction process each record once",
            ("tests/strangers/test_python_frameworks.py",),
        ),
        "kaskade": Trial(
            "kaskade's admin and consumer mode show our cluster, and Avro by our registry, as they are",
            ("tests/strangers/test_kaskade.py",),
        ),
        "spring-kafka": Trial(
            "a listener copies each record once; program and coordinator killed in a transaction",
            ("tests/strangers/test_java_frameworks.py::test_a_killed_listener_of_spring_copies_each_record_once",),
        ),
        "flink": Trial(
            "a job copies each record once; job and coordinator killed in a transaction",
            ("tests/strangers/test_java_frameworks.py::test_a_killed_job_of_flink_copies_each_record_once",),
        ),
        "pekko": Trial(
            "a stream copies each record once; program and coordinator killed in a transaction",
            ("tests/strangers/test_java_frameworks.py::test_a_killed_stream_of_pekko_copies_each_record_once",),
        ),
        "camel": Trial(
            "a route of Apache Camel copies each record at least once; program, leader and coordinator killed",
            ("tests/strangers/test_repeated_copies.py::"
             "test_a_killed_route_of_camel_copies_each_record_at_least_once",),
        ),
        "vertx": Trial(
            "Vert.x's client copies each record at least once; program, leader and coordinator killed",
            ("tests/strangers/test_repeated_copies.py::"
             "test_a_killed_client_of_vertx_copies_each_record_at_least_once",),
        ),
        "watermill-bytewax": Trial(
            "Watermill and Bytewax copy each record at least once; program, leader and coordinator killed",
            ("tests/strangers/test_repeated_copies.py::"
             "test_a_killed_router_of_watermill_copies_each_message_at_least_once",
             "tests/strangers/test_repeated_copies.py::"
             "test_a_killed_dataflow_of_bytewax_copies_each_record_at_least_once"),
        ),
        "rskafka": Trial(
            "rskafka copies each record at least once; program and leader killed",
            ("tests/strangers/test_repeated_copies.py::"
             "test_a_killed_program_with_rskafka_copies_each_record_at_least_once",),
        ),
        "celery": Trial(
            "tasks of Celery run at least once; worker, leader and coordinator killed",
            ("tests/strangers/test_python_systems.py::"
             "test_celerys_tasks_run_at_least_once_through_kills_of_worker_and_brokers",),
        ),
        "kombu": Trial(
            "kombu's own tests of its transport for Kafka pass on our broker",
            ("tests/strangers/test_python_systems.py::test_kombus_own_tests_of_its_transport_for_kafka_pass",),
        ),
        "opentelemetry": Trial(
            "OpenTelemetry's traces go with each record through confluent-kafka and kafka-python; leader killed",
            ("tests/strangers/test_python_systems.py::test_a_trace_goes_with_each_record_while_the_leader_is_killed",),
        ),
        "syslog-ng": Trial(
            "syslog-ng sends each line at least once; daemon and leader killed",
            ("tests/strangers/test_syslog_ng.py",),
        ),
        "kafka-connect": Trial(
            "a source writes each line once, a sink gets what is committed; worker and coordinator killed in a transaction",
            ("tests/strangers/test_connect.py::"
             "test_a_killed_source_writes_each_line_once_and_a_sink_gets_what_is_committed",),
        ),
        "debezium": Trial(
            "Debezium writes each row once; worker and coordinator killed in a transaction",
            ("tests/strangers/test_connect.py::test_a_killed_debezium_writes_each_row_once",),
        ),
        "connect and streams": Trial(
            "Connect's workers and Streams' instances are killed, and brokers under them: every result is exact (two releases)",
            ("tests/interop/test_connect_workers.py", "tests/interop/test_streams_shop.py"),
            {"BARNABAS_LONG": 1},
        ),
        "patroni": Trial(
            "PostgreSQL under Patroni has one primary at a time and loses no row; it and the ensemble's leader killed",
            ("tests/interop/test_patroni.py",),
        ),
        "clickhouse": Trial(
            "ClickHouse's replicas have each number once; the one that leads and the ensemble's leader killed",
            ("tests/strangers/test_clickhouse.py",),
        ),
        "bookkeeper": Trial(
            "BookKeeper's ledgers are read back; the auditor's bookie, another one and the ensemble's leader killed",
            ("tests/strangers/test_bookkeeper.py",),
        ),
        "dubbo": Trial(
            "Dubbo's consumer asks the providers that are registered; one and the ensemble's leader killed, no call fails",
            ("tests/strangers/test_dubbo.py",),
        ),
        "solr": Trial(
            "SolrCloud's replicas have each document; the shard's leader and the ensemble's leader killed",
            ("tests/strangers/test_solr.py",),
        ),
        "flink-ha": Trial(
            "a Flink job goes on at another JobManager, each number once; the one that led and the ensemble's leader killed",
            ("tests/strangers/test_flink_ha.py",),
        ),
        "hbase": Trial(
            "HBase has each acknowledged row; active master, a region server and the ensemble's leader killed",
            ("tests/strangers/test_hbase.py",),
        ),
        "types": Trial(
            "every type in every output, read back by others, is the same in 27 combinations of zones",
            ("tests/spark/test_type_matrix.py",),
            {"BARNABAS_ZONES": "all"},
        ),
        "pyspark 4.2": Trial(
            "the oldest PySpark that is accepted runs sources, flows, state and quarantine",
            program=("tests/spark/other_pyspark.py", "4.2.1"),
        ),
        "spark connect": Trial(
            "the source and the sink work in Spark Connect and in declarative pipelines",
            program=("tests/spark/other_pyspark.py", "connect"),
        ),
        "spark connector": Trial(
            "Spark's own Kafka connector reads what ours wrote, and the reverse; a flow runs through it",
            program=("tests/spark/other_pyspark.py", "connector"),
        ),
        "notebook": Trial(
            "the notebook of the examples runs in a kernel of Jupyter's",
            program=("tests/spark/other_pyspark.py", "notebook"),
        ),
        "polars": Trial(
            "Polars and DuckDB read the lake tables, each row once",
            program=("tests/spark/other_pyspark.py", "polars"),
        ),
        "commands under faults": Trial(
            "every command that reads a cluster answers within its deadline with what is reachable, whatever is down",
            ("tests/fault/test_commands_under_faults.py",),
            {"BARNABAS_COMMANDS": "all"},
        ),
        "hostile bytes": Trial(
            "bad input is answered within 1 s, with 16 MiB at most, and others are served",
            ("tests/fault/test_hostile_bytes.py", "tests/fault/test_forged_requests.py",
             "tests/interop/test_coordination_faults.py"),
        ),
        "stalls": Trial(
            "no stall: a producer of one record a millisecond beside each large operation, and a dead controller's leaders",
            ("tests/fault/test_stall_trials.py",),
            {"BARNABAS_PARTITIONS": 10_000, "BARNABAS_NAMES": 99_000},
        ),
        "stalls of 20,000": Trial(
            "no stall with 20,000 partitions on one broker",
            ("tests/fault/test_stall_trials.py::test_no_large_operation_keeps_a_producer_waiting",),
            {"BARNABAS_PARTITIONS": 20_000, "BARNABAS_NAMES": 99_000},
        ),
        "stalls by records": Trial(
            "no stall by very large batches, bombs, half a million offsets, and several such things at once",
            ("tests/fault/test_stall_records.py",),
            {"BARNABAS_RECORDS": 100_000, "BARNABAS_PARTITIONS": 10_000, "BARNABAS_GROUPS": 50, "BARNABAS_BOMB_MIB": 800},
        ),
        "lying brokers": Trial(
            "every command, Admin's and a mirror's too, ends in words, in time and in little memory whatever a broker says",
            ("tests/fault/test_lying_trials.py",),
            {"BARNABAS_LIES": 1000, "BARNABAS_ELEMENTS": 1_000_000},
        ),
        "hostile requests": Trial(
            "no request that names as much as a request may holds a broker, or keeps memory",
            ("tests/fault/test_hostile_requests.py", "tests/fault/test_hostile_transactions.py"),
            {"BARNABAS_NAMES": 99_000, "BARNABAS_PARTITIONS": 10_000},
        ),
        "memory attacks": Trial(
            "what waits in memory for all peers together is bounded, others are served meanwhile, and the memory comes back",
            ("tests/fault/test_memory_attacks.py",),
            {"BARNABAS_CONNECTIONS": 1500, "BARNABAS_WAIT_S": 60},
        ),
        "failover of 3,000": Trial(
            "a killed controller's share of 3,000 partitions with three replicas has other leaders within a second",
            ("tests/fault/test_stall_trials.py::test_a_dead_controllers_leaders_move_within_a_second",),
            {"BARNABAS_PARTITIONS": 3_000},
        ),
        "60,000 replicas": Trial(
            "20,000 partitions with three replicas each: made, used, one broker killed and back, deleted; no stall",
            program=("tests/fault/at_scale.py", "replicas"),
        ),
        "catch-up": Trial(
            "a replica that is 5 GB behind at most doubles the p99 of others while it catches up",
            program=("tests/fault/at_scale.py", "catch-up"),
        ),
        "memory": Trial(
            "memory grows by 10% at most in half an hour of topics, groups, producers and connections that come and go",
            ("tests/fault/test_memory_trials.py",),
            {"BARNABAS_MINUTES": 30},
        ),
        "failed logins": Trial(
            "60,000 failed logins: others are served, the memory and the log do not grow, all users look alike",
            ("tests/fault/test_failed_logins.py",),
            {"BARNABAS_FAILED_LOGINS": 60_000},
        ),
        "memory over a day": Trial(
            "what servers hold does not grow in 24 hours of a busy cluster (simulated)",
            ("tests/simulation/test_memory_over_a_day.py",),
            {"BARNABAS_HOURS": 24},
        ),
        "power": Trial(
            "with flush.before.ack, loss of all power takes nothing that was acknowledged (simulated)",
            ("tests/simulation/test_sync_before_ack.py",),
            {"BARNABAS_BLACKOUTS": 100},
        ),
        "simulation": Trial(
            "whole clusters in virtual time: every invariant holds through kills, cuts, power losses and bad disks",
            program=(*SIMULATION, seeds),
        ),
        "simulated ensembles": Trial(
            "Zab's properties hold in ensembles in virtual time: one leader an epoch, one order of commits, nothing lost",
            program=(SIMULATION[0], "--ensemble", *SIMULATION[1:], seeds),
        ),
        "mutants": Trial(
            "the simulation notices every defect that is put into the code",
            program=("tests/simulation/mutants.py",),
        ),
        "ensemble mutants": Trial(
            "the simulation notices every defect that is put into elections, Zab and sessions",
            program=("tests/simulation/ensemble_mutants.py",),
        ),
        "rights": Trial(
            "each API in each version asks for the same rights as Apache Kafka 3.9.1's and answers alike without them; "
            "clients of others name what they lack",
            ("tests/interop/test_acl_matrix.py", "tests/interop/test_acl_strangers.py"),
            {"BARNABAS_RIGHTS": "all"},
        ),
        "rights of flows": Trial(
            "a flow and a replay of its dead letters need the rights that the page says, and without one name it",
            ("tests/spark/test_spark_rights.py",),
            {"BARNABAS_RIGHTS": "all"},
        ),
        "apache's authorizer tests": Trial(
            "Apache Kafka's own AuthorizerIntegrationTest passes with our broker in place of theirs",
            ("tests/strangers/test_apache_authorizer.py",),
            {"BARNABAS_APACHE_TESTS": "all"},
        ),
        "rule mutants": Trial(
            "each rule of security and each limit has a unit test that fails without it",
            program=("tests/rule_mutants.py",),
        ),
    }  # fmt: skip


def run(name: str, trial: Trial, *, small: bool) -> Row:
    """One trial, its output shown as it comes."""
    began = time.monotonic()
    asked = {} if small else {variable: str(value) for variable, value in trial.asked.items()}
    with tempfile.TemporaryDirectory(prefix="barnabas-trial-") as folder:
        report = Path(folder) / "report.xml"
        arguments = trial.program or ("-m", "pytest", *trial.tests, "-q", "--junitxml", str(report))
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT, env={**os.environ, **asked}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        last: list[str] = []
        for line in process.stdout:
            print(line, end="", flush=True)
            last = [*last[-3:], line.rstrip()]
        failed = process.wait() != 0
        got = figures(report) if report.exists() else last
        failed |= any(line.startswith("skipped: ") for line in got)  # what did not run proves nothing
    command = " ".join(["python", *(trial.program or ("-m", "pytest", *trial.tests))])
    if trial.program:
        asked = {"seeds": trial.program[-1]} if trial.program[0] == SIMULATION[0] else {}
    return Row(name, trial.promise, command, asked, got, not failed, round(time.monotonic() - began, 1))


def figures(report: Path) -> list[str]:
    """How many tests passed, and what they recorded."""
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    bad = {kind: [case for case in cases if case.find(kind) is not None] for kind in ("failure", "error", "skipped")}
    lines = [f"{len(cases) - sum(map(len, bad.values()))} of {len(cases)} tests passed"]
    lines += [f"{kind}: {case.get('name')}" for kind, found in bad.items() for case in found]
    for case in cases:
        recorded = [f"{each.get('name')}: {each.get('value')}" for each in case.iter("property")]
        if recorded:
            parameters = re.search(r"\[(.*)\]$", case.get("name", ""))
            lines.append((f"[{parameters[1]}] " if parameters else "") + "; ".join(recorded))
    return lines


def table(rows: Sequence[Row]) -> str:
    """For people: one block a trial."""
    widths = (52, 34, 60)
    ruler = "+".join("-" * (width + 2) for width in (*widths, 8, 6))
    lines = [ruler, _line(("promise", "trial and what was asked", "got"), widths, "seconds", "held"), ruler]
    for row in rows:
        asked = [row.name, *(f"{name}={value}" for name, value in row.asked.items())]
        columns = [
            [part for line in cell for part in (textwrap.wrap(line, width, subsequent_indent="  ") or [""])]
            for cell, width in zip(([row.promise], asked, row.got), widths, strict=True)
        ]
        for number in range(max(map(len, columns))):
            cells = tuple(column[number] if number < len(column) else "" for column in columns)
            is_first = number == 0
            held = "yes" if row.held else "NO"
            lines.append(_line(cells, widths, f"{row.duration_s:.1f}" if is_first else "", held if is_first else ""))
        lines.append(ruler)
    return "\n".join(lines)


def _line(cells: tuple[str, ...], widths: tuple[int, ...], seconds: str, held: str) -> str:
    shown = [f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True)]
    return "|".join([*shown, f" {seconds:>8} ", f" {held:<4} "])


def main(arguments: list[str] | None = None) -> int:
    """Run the trials asked for, or all; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="trials to run (default: all)")
    parser.add_argument("--seeds", default="1-10000", help="of simulated clusters (default 1-10000)")
    parser.add_argument("--small", action="store_true", help="with the numbers of CI, and 20 simulated seeds")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "trials.json", help="where the table is written")
    parser.add_argument("--list", action="store_true", help="name the trials and what they ask for")
    options = parser.parse_args(arguments)
    known = trials("1-20" if options.small else options.seeds)
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no such trial: {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = {name: trial for name, trial in known.items() if not options.names or name in options.names}
    if options.list:
        for name, trial in chosen.items():
            print(f"{name}: {trial.promise}", *(f"{key}={value}" for key, value in trial.asked.items()))
        return 0
    rows = []
    for name, trial in chosen.items():
        print(f"\n== {name}: {trial.promise}", flush=True)
        rows.append(run(name, trial, small=options.small))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    print(f"\n{table(rows)}\n\n{sum(row.held for row in rows)} of {len(rows)} trials held; also in {options.json}")
    return 0 if all(row.held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
