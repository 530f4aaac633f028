"""Every command that reads a cluster, while a part of the cluster is down: an answer
within one deadline.

Broker 1 alone has the topic ``lone``; all brokers have ``wide``. What a fault leaves reachable is
printed, what it does not is named on standard error, and the exit status says which of the two it
was. ``BARNABAS_COMMANDS=all`` (in ``make trials``) tries all commands; CI a few.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.client import Admin, Consumer, Producer
from barnabas.testing.processes import ProcessCluster
from support.ports import free_ports
from support.relay import Relay
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]

DEADLINE_S = 2.0
LIMIT_S = DEADLINE_S + 10.0
"""Python's start on a machine with other work comes on top; what ignores the
deadline takes a minute."""
BYTE_S = 0.3
AT_ONCE = 3
DONE, FAILED, INCOMPLETE = 0, 1, 3
VICTIM = 1
RECORDS = 9
COMPLETE, PARTIAL, NO_ANSWER = frozenset((DONE,)), frozenset((INCOMPLETE,)), frozenset((FAILED,))


@dataclass(frozen=True)
class Command:
    """A command line without the address, and what it needs."""

    words: str
    needs: str = "any"
    """``any`` broker, ``all`` brokers or partitions, the ``leaders`` of a topic with replicas on
    all brokers, the ``controller``, ``coordination``, or the ``victim``, broker 1, alone."""
    has_own_timeout: bool = False
    """``--timeout`` is Kafka's and means another time."""


COMMANDS = (
    Command("overview", "all"),
    Command("get-offsets", "all"),
    Command("get-offsets --topic wide", "leaders"),
    Command("topics --list"),
    Command("topics --describe"),
    Command("consumer-groups --describe --all-groups", "all", has_own_timeout=True),
    Command("log-dirs --describe", "all"),
    Command("tail lone --no-follow", "victim"),
    Command("overview --output json", "all"),
    Command("get-offsets --output json", "all"),
    Command("topics --describe --unavailable-partitions"),
    Command("topics --describe --output json"),
    Command("consumer-groups --list", "leaders", has_own_timeout=True),
    Command("consumer-groups --describe --group readers", "all", has_own_timeout=True),
    Command("consumer-groups --describe --group readers --members", "leaders", has_own_timeout=True),
    Command("consumer-groups --describe --group readers --state", "leaders", has_own_timeout=True),
    Command("consumer-groups --describe --all-groups --output json", "all", has_own_timeout=True),
    Command("groups list", "all"),
    Command("configs --describe --entity-type topics --entity-name wide"),
    Command("configs --describe --entity-type topics --all"),
    Command("configs --describe --entity-type brokers --entity-name 1", "victim"),
    Command("configs --describe --entity-type brokers --all", "all"),
    Command("configs --describe --entity-type users", "controller"),
    Command("broker-api-versions", "all"),
    Command("cluster cluster-id"),
    Command("cluster list-endpoints"),
    Command("reassign-partitions --list", "controller", has_own_timeout=True),
    Command("replica-verification --once", "all"),
    Command("tail wide --no-follow", "leaders"),
    Command("cat -L"),
    Command("zookeeper-status ZOOKEEPER", "coordination"),
    Command("zookeeper-shell ZOOKEEPER ls /brokers/ids", "coordination", has_own_timeout=True),
)
SAMPLE = COMMANDS if os.environ.get("BARNABAS_COMMANDS") == "all" else COMMANDS[:8]
BOOTSTRAP_OPTION = {"cat": "-b"}


@dataclass(frozen=True)
class Scene:
    """A cluster with a relay before broker 1, which its clients and the other
    brokers go through."""

    cluster: ProcessCluster
    relay: Relay
    bootstrap: str

    def controller(self) -> int:
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            return admin.describe_cluster().controller_id


@contextmanager
def scene(directory: Path) -> Iterator[Scene]:
    """Three brokers with topics, records and a group; broker 1 is not the controller."""
    # Sessions outlast the test: a frozen broker stays a member, and a frozen
    # controller the controller.
    settings = {"zookeeper.session.timeout.ms": "30000", "offsets.topic.num.partitions": "3"}
    with ExitStack() as stack:
        cluster = stack.enter_context(ProcessCluster(3, data_dir=directory, settings=settings))
        direct = cluster.bootstrap_servers.split(",")
        relay = stack.enter_context(Relay(*free_ports(1), int(direct[VICTIM].rpartition(":")[2])))
        cluster.stop_broker(VICTIM)
        with cluster.properties_file(VICTIM).open("a") as file:
            file.write(f"\nadvertised.listeners=PLAINTEXT://127.0.0.1:{relay.port}\n")
        cluster.start_broker(VICTIM)
        bootstrap = f"127.0.0.1:{relay.port},{direct[0]},{direct[2]}"
        prepare(bootstrap)
        yield Scene(cluster, relay, bootstrap)


def prepare(bootstrap: str) -> None:
    """Topics with records, and a group that has read them all."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        eventually(lambda: len(admin.describe_cluster().brokers) == 3, what="three brokers")
        admin.create_topic("lone", assignment=[[VICTIM]])
        admin.create_topic("wide", assignment=[[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    with Producer({"bootstrap.servers": bootstrap, "acks": "all"}) as producer:
        for topic in ("lone", "wide"):
            for number in range(RECORDS):
                producer.send(topic, str(number))
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe(["lone", "wide"])
        for _ in range(2 * RECORDS):
            next(iter(consumer))
        consumer.commit()


def a_broker_dies(scene: Scene) -> None:
    """Broker 1 is killed, and the others know it."""
    scene.cluster.kill_broker(VICTIM)
    scene.relay.cut()
    without_victim = scene.bootstrap.partition(",")[2]
    with Admin({"bootstrap.servers": without_victim}) as admin:
        eventually(lambda: len(admin.describe_cluster().brokers) == 2, what="two brokers")


def a_broker_freezes(scene: Scene) -> None:
    """Broker 1 stands still; its kernel accepts connections."""
    scene.cluster.pause_broker(VICTIM)


def a_broker_trickles(scene: Scene) -> None:
    """Broker 1 answers everyone, a byte at a time."""
    scene.relay.trickle(BYTE_S)


def the_controller_freezes(scene: Scene) -> None:
    """Until its session ends, no other broker becomes the controller."""
    scene.cluster.pause_broker(scene.controller())


def the_controller_dies(scene: Scene) -> None:
    """The commands start at once: an election may be going on."""
    scene.cluster.kill_broker(scene.controller())


def coordination_dies(scene: Scene) -> None:
    """Brokers serve what they have."""
    scene.cluster.kill_zookeeper()


def all_die(scene: Scene) -> None:
    """No broker and no coordination server is left."""
    for broker_id in (0, 1, 2):
        scene.cluster.kill_broker(broker_id)
    scene.cluster.kill_zookeeper()


@dataclass(frozen=True)
class Outcome:
    """What became of a command."""

    command: Command
    status: int
    took_s: float
    out: str
    err: str


def run(command: Command, scene: Scene) -> Outcome:
    """Run it as a user does; one that does not end is interrupted long after its deadline."""
    name, *rest = command.words.replace("ZOOKEEPER", scene.cluster.zookeeper_connect).split()
    words = [sys.executable, "-m", "barnabas", name, *rest]
    if command.needs != "coordination":
        words += [BOOTSTRAP_OPTION.get(name, "--bootstrap-server"), scene.bootstrap]
    words += ["--connect-timeout" if command.has_own_timeout else "--timeout", str(DEADLINE_S)]
    began = time.monotonic()
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate()
    return Outcome(command, process.returncode, time.monotonic() - began, out, err)


def outcomes(scene: Scene) -> list[Outcome]:
    """Of all commands, a few at a time."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda command: run(command, scene), SAMPLE))


def problems(found: list[Outcome], allowed: Callable[[Command], frozenset[int]], victim: str) -> list[str]:
    """What is not as it has to be, a line each."""
    lines = []
    for each in found:
        wrong = []
        if each.status not in allowed(each.command):
            wrong.append(f"status {each.status}, not {sorted(allowed(each.command))}")
        if each.took_s > LIMIT_S:
            wrong.append(f"{each.took_s:.1f} s")
        if "Traceback" in each.err:
            wrong.append("a traceback")
        if each.status and not each.err.strip() and "unreachable" not in each.out:
            wrong.append("no reason")
        if each.status == INCOMPLETE and not re.search(victim, each.err):
            wrong.append(f"{victim} is not named")
        if wrong:
            lines.append(f"{each.command.words}: {', '.join(wrong)}\n{each.out[-600:]}\n{each.err[-600:]}")
    return lines


def one_broker_is_out(command: Command) -> frozenset[int]:
    """Broker 1 does not answer, and the others do."""
    partial = {"all": PARTIAL, "victim": PARTIAL | NO_ANSWER, "leaders": COMPLETE | PARTIAL, "controller": COMPLETE}
    return partial.get(command.needs, COMPLETE)


def one_broker_is_dead(command: Command) -> frozenset[int]:
    """Broker 1 is no member of the cluster any more: a list of the members' answers
    is complete without it."""
    of_members = ("log-dirs", "broker-api-versions", "configs")
    if command.needs == "all" and command.words.startswith(of_members):
        return COMPLETE | PARTIAL
    return COMPLETE | PARTIAL if command.words.startswith("groups list") else one_broker_is_out(command)


def the_controller_is_out(command: Command) -> frozenset[int]:
    """Whether a command needs that very broker depends on where leaders and coordinators are."""
    if command.needs == "controller":
        return COMPLETE | PARTIAL | NO_ANSWER
    # The controller knows what is being reassigned.
    if command.words.startswith("topics --describe"):
        return COMPLETE | PARTIAL
    return COMPLETE if command.needs in ("any", "coordination") else COMPLETE | PARTIAL


def coordination_is_out(command: Command) -> frozenset[int]:
    """Brokers read configurations from it, and there may be no controller; all else they know."""
    if command.needs in ("coordination", "controller") or command.words.startswith(("configs", "topics --describe")):
        return COMPLETE | PARTIAL | NO_ANSWER
    return COMPLETE


def everything_is_out(_: Command) -> frozenset[int]:
    """No command has an answer."""
    return NO_ANSWER


FAULTS = {
    "a broker is dead": (a_broker_dies, one_broker_is_dead, r"broker 1\b|-\d|no leader|leader"),
    "a broker is frozen": (a_broker_freezes, one_broker_is_out, r"broker 1\b|RELAY"),
    "a broker trickles": (a_broker_trickles, one_broker_is_out, r"broker 1\b|RELAY"),
    "the controller is dead": (the_controller_dies, the_controller_is_out, r"broker \d|127\.0\.0\.1:\d+"),
    "the controller is frozen": (the_controller_freezes, the_controller_is_out, r"broker \d|127\.0\.0\.1:\d+"),
    "coordination is dead": (coordination_dies, coordination_is_out, r"127\.0\.0\.1:\d+"),
    "all are dead": (all_die, everything_is_out, r"127\.0\.0\.1:\d+"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_reachable_is_answered_within_the_deadline(
    fault: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The exit status says whether the answer is complete, and standard error names
    what is missing."""
    happen, allowed, victim = FAULTS[fault]
    with scene(tmp_path / "cluster") as place:
        happen(place)
        found = outcomes(place)
        named = victim.replace("RELAY", f"127.0.0.1:{place.relay.port}")
    slowest = max(found, key=lambda each: each.took_s)
    record_property(f"{fault}: commands", len(found))
    record_property("slowest", f"{slowest.command.words}, {slowest.took_s:.1f} s")
    record_property("statuses", " ".join(str(each.status) for each in found))
    (Path(tmp_path) / "outcomes.txt").write_text(
        "\n".join(f"{o.status} {o.took_s:.1f} {o.command.words}" for o in found)
    )
    assert not (wrong := problems(found, allowed, named)), "\n".join(wrong)
