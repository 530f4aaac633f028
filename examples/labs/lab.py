"""What the labs share: a cluster of processes, commands shown with what they really print, and
claims that are checked.

A lab is a function that is given a `Lab`. It starts its own cluster and leaves nothing running,
whether it ends, fails or is stopped with Ctrl-C. Exit codes: 0 when every claim held, 1 when one
did not, 130 after Ctrl-C. Ports are 9092 and the next ones when they are free, else any;
``PORT=0`` always takes any.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, TopicPartition

from barnabas.base.errors import BarnabasError
from barnabas.client.admin.topics import PartitionDescription, describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ConnectError
from barnabas.testing import ProcessCluster

__all__ = ["PATIENT", "Background", "CheckFailed", "Lab", "run"]

T = TypeVar("T")
_PATIENCE_S = 60.0
PATIENT = {"zookeeper.session.timeout.ms": "40000", "replica.lag.time.max.ms": "60000"}
"""Settings for labs that let brokers stand still: such brokers stay alive and in sync for the
others, however slow the machine."""
_MOST_BROKERS = 6
"""Of all labs: whether they run on the usual ports does not hang on which one it is."""
_COLOURED = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class CheckFailed(Exception):  # noqa: N818  # it is what happened
    """A claim of the lab did not hold, or what was waited for did not come."""


def run(
    title: str,
    body: Callable[["Lab"], None],
    *,
    brokers: int = 3,
    racks: int = 0,
    zk_servers: int = 1,
    settings: Mapping[str, str] | None = None,
    faults: bool = False,
) -> int:
    """Start a cluster, let the lab work on it, stop it; returns the exit code.

    ``faults`` are `ProcessCluster`'s."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left running
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script
        # SIG_IGN would be inherited by what a lab starts, which would then not end.
        signal.signal(signal.SIGINT, lambda *_: None)
    print(_styled(title, "1"), flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="barnabas-lab-", ignore_cleanup_errors=True) as folder:
            port, zk_port = _ports()
            cluster = ProcessCluster(
                brokers,
                settings=settings,
                racks=racks,
                data_dir=folder,
                port=port,
                zk_port=zk_port,
                zk_servers=zk_servers,
                faults=faults,
            )
            options = f" --racks {racks}" if racks else ""
            options += f" --zk-servers {zk_servers}" if zk_servers > 1 else ""
            options += "".join(f" --override {name}={value}" for name, value in (settings or {}).items())
            print(_styled(f"$ barnabas up --brokers {brokers}{options}", "36"), flush=True)
            with cluster:
                lab = Lab(cluster)
                try:
                    body(lab)
                finally:
                    lab.end_background()
        print(f"\n{lab.checks} checks held. Nothing is left running.")
    except (CheckFailed, BarnabasError, OSError, subprocess.SubprocessError) as problem:
        print(f"\n{_styled('failed', '31')} {problem}", flush=True)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", flush=True)
        return 130
    return 0


class Lab:
    """A running cluster, and a voice."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.cluster = cluster
        self.checks = 0
        pids = ",".join(f"{name}:{pid}" for name, pid in cluster.pids.items())
        print(f"  ready {cluster.bootstrap_servers} zk={cluster.zookeeper_connect} pids={pids}", flush=True)
        self._names = {
            # All brokers, so that commands work whichever of them is away.
            "$KAFKA": cluster.bootstrap_servers,
            "$ZK": cluster.zookeeper_connect,
            "$DATA": str(cluster.data_dir),
        }
        self._background: list[Background] = []
        for name, value in self._names.items():
            print(_styled(f"$ {name[1:]}={value}", "36"), flush=True)

    def name(self, name: str, value: str) -> None:
        """Another word for commands, such as ``$TARGET``."""
        self._names[name] = value
        print(_styled(f"$ {name[1:]}={value}", "36"), flush=True)

    # What is said

    def step(self, title: str) -> None:
        """Begin the next part."""
        print(f"\n{_styled(title, '1')}", flush=True)

    def say(self, text: str) -> None:
        """A line of explanation."""
        print(text, flush=True)

    def check(self, claim: str, *, holds: bool, otherwise: object = "") -> None:
        """A claim that is printed when it holds and ends the lab when it does not."""
        if not holds:
            raise CheckFailed(f"{claim}: {otherwise}" if otherwise != "" else claim)
        self.checks += 1
        print(f"{_styled('ok', '32')} {claim}", flush=True)

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Wait for the first true value."""
        end = time.monotonic() + _PATIENCE_S
        while not (value := condition()):
            if time.monotonic() > end:
                raise CheckFailed(f"{what} did not come within {_PATIENCE_S:.0f} s")
            time.sleep(0.05)
        return value

    # Commands

    def barnabas(self, command: str, *, stdin: str = "", source: str = "", may_fail: bool = False) -> str:
        """Run ``barnabas COMMAND`` and show it with what it prints.

        ``$KAFKA``, ``$ZK`` and ``$DATA`` are known. ``source`` is where a reader
        would take ``stdin`` from.
        """
        print(_styled(f"$ barnabas {command}{f' < {source}' if source else ''}", "36"), flush=True)
        done = self._run(command, stdin)
        text = (done.stdout + done.stderr).strip("\n")
        self._print_output(_without_greeting(text) if command.startswith("zookeeper-shell") else text)
        if done.returncode and not may_fail:
            raise CheckFailed(f"barnabas {command} ended with {done.returncode}")
        return text

    def background(self, command: str) -> "Background":
        """Start ``barnabas COMMAND`` beside the lab.

        `Background.stop` ends it with Ctrl-C, and so does the lab's end."""
        print(_styled(f"$ barnabas {command} &", "36"), flush=True)
        output = self.cluster.data_dir / f"background-{len(self._background)}.out"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "barnabas", *self._words(command)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                # A terminal's Ctrl-C is for the lab, which stops them in order.
                start_new_session=True,
            )
        self._background.append(Background(command, process, output))
        return self._background[-1]

    def end_background(self) -> None:
        """Nothing that `background` started is left running."""
        for each in self._background:
            each.end()

    def show(self, command: str, output: str) -> None:
        """A command as a reader would give it, and what it shows."""
        print(_styled(f"$ {command}", "36"), flush=True)
        self._print_output(output)

    def ask(self, command: str) -> str:
        """The same in silence; standard output alone."""
        return self._run(command, "").stdout

    def _run(self, command: str, stdin: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "barnabas", *self._words(command)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )

    def _words(self, command: str) -> list[str]:
        """The command's words, with ``$KAFKA`` and the others replaced.

        Quotes work as in a shell."""
        for name, value in self._names.items():
            command = command.replace(name, value)
        return shlex.split(command)

    def _print_output(self, text: str) -> None:
        for line in text.splitlines():
            line = line.replace(self._names["$DATA"], "$DATA")
            print(f"  {line.expandtabs(4)}", flush=True)

    # What is so

    def topic(self, name: str) -> dict[int, PartitionDescription]:
        """Each partition of a topic: its leader or None, replicas, isr.

        Waits until a broker knows the topic."""
        return self.until(lambda: self._described(name, self.cluster.bootstrap_servers) or {}, f"{name} at a broker")

    def has_topic(self, name: str) -> bool:
        """Whether a broker knows the topic."""
        return bool(self._described(name, self.cluster.bootstrap_servers))

    def _described(self, name: str, servers: str) -> dict[int, PartitionDescription] | None:
        """What one of the servers says of the topic.

        Empty where it knows no such topic, None where none answers."""
        try:
            with AdminConnection(servers, {"request.timeout.ms": "5000"}) as admin:
                return {each.partition: each for each in describe_topics(admin, [name])[0].partitions}
        except (ConnectError, OSError):
            return None
        except BarnabasError:
            return {}

    def in_sync(self, name: str, brokers: set[int], partition: int = 0) -> bool:
        """Whether exactly these are in sync, and one of them leads, as each of them
        knows that answers."""
        return self._agree(
            name,
            brokers,
            lambda found: (
                partition in found and found[partition].leader in brokers and set(found[partition].isr) == brokers
            ),
        )

    def everywhere(self, name: str, holds: Callable[[PartitionDescription], bool]) -> bool:
        """Whether this holds for each partition of a topic, as every broker knows that answers."""
        brokers = range(len(self.cluster.bootstrap_servers.split(",")))
        running = {broker for broker in brokers if self.cluster.is_running(broker)}
        return self._agree(name, running, lambda found: bool(found) and all(map(holds, found.values())))

    def _agree(self, name: str, brokers: set[int], holds: Callable[[dict[int, PartitionDescription]], bool]) -> bool:
        """News reaches brokers one by one, and the next command may ask any of them."""
        found = [self._described(name, self.address(broker)) for broker in brokers]
        answers = [each for each in found if each is not None]
        return bool(answers) and all(map(holds, answers))

    def leader(self, name: str, partition: int = 0) -> int:
        """Waits until there is one."""

        def found() -> tuple[int] | None:
            state = (self._described(name, self.cluster.bootstrap_servers) or {}).get(partition)
            return None if state is None or state.leader is None else (state.leader,)

        return self.until(found, f"a leader of {name}")[0]

    def address(self, broker: int) -> str:
        """For commands while other brokers take connections but do not answer."""
        return self.cluster.bootstrap_servers.split(",")[broker]

    def create(self, name: str, options: str) -> None:
        """A topic, once every replica is in sync and every broker knows it."""
        self.barnabas(f"topics --create --topic {name} --bootstrap-server $KAFKA {options}")
        self.until(
            lambda: self.everywhere(name, lambda each: set(each.isr) == set(each.replicas)),
            f"every replica of {name} in sync",
        )

    def describe(self, name: str) -> str:
        return self.barnabas(f"topics --describe --topic {name} --bootstrap-server $KAFKA")

    def broker_ids(self) -> str:
        """Shows ``/brokers/ids``."""
        return _last_line(self.barnabas("zookeeper-shell $ZK ls /brokers/ids"))

    def broker_ids_quietly(self) -> str:
        """The same without showing it."""
        return _last_line(self.ask("zookeeper-shell $ZK ls /brokers/ids"))

    def znode(self, path: str, *, show: bool = False) -> dict[str, object]:
        """A znode's JSON."""
        command = f"zookeeper-shell $ZK get {path}"
        text = _last_line(self.barnabas(command) if show else self.ask(command))
        try:
            found = json.loads(text)
        except ValueError:  # it is not there
            return {}
        return found if isinstance(found, dict) else {"value": found}

    def state(self, topic: str, partition: int = 0, *, show: bool = False) -> dict[str, object]:
        """The znode of a partition: leader, leader_epoch, isr."""
        return self.znode(f"/brokers/topics/{topic}/partitions/{partition}/state", show=show)

    def produce(self, topic: str, values: list[str], options: str = "", *, may_fail: bool = False) -> str:
        """``barnabas console-producer``, a value a line."""
        command = f"console-producer --topic {topic} --bootstrap-server $KAFKA {options}".rstrip()
        return self.barnabas(command, stdin="".join(f"{value}\n" for value in values), may_fail=may_fail)

    def read(self, topic: str) -> list[str]:
        """All committed values: each partition up to its high watermark, as a consumer sees it."""
        # Partitions are assigned by hand and nothing is committed: no group is needed, nor a
        # broker that serves groups.
        settings = {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, **settings})
        try:
            parts = [TopicPartition(topic, number, 0) for number in self.topic(topic)]
            consumer.assign(parts)
            values: list[str] = []
            end = time.monotonic() + _PATIENCE_S
            ended: set[int] = set()
            while len(ended) < len(parts):
                if time.monotonic() > end:
                    raise CheckFailed(f"{topic} could not be read within {_PATIENCE_S:.0f} s")
                for message in consumer.consume(1000, 0.2):
                    if not message.error():
                        values.append(message.value().decode())
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition())
            return values
        finally:
            consumer.close()

    def replica_files(self, topic: str, broker: int, partition: int = 0) -> Path:
        """A replica's folder."""
        return self.cluster.log_dir(broker) / f"{topic}-{partition}"

    def log_bytes(self, topic: str, broker: int, partition: int = 0) -> bytes:
        """All segments of a replica, joined."""
        return b"".join(
            path.read_bytes() for path in sorted(self.replica_files(topic, broker, partition).glob("*.log"))
        )


class Background:
    """A command that runs beside the lab."""

    def __init__(self, command: str, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.command = command
        self.process = process
        self._output = output

    def output(self) -> str:
        """What it has printed so far, its errors included."""
        return self._output.read_text()

    def stop(self) -> str:
        """Ctrl-C; returns what it printed."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise CheckFailed(f"barnabas {self.command} did not end after Ctrl-C") from None
        return self.output()

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def _ports() -> tuple[int, int]:
    if "PORT" in os.environ:
        return int(os.environ["PORT"]), int(os.environ.get("ZK_PORT", "0"))
    return ProcessCluster.usual_ports(_MOST_BROKERS)


def _styled(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if _COLOURED else text


def _without_greeting(text: str) -> str:
    """What ZooKeeper's shell prints for the command, without what it says when it connects."""
    return re.sub(
        r"\A(?:Connecting to .*|WATCHER::|WatchedEvent .* type:None .*|Welcome to .*|JLine .*|\s*\n)*\n?", "", text
    )


def _last_line(text: str) -> str:
    """As with ZooKeeper's own shell, what was asked for comes last."""
    return text.rstrip().rpartition("\n")[2]
