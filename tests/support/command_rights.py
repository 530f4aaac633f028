"""Commands and other uses of a cluster, and the rights that each needs: recorded on a cluster, as
the tables of the page about access control have them."""

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.settings import properties_text
from barnabas.cli.main import main
from barnabas.client import Admin, Producer
from barnabas.client.admin import Acl, AclFilter
from barnabas.security.acls import AclOperation, pascal_case
from barnabas.testing import Cluster

_AT = "--bootstrap-server {server} --command-config {config}"
_OF_BROKER = "--bootstrap-server {server}"


_NOT_SEEN = re.compile("the right to (describe|write)")
"""In a message about what is not there for this user, or is not done for anybody without it."""
_REFUSED = re.compile("authori[sz]", re.IGNORECASE)


class Outcome(NamedTuple):
    """How a use ended: its exit code, what it printed, and its errors."""

    code: int
    output: str
    errors: str = ""

    def is_like(self, other: "Outcome", compared: Callable[[str], object]) -> bool:
        """Whether as much came out."""
        return self.code == other.code and compared(self.output) == compared(other.output)


class Use(Protocol):
    """Something that somebody does with a cluster."""

    @property
    def shown(self) -> str:
        """As the table has it."""

    @property
    def prepare(self) -> "Callable[[Cluster, Admin], object] | None":
        """What an administrator does before."""

    @property
    def compared(self) -> Callable[[str], object]:
        """What of its output is the same each time."""

    def run(self, cluster: Cluster, folder: Path, user: str) -> Outcome:
        """Do it as a user, in this process."""


@dataclass(frozen=True)
class Command:
    """A command line as the table has it, and what it needs to run."""

    shown: str
    options: str = _AT
    text: str = ""
    """What it reads from standard input."""
    files: Mapping[str, object] = field(default_factory=dict)
    prepare: Callable[[Cluster, Admin], object] | None = None
    compared: Callable[[str], object] = str

    def run(self, cluster: Cluster, folder: Path, user: str) -> Outcome:
        """Run it as `barnabas` does."""
        output, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
        standard_input, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(self.text.encode()))
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                code = main(self.arguments(cluster.bootstrap_servers, config_file(cluster, folder, user), folder))
        finally:
            sys.stdin = standard_input
        return Outcome(code, output.buffer.getvalue().decode(), errors.getvalue())

    def arguments(self, server: str, config: Path, folder: Path) -> list[str]:
        """The arguments of ``barnabas``."""
        values = {"server": server, "config": str(config), "folder": str(folder)}
        for name, content in self.files.items():
            (folder / name).write_text(json.dumps(content))
        return [word.format(**values) for word in f"{self.shown} {self.options}".split()]


@dataclass(frozen=True)
class Call:
    """A use by a program, with the properties of a user's clients; it returns what is to be the
    same each time."""

    shown: str
    call: Callable[[dict[str, str]], object]
    prepare: Callable[[Cluster, Admin], object] | None = None
    compared: Callable[[str], object] = str

    def run(self, cluster: Cluster, folder: Path, user: str) -> Outcome:
        """Call it; an error is like that of a command."""
        del folder
        try:
            return Outcome(0, repr(self.call(cluster.client_properties(user))))
        except BarnabasError as error:
            return Outcome(1, "", str(error))


def existing_topic(name: str) -> Callable[[Cluster, Admin], object]:
    return lambda _, admin: admin.create_topic(name, partitions=1, replication_factor=1, if_not_exists=True)


def no_topic(name: str) -> Callable[[Cluster, Admin], object]:
    return lambda _, admin: admin.delete_topics([name]) if name in admin.list_topics() else None


def group_with_offset(name: str) -> Callable[[Cluster, Admin], object]:
    return lambda _, admin: admin.alter_group_offsets(name, {TopicPartition("orders", 0): 1})


def _copies(cluster: Cluster, admin: Admin) -> None:
    group_with_offset("cooks")(cluster, admin)
    existing_topic("copies")(cluster, admin)


def _figures(_: str) -> object:
    """Of a measurement nothing is the same."""


def _names(text: str) -> object:
    """The topics and groups of a snapshot, whose times differ; but the cluster's own topics, which
    users hardly may describe."""
    found = json.loads(text or "{}")
    names = [[each["name"] for each in found.get(kind, ())] for kind in ("topics", "groups")]
    return [[name for name in some if not name.startswith("__")] for some in names]


def _lags(text: str) -> object:
    """Of groups, and how their seconds were found."""
    return [
        (each["group"], each["lag"], each["lag_seconds_source"]) for each in json.loads(text or "{}").get("groups", ())
    ]


def _events(text: str) -> object:
    """Which events were printed, and not when."""
    return set(re.findall(r'"name":"(\w+)"', text))


_CONSUMER = f"{_OF_BROKER} --consumer.config {{config}}"
_PRODUCER = f"{_OF_BROKER} --producer.config {{config}}"
_RECORDS = {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}], "version": 1}
_PLAN = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [0], "log_dirs": ["any"]}]}

_OF_PLAN = f"{_AT} --reassignment-json-file {{folder}}/plan.json"

COMMANDS = (
    Command("console-producer --topic orders", _PRODUCER, text="one\n"),
    Command(
        "console-consumer --topic orders --group kitchen",
        f"{_CONSUMER} --from-beginning --max-messages 1 --timeout-ms 30000",
    ),
    Command("tail orders", f"{_AT} --no-follow"),
    Command("cat -C -t orders", "-b {server} -F {config} -e"),
    Command("cat -P -t orders", "-b {server} -F {config}", text="one\n"),
    Command("cat -L -t orders", "-b {server} -F {config}"),
    Command("overview"),
    Command("top --output json", compared=_names),
    Command("lag --output json", compared=_lags),
    Command("groups list"),
    Command("topics --list"),
    Command("topics --describe --topic orders"),
    Command(
        "topics --create --topic new",
        prepare=no_topic("new"),
    ),
    Command("topics --alter --topic grown --partitions 2", prepare=existing_topic("grown")),
    Command("topics --delete --topic gone", prepare=existing_topic("gone")),
    Command("get-offsets --topic orders"),
    Command("delete-records", f"{_AT} --offset-json-file {{folder}}/records.json", files={"records.json": _RECORDS}),
    Command("consumer-groups --list"),
    Command("consumer-groups --describe --group cooks", prepare=group_with_offset("cooks")),
    Command(
        "consumer-groups --reset-offsets --group cooks --topic orders --to-earliest --execute",
        prepare=group_with_offset("cooks"),
    ),
    Command("consumer-groups --delete-offsets --group cooks --topic orders", prepare=group_with_offset("cooks")),
    Command("consumer-groups --delete --group cooks", prepare=group_with_offset("cooks")),
    Command("groups seek cooks --to start", prepare=group_with_offset("cooks")),
    Command("configs --describe --entity-type topics --entity-name orders"),
    Command("configs --alter --entity-type topics --entity-name orders --add-config retention.ms=1000000"),
    Command("configs --describe --entity-type brokers --entity-name 0"),
    Command("configs --alter --entity-type brokers --entity-name 0 --add-config log.cleaner.threads=1"),
    Command("configs --describe --entity-type users"),
    Command("configs --alter --entity-type users --entity-name eve --add-config SCRAM-SHA-256=[password=secret]"),
    Command("acls --list"),
    Command("acls --add --allow-principal User:eve --topic orders"),
    Command("acls --remove --topic orders --force"),
    Command("log-dirs --describe"),
    Command("broker-api-versions"),
    Command("cluster cluster-id", _OF_BROKER + " --config {config}"),
    Command("leader-election --election-type preferred --all-topic-partitions"),
    Command("reassign-partitions --list"),
    Command("reassign-partitions --execute", _OF_PLAN, files={"plan.json": _PLAN}),
    Command("replica-verification --once", "--broker-list {server} --command-config {config} --topics-include orders"),
    Command("reassign-partitions --verify", _OF_PLAN, files={"plan.json": _PLAN}),
    Command("reassign-partitions --cancel", _OF_PLAN, files={"plan.json": _PLAN}),
    Command(
        "reassign-partitions --generate --broker-list 0",
        f"{_AT} --topics-to-move-json-file {{folder}}/topics.json",
        files={"topics.json": {"topics": [{"topic": "orders"}], "version": 1}},
    ),
    Command("leader-election --election-type preferred --topic orders --partition 0"),
    Command("cluster list-endpoints", _OF_BROKER + " --config {config}"),
    Command("configs --describe --entity-type broker-loggers --entity-name 0"),
    Command(
        "configs --alter --entity-type broker-loggers --entity-name 0 --add-config kafka.authorizer.logger=INFO",
    ),
    Command("transactions list"),
    Command("transactions describe --transactional-id till"),
    Command("transactions describe-producers --topic orders --partition 0"),
    Command("transactions find-hanging --topic orders --partition 0"),
    Command("transactions forceTerminateTransaction --transactional-id till"),
    Command("features describe"),
    Command("features upgrade --feature transaction.version=2 --dry-run"),
    Command(
        "producer-perf-test --topic orders",
        f"{_PRODUCER} --num-records 3 --record-size 10 --throughput -1",
        compared=_figures,
    ),
    Command(
        "producer-perf-test --topic orders --transactional-id till",
        f"{_PRODUCER} --num-records 3 --record-size 10 --throughput -1 --transaction-duration-ms 1000",
        compared=_figures,
    ),
    Command(
        "consumer-perf-test --topic orders --group cooks",
        f"{_CONSUMER} --messages 1 --timeout 30000",
        prepare=group_with_offset("cooks"),
        compared=_figures,
    ),
    Command("e2e-latency", "{server} orders 1 all 10 {config}", compared=_figures),
    Command("verifiable-producer --topic orders", f"{_PRODUCER} --max-messages 1", compared=_events),
    Command(
        "verifiable-consumer --topic orders --group-id cooks",
        f"{_CONSUMER} --max-messages 1",
        prepare=group_with_offset("cooks"),
        compared=_figures,
    ),
    Command(
        "transactional-message-copier --input-topic orders --output-topic copies --consumer-group cooks "
        "--transactional-id till",
        "--broker-list {server} --command-config {config} --input-partition 0 --max-messages 1",
        prepare=_copies,
        compared=_figures,
    ),
)

WITHOUT_RIGHTS = frozenset(
    (
        *("up", "status", "logs", "down", "server-start", "server-stop"),
        *("zookeeper-server-start", "zookeeper-server-stop", "zookeeper-shell", "zookeeper-status", "zookeeper-dump"),
        *("dump-log", "lost-records", "context", "completion", "shims", "run-class", "metrics"),
    )
)
"""Commands that ask brokers for nothing."""
_ELSEWHERE = frozenset(("doctor", "mirror-maker", "pipeline", "registry", "rest"))
"""Commands that run for long: what they run is in another table, or recorded elsewhere. The doctor
needs no right, and names those that it lacks (tests/interop/test_doctor_rights.py)."""


def commands_in_tables() -> set[str]:
    """The names of the commands whose rights are known."""
    return {command.shown.split()[0] for command in COMMANDS} | WITHOUT_RIGHTS | _ELSEWHERE


@contextmanager
def cluster_with_orders(**options: object) -> Iterator[tuple[Cluster, Admin]]:
    """A cluster with a topic that has records, and its administrator."""
    with Cluster(**options) as cluster, Admin(cluster.client_properties("admin")) as admin:
        cluster.create_topic("orders")
        with Producer(cluster.client_properties("admin")) as producer:
            for number in range(3):
                producer.send("orders", str(number))
        with Producer({**cluster.client_properties("admin"), "transactional.id": "till"}) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("orders", "3")
        yield cluster, admin


def config_file(cluster: Cluster, folder: Path, user: str) -> Path:
    """The file with which a user connects."""
    path = folder / f"{user}.properties"
    path.write_text(properties_text(cluster.client_properties(user, java=True)))
    return path


def rights_text(acls: Sequence[Acl]) -> str:
    """As the table has them."""
    on: dict[tuple[str, str], list[str]] = {}
    for acl in acls:
        name = acl.resource_name if acl.pattern_type == "LITERAL" else f"{acl.resource_name}*"
        on.setdefault((acl.resource_type, name), []).append(pascal_case(AclOperation[acl.operation]))
    texts = []
    for (kind, name), operations in sorted(on.items()):
        resource = "the cluster" if kind == "CLUSTER" else f"{kind.lower().replace('_', ' ')} `{name}`"
        texts.append(f"{', '.join(sorted(operations))} on {resource}")
    return "; ".join(texts) or "none"


def recorded_rights(uses: Sequence[Use], folder: Path) -> Mapping[str, list[Acl]]:
    """What each use asks for, by what is shown of it.

    Each has a user of its own: the last requests of a consumer that has ended may come late."""
    users = {use.shown: f"user-{number}" for number, use in enumerate(uses)}
    with cluster_with_orders(record_acls=True, users=dict.fromkeys(users.values(), "secret")) as (cluster, admin):
        for use in uses:
            outcome = _run(use, cluster, admin, folder, users[use.shown])
            assert outcome.code == 0, (use.shown, outcome)
        suggested = cluster.suggested_acls()
    return {
        shown: [replace(acl, principal="User:app") for acl in suggested if acl.principal == f"User:{user}"]
        for shown, user in users.items()
    }


def needed_rights(uses: Sequence[Use], recorded: Mapping[str, list[Acl]], folder: Path) -> Mapping[str, list[Acl]]:
    """Those without which a use fails with a clear error, or shows less; with these alone it works
    as with all."""
    found, unclear = {}, []
    with cluster_with_orders(acls=[]) as (cluster, admin):
        for use in uses:
            needed = recorded[use.shown]
            _allow(admin, needed)
            whole = _run(use, cluster, admin, folder, "app")
            assert whole.code == 0, (use.shown, whole)
            refusals = []
            for acl in list(needed):
                fewer = [each for each in needed if each is not acl]
                _allow(admin, fewer)
                outcome = _run(use, cluster, admin, folder, "app")
                if outcome.is_like(whole, use.compared):
                    needed = fewer
                else:
                    refusals.append((acl, outcome))
            unclear += [
                (use.shown, rights_text([acl]), outcome)
                for acl, outcome in refusals
                if not is_clear(acl, outcome, whole)
            ]
            found[use.shown] = needed
    assert not unclear, "\n".join(map(str, unclear))
    return found


def is_clear(acl: Acl, outcome: Outcome, whole: Outcome) -> bool:
    """Whether somebody can tell which right is missing, or a list only has less in it."""
    text = outcome.errors + outcome.output
    if _NOT_SEEN.search(text):
        return True
    names_it = acl.resource_type == "CLUSTER" or acl.resource_name in text
    if names_it and _REFUSED.search(text):
        return True
    return outcome.code == 0 and len(outcome.output) < len(whole.output)


def _run(use: Use, cluster: Cluster, admin: Admin, folder: Path, user: str) -> Outcome:
    if use.prepare is not None:
        use.prepare(cluster, admin)
    return use.run(cluster, folder, user)


def _allow(admin: Admin, acls: Sequence[Acl]) -> None:
    """These and no others."""
    admin.delete_acls(AclFilter(principal="User:app"))
    admin.create_acls(acls)
