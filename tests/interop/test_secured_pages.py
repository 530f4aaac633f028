"""The pages about access control, executed: control-access.md and switch-security-on.md, this one
with a producer at work."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.base.settings import edited_properties, read_properties
from barnabas.client import Admin, AuthorizationError, ClientError, ConnectError, Consumer, Producer
from barnabas.testing import ProcessCluster
from support.certificates import make_certificate
from support.needs import needs
from support.pages import DOCS, Block, blocks, commands
from support.ports import free_ports
from support.reader import Reader
from support.waiting import eventually

pytestmark = [pytest.mark.interop, needs("openssl")]
CONTROL = DOCS / "how-to" / "control-access.md"
SWITCH = DOCS / "how-to" / "switch-security-on.md"


def test_the_page_about_access_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that up secures; the lists that the commands make; the program."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    reader = Reader(tmp_path, {})
    start, *others = commands(CONTROL)
    ready = re.search(r"ready (\S+) zk=(\S+)", reader.run(start))
    assert ready is not None
    reader.places = {"localhost:9092": ready[1], "localhost:2181": ready[2]}
    try:
        for command in others:
            reader.type(command)
    finally:
        reader.run(start._replace(line="barnabas down --data-dir secured"))
    (program,) = (block.text for block in blocks(CONTROL) if block.language == "python")
    names: dict[str, Callable[[], None]] = {}
    exec(program, names)
    names["test_the_application_works_with_the_rights_that_it_needs"]()


class Writer:
    """An application that sends numbers, each once, and moves to other properties when asked.

    The end of a producer waits for all acknowledgements."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.sent = 0
        self._properties = properties
        self._next: dict[str, str] | None = None
        self._moved = threading.Event()
        self._stopped = threading.Event()
        self._failures: list[ClientError] = []
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        while not self._stopped.is_set():
            own = {**self._properties, "enable.idempotence": "true", "delivery.timeout.ms": "120000"}
            try:
                with Producer(own) as producer:
                    while not self._stopped.is_set() and self._next is None:
                        producer.send("orders", str(self.sent))
                        self.sent += 1
                        self._stopped.wait(0.005)
            except ClientError as error:
                self._failures.append(error)
                return
            if self._next is not None:
                self._properties, self._next = self._next, None
                self._moved.set()

    def move(self, properties: dict[str, str]) -> None:
        """Continue with other properties; returns when records go this way."""
        self._moved.clear()
        self._next = properties
        assert self._moved.wait(120)
        self.await_more()

    def await_more(self) -> None:
        """Return when further records were sent."""
        count = self.sent + 20
        eventually(lambda: self.sent >= count and self._thread.is_alive())

    def stop(self) -> int:
        """How many numbers were sent; each of them was acknowledged."""
        self._stopped.set()
        self._thread.join(180)
        assert not self._thread.is_alive()
        assert self._failures == []
        return self.sent


class Brokers:
    """Two brokers whose files are edited as the page says."""

    def __init__(self, cluster: ProcessCluster, reader: Reader, secured_ports: list[int]) -> None:
        self.cluster = cluster
        self._reader = reader
        self._plain = cluster.bootstrap_servers.split(",")
        self._secured = [f"127.0.0.1:{port}" for port in secured_ports]
        self.secured = ",".join(self._secured)

    def change(self, block: Block, writer: Writer, admin: Callable[[], Admin]) -> None:
        """Take a block of the page over into each file, and restart the brokers one by one."""
        for number, plain in enumerate(self._plain):
            path = self.cluster.properties_file(number)
            text = block.text.replace("localhost:9092", plain).replace("localhost:9095", self._secured[number])
            changes = read_properties(self._reader.here(text))
            path.write_text(edited_properties(path.read_text(), changes))
            self.cluster.stop_broker(number)
            self.cluster.start_broker(number)
            eventually(lambda: not self.cluster.is_running(number) or _in_sync(admin))  # noqa: B023  # used at once
            assert self.cluster.is_running(number), self.cluster.broker_log(number).read_text()[-2000:]
            writer.await_more()


def _in_sync(admin: Callable[[], Admin]) -> bool:
    with admin() as connected:
        described = connected.describe_topics(["orders"])
    return all(len(partition.isr) == 2 for topic in described for partition in topic.partitions)


@contextmanager
def writing(properties: dict[str, str]) -> Iterator[Writer]:
    writer = Writer(properties)
    try:
        yield writer
    finally:
        writer._stopped.set()
        writer._thread.join(180)


def test_security_is_switched_on_while_a_producer_writes(tmp_path: Path) -> None:
    """No record is lost or doubled; in the end only those may do something who are named."""
    make_certificate(tmp_path, "broker", "/CN=broker")
    files = {block.file: block for block in blocks(SWITCH) if block.file}
    with ProcessCluster(brokers=2, data_dir=tmp_path / "cluster") as cluster:
        plain = {"bootstrap.servers": cluster.bootstrap_servers}
        with Admin(plain) as admin:
            admin.create_topic("orders", partitions=2, replication_factor=2)
        places = {"/etc/kafka/broker.pem": f"{tmp_path}/broker.pem", "/etc/kafka/ca.pem": f"{tmp_path}/broker.crt"}
        reader = Reader(tmp_path, places)
        brokers = Brokers(cluster, reader, free_ports(2))
        reader.places |= {"localhost:9092": cluster.bootstrap_servers, "localhost:9095": brokers.secured}
        reader.follow([each for each in blocks(SWITCH) if each.file in ("app.properties", "admin.properties")])
        app = read_properties((tmp_path / "app.properties").read_text())
        secured_admin = read_properties((tmp_path / "admin.properties").read_text())
        *users, add, look = commands(SWITCH)
        with writing(plain) as writer:
            for command in users:
                reader.type(command)
            brokers.change(files["second-listener.properties"], writer, lambda: Admin(plain))
            writer.move(app)
            brokers.change(files["brokers-move.properties"], writer, lambda: Admin(secured_admin))
            reader.type(add)
            writer.await_more()
            brokers.change(files["closed.properties"], writer, lambda: Admin(secured_admin))
            sent = writer.stop()
        reader.type(look)
        with pytest.raises(ConnectError), Admin({**plain, "default.api.timeout.ms": "5000"}) as admin:
            admin.list_topics()
        with Admin(app) as admin, pytest.raises(AuthorizationError):
            admin.create_topic("others")
        settings = {**app, "group.id": "kitchen", "auto.offset.reset": "earliest"}
        values: list[int] = []
        with Consumer(settings) as consumer:
            consumer.subscribe(["orders"])
            while len(values) < sent:
                values += [int(record.value) for record in consumer.consume(1000, timeout_s=60)]
        assert sorted(values) == list(range(sent))
