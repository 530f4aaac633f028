"""Commands against a lying broker: which there are, what each asks, and how each took a lie."""

import contextlib
import io
import json
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from barnabas.cli.main import main
from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.client import Admin, Producer, TopicPartition
from barnabas.testing import Cluster
from support.lying_broker import Lie, LyingBroker

LIMIT_S = 20.0
"""A command that takes longer hangs."""
CONFIG = "request.timeout.ms=2000\ndefault.api.timeout.ms=1000\n"


class Outcome(NamedTuple):
    """How a command ended. ``status`` is -1 for a traceback, -2 for a hang."""

    status: int
    out: str
    error: str

    @property
    def is_clear(self) -> bool:
        """Whether it ended as a command should, lied to or not: done, or failed with words."""
        if self.status == INCOMPLETE:  # also the doctor's for a cluster that it cannot read
            return "Incomplete:" in self.error or "Error: " in self.error
        return self.status in (0, 1) and "Traceback" not in self.error and (self.status == 0 or bool(self.text))

    @property
    def text(self) -> str:
        """What was said of a failure."""
        return self.error.strip() or self.out.strip()


class _HangError(BaseException):
    pass


def run(arguments: list[str], limit_s: float = LIMIT_S) -> Outcome:
    """Run a command in this process, as ``main`` does.

    Only for the main thread: a signal ends what hangs."""
    # Some commands write bytes.
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    error = io.StringIO()

    def printed() -> str:
        return out.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]  # it is a BytesIO

    def on_alarm(_: int, frame: FrameType | None) -> None:
        raise _HangError("".join(traceback.format_stack(frame)[-4:]))

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = main(arguments)
    except _HangError as hang:
        return Outcome(-2, printed(), str(hang))
    except BaseException:  # whatever main lets pass is a traceback for a person
        return Outcome(-1, printed(), traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return Outcome(status, printed(), error.getvalue())


@dataclass(frozen=True)
class Command:
    """A command line; ``{server}``, ``{config}`` and ``{folder}`` are filled in.

    ``prepare`` runs before each time."""

    line: str
    prepare: Callable[[Cluster], None] | None = None
    files: Mapping[str, object] = field(default_factory=dict)
    """JSON files in the folder."""

    @property
    def name(self) -> str:
        return self.line.replace("--bootstrap-server {server} --command-config {config}", "...")

    def arguments(self, server: str, folder: Path) -> list[str]:
        config = folder / "client.properties"
        config.write_text(CONFIG)
        for name, content in self.files.items():
            (folder / name).write_text(json.dumps(content))
        values = {"server": server, "config": str(config), "folder": str(folder)}
        return [word.format(**values) for word in self.line.split(" ")]


def _make(name: str) -> Callable[[Cluster], None]:
    def prepare(cluster: Cluster) -> None:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topic(name, partitions=2, replication_factor=1, if_not_exists=True)

    return prepare


def _commit(group: str) -> Callable[[Cluster], None]:
    def prepare(cluster: Cluster) -> None:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.alter_group_offsets(group, {TopicPartition("orders", 0): 1})

    return prepare


_AT = "--bootstrap-server {server} --command-config {config}"
_PLAN = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [0], "log_dirs": ["any"]}]}
_TOPICS = {"version": 1, "topics": [{"topic": "orders"}]}
_ELECTION = {"partitions": [{"topic": "orders", "partition": 0}]}
_RECORDS = {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}], "version": 1}

READING = tuple(
    Command(line, files={"plan.json": _PLAN, "topics.json": _TOPICS, "election.json": _ELECTION})
    for line in (
        f"overview {_AT}",
        f"overview {_AT} --output json",
        f"lag {_AT} --output json",
        f"top {_AT} --output json",
        f"doctor {_AT}",
        f"topics {_AT} --list",
        f"acls {_AT} --list",
        f"topics {_AT} --describe",
        f"topics {_AT} --describe --topic orders",
        f"topics {_AT} --describe --under-min-isr-partitions",
        f"topics {_AT} --describe --output json",
        f"get-offsets {_AT}",
        f"get-offsets {_AT} --topic orders --partitions 0 --time earliest",
        f"consumer-groups {_AT} --timeout 1000 --list",
        f"consumer-groups {_AT} --timeout 1000 --list --state --type",
        f"consumer-groups {_AT} --timeout 1000 --describe --all-groups",
        f"consumer-groups {_AT} --timeout 1000 --describe --group readers --members --verbose",
        f"consumer-groups {_AT} --timeout 1000 --describe --group readers --state",
        f"consumer-groups {_AT} --timeout 1000 --reset-offsets --group readers --topic orders --to-earliest --dry-run",
        f"groups list {_AT}",
        f"configs {_AT} --describe --entity-type topics --entity-name orders --all",
        f"configs {_AT} --describe --entity-type topics",
        f"configs {_AT} --describe --entity-type brokers --entity-name 0 --all",
        f"configs {_AT} --describe --entity-type brokers --entity-default",
        f"configs {_AT} --describe --entity-type users",
        f"configs {_AT} --describe --entity-type clients --entity-name ann",
        f"log-dirs {_AT} --describe",
        f"log-dirs {_AT} --describe --output json",
        f"broker-api-versions {_AT}",
        f"broker-api-versions {_AT} --output json",
        "cluster cluster-id --bootstrap-server {server} --config {config}",
        "cluster list-endpoints --bootstrap-server {server} --config {config}",
        f"consumer-groups {_AT} --timeout 1000 --describe --group new",
        f"reassign-partitions {_AT} --list",
        f"reassign-partitions {_AT} --verify --reassignment-json-file {{folder}}/plan.json --preserve-throttles",
        f"reassign-partitions {_AT} --generate --topics-to-move-json-file {{folder}}/topics.json --broker-list 0",
        f"transactions {_AT} list",
        f"transactions {_AT} describe --transactional-id copy-1",
        f"transactions {_AT} describe-producers --topic orders --partition 0",
        f"features {_AT} describe",
        f"replica-verification {_AT} --once --time -2 --max-wait-ms 200",
    )
)
CHANGING = (
    Command("cluster unregister --id 7 --bootstrap-server {server} --config {config}"),
    Command(f"topics {_AT} --create --topic made --partitions 2 --if-not-exists"),
    Command(f"topics {_AT} --delete --topic gone", _make("gone")),
    Command(f"topics {_AT} --alter --topic orders --partitions 3"),
    Command(f"configs {_AT} --alter --entity-type topics --entity-name orders --add-config retention.ms=1000000"),
    Command(f"configs {_AT} --alter --entity-type users --entity-name ann --add-config consumer_byte_rate=1000000"),
    Command(
        f"configs {_AT} --alter --entity-type users --entity-name ann --add-config SCRAM-SHA-256=[password=secret]"
    ),
    Command(
        f"delete-records {_AT} --offset-json-file {{folder}}/records.json",
        files={"records.json": _RECORDS},
    ),
    Command(f"acls {_AT} --add --allow-principal User:ann --operation Read --topic orders"),
    Command(f"acls {_AT} --remove --topic orders --force"),
    Command(f"leader-election {_AT} --election-type preferred --all-topic-partitions"),
    Command(
        f"leader-election {_AT} --election-type preferred --path-to-json-file {{folder}}/election.json",
        files={"election.json": _ELECTION},
    ),
    Command(
        f"reassign-partitions {_AT} --execute --reassignment-json-file {{folder}}/plan.json --timeout 500",
        files={"plan.json": _PLAN},
    ),
    Command(
        f"reassign-partitions {_AT} --cancel --reassignment-json-file {{folder}}/plan.json", files={"plan.json": _PLAN}
    ),
    Command(
        f"consumer-groups {_AT} --timeout 1000 --reset-offsets --group readers --topic orders --to-earliest --execute"
    ),
    Command(
        f"consumer-groups {_AT} --timeout 1000 --delete-offsets --group leavers --topic orders", _commit("leavers")
    ),
    Command(f"consumer-groups {_AT} --timeout 1000 --delete --group leavers", _commit("leavers")),
    Command(f"groups seek movers {_AT} --topic orders --to earliest", _commit("movers")),
)


_BROKERS = "--bootstrap-server {server}"
OF_LIBRDKAFKA = (
    f"tail orders {_BROKERS} --no-follow",
    f"console-consumer {_BROKERS} --topic orders --from-beginning --timeout-ms 1000",
    f"console-consumer {_BROKERS} --topic orders --partition 0 --offset earliest --max-messages 2 --timeout-ms 1000",
    f"console-producer {_BROKERS} --topic written --request-timeout-ms 2000",
    "cat -b {server} -C -t orders -e",
    "cat -b {server} -L",
    f"consumer-perf-test {_BROKERS} --topic orders --messages 3 --timeout 2000",
    f"producer-perf-test {_BROKERS} --topic written --num-records 5 --record-size 10 --throughput -1 --producer-props "
    "delivery.timeout.ms=3000 request.timeout.ms=2000 linger.ms=0",
    "e2e-latency {server} written 2 1 10",
    f"verifiable-producer {_BROKERS} --topic written --max-messages 3",
    f"verifiable-consumer {_BROKERS} --topic orders --group-id verifiable --max-messages 3",
    "transactional-message-copier --broker-list {server} --input-topic orders --input-partition 0 --output-topic written "
    "--max-messages 2 --consumer-group copiers --transactional-id copy-1",
    "mirror-maker --consumer.config {folder}/source.properties --producer.config {folder}/target.properties --include orders",
)
"""Commands that read and write records: librdkafka takes most answers, and a process
of its own runs each."""


@contextlib.contextmanager
def small_cluster() -> Iterator[Cluster]:
    """One broker with a topic of three partitions, records, and two groups with offsets."""
    everybody = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
    with Cluster(settings=everybody) as cluster:
        cluster.create_topic("orders", partitions=3)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for number in range(9):
                producer.send("orders", str(number), partition=number % 3)
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            for group in ("readers", "new"):
                admin.alter_group_offsets(group, {TopicPartition("orders", number): 1 for number in range(3)})
        yield cluster


class Trial(NamedTuple):
    """A lie and how a command took it."""

    command: Command
    api_key: int
    lie: Lie
    outcome: Outcome
    honest: Outcome


def asked_by(command: Command, cluster: Cluster, liar: LyingBroker, folder: Path) -> tuple[dict[int, int], Outcome]:
    """The APIs that a command uses, with their versions, and how it ends without a lie."""
    liar.tell(-1, None)
    outcome = run_lied_to(command, cluster, liar, folder)
    return dict(liar.seen), outcome


def run_lied_to(command: Command, cluster: Cluster, liar: LyingBroker, folder: Path) -> Outcome:
    """Run a command after what must precede it."""
    if command.prepare is not None:
        command.prepare(cluster)
    return run(command.arguments(liar.address, folder))
