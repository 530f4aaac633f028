"""Commands, and the rights that each needs: recorded on a cluster, as the table of the page about
access control has them."""

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.settings import properties_text
from barnabas.cli.main import main
from barnabas.client import Admin, Producer
from barnabas.client.admin import Acl, AclFilter
from barnabas.security.acls import AclOperation, pascal_case
from barnabas.testing import Cluster

_AT = "--bootstrap-server {server} --command-config {config}"
_OF_BROKER = "--bootstrap-server {server}"


@dataclass(frozen=True)
class Command:
    """A command line as the table has it, and what it needs to run."""

    shown: str
    options: str = _AT
    text: str = ""
    """What it reads from standard input."""
    files: Mapping[str, object] = field(default_factory=dict)
    prepare: Callable[[Admin], object] | None = None

    def arguments(self, server: str, config: Path, folder: Path) -> list[str]:
        """The arguments of ``barnabas``."""
        values = {"server": server, "config": str(config), "folder": str(folder)}
        for name, content in self.files.items():
            (folder / name).write_text(json.dumps(content))
        return [word.format(**values) for word in f"{self.shown} {self.options}".split()]


def _topic(name: str) -> Callable[[Admin], object]:
    return lambda admin: admin.create_topic(name, partitions=1, replication_factor=1, if_not_exists=True)


def _group(name: str) -> Callable[[Admin], object]:
    return lambda admin: admin.alter_group_offsets(name, {TopicPartition("orders", 0): 1})


_CONSUMER = f"{_OF_BROKER} --consumer.config {{config}}"
_PRODUCER = f"{_OF_BROKER} --producer.config {{config}}"
_RECORDS = {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}], "version": 1}
_PLAN = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [0], "log_dirs": ["any"]}]}

COMMANDS = (
    Command("console-producer --topic orders", _PRODUCER, text="one\n"),
    Command(
        "console-consumer --topic orders --group kitchen",
        f"{_CONSUMER} --from-beginning --max-messages 1 --timeout-ms 30000",
    ),
    Command("tail orders", f"{_AT} --no-follow"),
    Command("cat -C -t orders", "-b {server} -F {config} -e"),
    Command("overview"),
    Command("groups list"),
    Command("topics --list"),
    Command("topics --describe --topic orders"),
    Command(
        "topics --create --topic new",
        prepare=lambda admin: admin.delete_topics(["new"]) if "new" in admin.list_topics() else None,
    ),
    Command("topics --alter --topic grown --partitions 2", prepare=_topic("grown")),
    Command("topics --delete --topic gone", prepare=_topic("gone")),
    Command("get-offsets --topic orders"),
    Command("delete-records", f"{_AT} --offset-json-file {{folder}}/records.json", files={"records.json": _RECORDS}),
    Command("consumer-groups --list"),
    Command("consumer-groups --describe --group cooks", prepare=_group("cooks")),
    Command(
        "consumer-groups --reset-offsets --group cooks --topic orders --to-earliest --execute", prepare=_group("cooks")
    ),
    Command("consumer-groups --delete-offsets --group cooks --topic orders", prepare=_group("cooks")),
    Command("consumer-groups --delete --group cooks", prepare=_group("cooks")),
    Command("groups seek cooks --to start", prepare=_group("cooks")),
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
    Command(
        "reassign-partitions --execute",
        f"{_AT} --reassignment-json-file {{folder}}/plan.json",
        files={"plan.json": _PLAN},
    ),
    Command("replica-verification --once", "--broker-list {server} --command-config {config} --topics-include orders"),
    Command("transactions list"),
    Command("features describe"),
)


@contextmanager
def cluster_with_orders(**options: object) -> Iterator[tuple[Cluster, Admin]]:
    """A cluster with a topic that has records, and its administrator."""
    with Cluster(**options) as cluster, Admin(cluster.client_properties("admin")) as admin:
        cluster.create_topic("orders")
        with Producer(cluster.client_properties("admin")) as producer:
            for number in range(3):
                producer.send("orders", str(number))
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
        on.setdefault((acl.resource_type, acl.resource_name), []).append(pascal_case(AclOperation[acl.operation]))
    texts = []
    for (kind, name), operations in sorted(on.items()):
        resource = "the cluster" if kind == "CLUSTER" else f"{kind.lower().replace('_', ' ')} `{name}`"
        texts.append(f"{', '.join(sorted(operations))} on {resource}")
    return "; ".join(texts) or "none"


class Outcome(NamedTuple):
    """How a command ended: its exit code and what it printed."""

    code: int
    output: str


def run(command: Command, cluster: Cluster, admin: Admin, folder: Path, user: str) -> Outcome:
    """Run a command as a user, in this process, after what must precede it."""
    if command.prepare is not None:
        command.prepare(admin)
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    standard_input, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(command.text.encode()))
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            code = main(command.arguments(cluster.bootstrap_servers, config_file(cluster, folder, user), folder))
    finally:
        sys.stdin = standard_input
    return Outcome(code, output.buffer.getvalue().decode())


def recorded_rights(folder: Path) -> Mapping[str, list[Acl]]:
    """What each command asks for, by the command.

    Each has a user of its own: the last requests of a consumer that has ended may come late."""
    users = {command.shown: f"user-{number}" for number, command in enumerate(COMMANDS)}
    with cluster_with_orders(record_acls=True, users=dict.fromkeys(users.values(), "secret")) as (cluster, admin):
        for command in COMMANDS:
            assert run(command, cluster, admin, folder, users[command.shown]).code == 0, command.shown
        suggested = cluster.suggested_acls()
    return {
        shown: [replace(acl, principal="User:app") for acl in suggested if acl.principal == f"User:{user}"]
        for shown, user in users.items()
    }


def needed_rights(recorded: Mapping[str, list[Acl]], folder: Path) -> Mapping[str, list[Acl]]:
    """Those without which a command fails, or prints something else; with these alone it works as
    with all."""
    found = {}
    with cluster_with_orders(acls=[]) as (cluster, admin):
        for command in COMMANDS:
            needed = recorded[command.shown]
            _allow(admin, needed)
            whole = run(command, cluster, admin, folder, "app")
            assert whole.code == 0, (command.shown, whole)
            for acl in list(needed):
                fewer = [each for each in needed if each is not acl]
                _allow(admin, fewer)
                if run(command, cluster, admin, folder, "app") == whole:
                    needed = fewer
            found[command.shown] = needed
    return found


def _allow(admin: Admin, acls: Sequence[Acl]) -> None:
    """These and no others."""
    admin.delete_acls(AclFilter(principal="User:app"))
    admin.create_acls(acls)
