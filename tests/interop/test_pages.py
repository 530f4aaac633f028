"""Every command of the tutorials and how-to pages is executed, in the order of its page, and
prints what the page shows.

Pages that need no cluster of a special kind share one of four brokers. A page that has a test
of its own is in `OTHER_TESTS`. A block that no test can run says why (`support.pages`), and
the last test lists these.
"""

import base64
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin
from barnabas.client.admin.log_dirs import Replica, alter_replica_log_dirs
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing import Cluster
from support.coordination import coordination_server
from support.needs import needs
from support.pages import DOCS, Command, blocks, commands, commands_of
from support.ports import free_ports
from support.reader import Reader
from support.servers import Up, up
from support.waiting import eventually

pytestmark = [pytest.mark.interop]
HOW_TO = DOCS / "how-to"
HERE = Path(__file__).parent
OTHER_TESTS = {
    "tutorial/first-cluster.md": "interop/test_tutorial.py",
    "tutorial/first-pipeline.md": "spark/test_spark_pages.py",
    "tutorial/labs.md": "fault/test_labs.py",
    "how-to/move-to-and-from-apache-kafka.md": "interop/test_migration.py",
    "how-to/control-access.md": "interop/test_secured_pages.py",
    "how-to/switch-security-on.md": "interop/test_secured_pages.py",
    "how-to/run-systems-on-coordination.md": "interop/test_patroni.py",
    "how-to/rest-proxy.md": "interop/rest/test_rest_server.py",
    "how-to/schema-registry.md": "interop/test_registry_page.py",
    "how-to/connect-and-streams.md": "interop/test_streams_shop.py",
    "how-to/pipelines.md": "spark/test_spark_pages.py",
    "how-to/pipeline-outputs.md": "spark/test_spark_pages.py",
    "how-to/pipeline-flows.md": "spark/test_spark_pages.py",
    "how-to/pipeline-cluster.md": "spark/test_spark_cluster.py",
}
MOST_NOT_RUN = 3
"""Blocks that carry a reason why no test runs them; more need a good reason themselves."""


class Disks:
    """Broker 3 of the shared cluster, with two log dirs, which the pages call
    /disk1/kafka and /disk2/kafka."""

    def __init__(self, directory: Path, cluster: Up) -> None:
        self.directory = directory
        self.dirs = [directory / "disk1" / "kafka", directory / "disk2" / "kafka"]
        for each in self.dirs:
            each.mkdir(parents=True)
        (directory / "root").mkdir()
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        (directory / "server.properties").write_text(
            f"broker.id=3\nlisteners=PLAINTEXT://{self.address}\nlog.dirs={','.join(map(str, self.dirs))}\n"
            f"zookeeper.connect={cluster.zookeeper}\noffsets.topic.replication.factor=3\n"
        )

    def fail_the_first(self) -> None:
        """A file in the place of the folder: what the broker writes there next, fails."""
        self.dirs[0].rename(self.directory / "disk1" / "kept")
        self.dirs[0].touch()

    def mend_the_first(self) -> None:
        self.dirs[0].unlink()
        (self.directory / "disk1" / "kept").rename(self.dirs[0])


class Shared:
    """Three brokers of ``barnabas up``, a fourth with two log dirs, and a reader of pages."""

    def __init__(self, directory: Path, cluster: Up) -> None:
        self.cluster = cluster
        self.disks = Disks(directory, cluster)
        places = {f"localhost:{9092 + number}": each for number, each in enumerate(cluster.bootstrap.split(","))}
        places |= {"localhost:2181": cluster.zookeeper}
        places |= {f"/{name}/": f"{directory}/{name}/" for name in ("disk1", "disk2", "root")}
        self.reader = Reader(directory, places)
        self.bootstrap = f"{cluster.bootstrap},{self.disks.address}"

    def start_the_fourth(self) -> None:
        self.reader.type(Command("", "barnabas server-start server.properties", []))

    def send(self, topic: str, count: int, *, partitions: int) -> None:
        """Records in turn to each partition: by chance all of a linger go to one,
        and another stays empty.

        A topic may be so new that not every broker knows it, so nothing is asked: the producer
        waits until it is known.
        """
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for number in range(count):
            producer.produce(topic, b"%100d" % number, partition=number % partitions)
            producer.poll(0)
        assert producer.flush(30) == 0

    def admin(self) -> Admin:
        return Admin({"bootstrap.servers": self.bootstrap})

    def place_on_broker_3(self) -> None:
        """Two replicas of `big` go to the first disk, everything else to the second."""
        first, second = map(str, self.disks.dirs)
        wanted = {Replica(3, "big", partition): first for partition in (0, 3)}
        wanted |= {Replica(3, "big", 1): second}
        for topic, partitions in {"clicks": 3, "orders": 2, "__consumer_offsets": 50}.items():
            wanted |= {Replica(3, topic, partition): second for partition in range(partitions)}
        with AdminConnection(self.disks.address) as connection:
            alter_replica_log_dirs(connection, wanted)


def ends(admin: Admin, topic: str) -> dict[TopicPartition, int]:
    """Where each partition ends."""
    partitions = [TopicPartition(topic, number) for number in range(len(admin.describe_topics([topic])[0].partitions))]
    found = admin.list_offsets(dict.fromkeys(partitions, -1))
    return {partition: offset.offset for partition, offset in found.items()}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """One cluster for all pages that have no wishes."""
    directory = tmp_path_factory.mktemp("pages")
    metrics_ports = free_ports(3, consecutive=True)
    with up(directory / "cluster", "--metrics-port", metrics_ports[0], brokers=3) as cluster:
        made = Shared(directory, cluster)
        made.reader.places |= {"localhost:7071": f"127.0.0.1:{metrics_ports[0]}"}
        try:
            made.start_the_fourth()
            made.place_on_broker_3()
            yield made
        finally:
            made.reader.end()


def test_the_readme_opens_with_commands_that_work(shared: Shared) -> None:
    """A topic, a file into it, and a consumer that reads all of it."""
    reader = shared.reader
    (reader.directory / "customers.csv").write_text("".join(f"{number},customer\n" for number in range(12_435)))
    up, create, produce, consume = next(filter(None, map(commands_of, blocks(DOCS.parent / "README.md"))))
    assert up.line == "barnabas up --brokers 3"  # the cluster that is there
    reader.type(create)
    reader.type(produce)
    terminal = reader.stay(consume)
    eventually(lambda: terminal.text().count("\n") >= 12_435, timeout_s=60, what="all customers")
    assert terminal.total() == 12_435
    assert consume.output[-1] == "^CProcessed a total of 12435 messages"


def test_configure_topics(shared: Shared) -> None:
    """Set, see, take back."""
    shared.reader.follow(blocks(HOW_TO / "configure-topics.md"))


def test_mirror_topics(shared: Shared, barnabas_cluster: Cluster) -> None:
    """A hundred records go to another cluster, and the group shows that none is left; then with
    names for both clusters."""
    with shared.admin() as admin:
        admin.create_topic("orders", assignment=[[0, 1, 2], [3, 0, 1]])
    shared.send("orders", 100, partitions=2)
    reader = shared.reader
    reader.places |= {"other.host:9092": barnabas_cluster.bootstrap_servers}
    reader.places |= {"group.id=mirror": "group.id=mirror\nauto.offset.reset=smallest"}

    def all_is_there(topic: str) -> bool:
        with Admin({"bootstrap.servers": barnabas_cluster.bootstrap_servers}) as admin:
            return topic in admin.list_topics() and sum(ends(admin, topic).values()) == 100

    for command, topic in (("--num.streams", "orders"), ("--source.cluster.alias", "home.orders")):
        reader.before_interrupt[command] = lambda topic=topic: eventually(
            lambda: all_is_there(topic), timeout_s=60, what=f"all of {topic} is mirrored"
        )
    reader.follow(blocks(HOW_TO / "mirror-topics.md"))
    with shared.admin() as admin:  # other pages show all topics
        admin.delete_topics(["heartbeats", "mm2-offset-syncs.backup.internal"])


def test_doctor(shared: Shared) -> None:
    """A fault is found, with status 1, mended and gone."""
    reader = shared.reader
    reader.instead["barnabas doctor"] = lambda command: reader.run(command, may_fail=True)
    shared.reader.follow(blocks(HOW_TO / "doctor.md"))


def test_move_partitions(shared: Shared) -> None:
    """The plan of the page, carried out and verified; leaders go back to where they belong."""
    shared.reader.follow(blocks(HOW_TO / "move-partitions.md"))


def test_watch_a_cluster_and_recover_a_disk(shared: Shared) -> None:
    """One of broker 3's disks fails: the one page shows it, the other mends it; then
    a file there is damaged."""
    reader, disks = shared.reader, shared.disks
    with shared.admin() as admin:
        admin.create_topic("big", assignment=[[3, 0], [1, 3], [0, 1], [3, 2]])
        shared.send("big", 400, partitions=4)
        shared.send("clicks", 90, partitions=3)
        latest = ends(admin, "clicks")
        behind = TopicPartition("clicks", 0)
        admin.alter_group_offsets("shop", {**latest, behind: latest[behind] - 3})
        disks.fail_the_first()
        reader.follow(blocks(HOW_TO / "watch-a-cluster.md"))
        reader.before["barnabas server-stop"] = disks.mend_the_first
        reader.before["barnabas dump-log"] = lambda: damage(disks.dirs[1] / "big-1" / f"{0:020}.log")
        reader.follow(blocks(HOW_TO / "recover-a-disk.md"))
        assert sum(ends(admin, "big").values()) == 400


def damage(log: Path) -> None:
    """Another byte at the end of a log."""
    data = bytearray(log.read_bytes())
    data[-10] ^= 0xFF
    log.write_bytes(data)


def test_secure_and_watch_coordination(tmp_path: Path) -> None:
    """The digest of the super user; a snapshot, and its way back."""
    (http,) = free_ports(1)
    on = {"admin.enableServer": "true", "admin.serverPort": http}
    with coordination_server(tmp_path / "server", **on) as server:
        reader = Reader(tmp_path, {"localhost:2181": server.address, "localhost:8080": f"127.0.0.1:{http}"})
        try:
            reader.follow(blocks(HOW_TO / "secure-and-watch-coordination.md"))
        finally:
            reader.end()


def test_run_a_cluster(tmp_path: Path) -> None:
    """Four servers by hand, from the page's files."""
    zookeeper, *ports = free_ports(4)
    places = {"2181": str(zookeeper), "/var/lib/barnabas": str(tmp_path / "data")}
    reader = Reader(tmp_path, places | {str(9092 + number): str(port) for number, port in enumerate(ports)})
    try:
        reader.follow(blocks(HOW_TO / "run-a-cluster.md"))
    finally:
        reader.end()


def test_run_an_ensemble(tmp_path: Path) -> None:
    """Three servers; a fourth joins and the first leaves."""
    ports = iter(free_ports(12))
    peers = {number: (next(ports), next(ports), next(ports)) for number in range(1, 5)}
    places = {"/var/lib/barnabas/zookeeper": str(tmp_path / "1"), "clientPort=2181": "reconfigEnabled=true"}
    for number, (client, quorum, election) in peers.items():
        places[f"zoo{number}:2181"] = places[f"zoo{number} 2181"] = f"localhost:{client}"
        member = f"localhost:{quorum}:{election};localhost:{client}"
        places |= {f"zoo{number}:2888:3888": member, f"zoo{number}:2888:3888;2181": member}
    places["zoo1 2181"] = places["zoo1:2181"].replace(":", " ")
    reader = Reader(tmp_path, places)

    def start(number: int, more: str = "") -> None:
        config = (tmp_path / "zoo.cfg.page").read_text() + more
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "myid").write_text(f"{number}\n")
        path = tmp_path / f"zoo{number}.cfg"
        path.write_text(config.replace(f"dataDir={tmp_path}/1", f"dataDir={tmp_path}/{number}"))
        reader.stay(Command("", f"barnabas zookeeper-server-start {path}", []))

    def start_the_others() -> None:
        digest = "super:" + base64.b64encode(hashlib.sha1(b"super:secret").digest()).decode()
        config = tmp_path / "zoo.cfg"
        config.write_text(config.read_text() + f"DigestAuthenticationProvider.superDigest={digest}\n")
        (tmp_path / "zoo.cfg.page").write_text(config.read_text())
        for number in (2, 3):
            start(number)

    reader.before["barnabas zookeeper-server-start"] = start_the_others
    reader.before["barnabas zookeeper-shell"] = lambda: start(4, reader.here("server.4=zoo4:2888:3888;2181:observer\n"))
    try:
        reader.follow(blocks(HOW_TO / "run-an-ensemble.md"))
        members = reader.run(Command("", "barnabas zookeeper-shell zoo2:2181 config", []))
        assert re.findall(r"^server\.(\d)=", members, re.MULTILINE) == ["2", "3", "4"]
    finally:
        reader.end()


@needs("openssl")
def test_secure_a_cluster(tmp_path: Path) -> None:
    """A secured cluster for tests, its users, and those of SCRAM."""
    reader = Reader(tmp_path, {})
    start, *others = commands(HOW_TO / "secure-a-cluster.md")
    ready = re.search(r"ready (\S+) zk=(\S+)", reader.run(start))
    assert ready is not None
    reader.places = {"localhost:9092": ready[1], "localhost:2181": ready[2]}
    try:
        for command in others:
            reader.type(command)
    finally:
        reader.run(others[-1], may_fail=True)


@needs("openssl")
def test_harden_a_cluster(tmp_path: Path) -> None:
    """Closed from its first second; what an application may do, what is denied, how rights end."""
    zookeeper, broker = free_ports(2)
    places = {"2181": str(zookeeper), "9092": str(broker), "/var/lib/barnabas": str(tmp_path / "data")}
    reader = Reader(tmp_path, places)
    try:
        reader.follow(blocks(HOW_TO / "harden-a-cluster.md"))
    finally:
        reader.end()


def test_test_with_a_cluster(tmp_path: Path) -> None:
    """The programs run in one process, the tests in one run of pytest."""
    programs = [block.text for block in blocks(HOW_TO / "test-with-a-cluster.md") if block.language == "python"]
    tests = [text for text in programs if "def test_" in text]
    (tmp_path / "test_page.py").write_text("\n".join(["import pytest", *tests]))
    (tmp_path / "program.py").write_text("\n".join(text for text in programs if text not in tests))
    for command in (["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"], ["program.py"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_page_with_commands_has_a_test() -> None:
    """A new page needs one, and so do new blocks that cannot run."""
    text = Path(__file__).read_text()
    skipped = []
    for folder in ("tutorial", "how-to"):
        for page in (DOCS / folder).glob("*.md"):
            name = f"{folder}/{page.name}"
            reader = (HERE.parent / OTHER_TESTS[name]).read_text() if name in OTHER_TESTS else text
            assert page.name in reader, f"{name} is read by no test"
            skipped += [f"{name}: {command.line} ({command.not_run})" for command in commands(page) if command.not_run]
            shown = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
            assert not re.search(r"\n\n    (export |barnabas |\$\w|[A-Z_]+=\S+ barnabas )", shown), (
                f"{name} has indented commands, which no test reads: use a fence"
            )
    print(*skipped, sep="\n")
    assert len(skipped) <= MOST_NOT_RUN, skipped


def test_exactly_once(tmp_path: Path) -> None:
    """The program, twice; the feature up and down; what the tools show of the producer."""
    with up(tmp_path / "cluster") as cluster:
        reader = Reader(tmp_path, {"localhost:9092": cluster.bootstrap, "localhost:2181": cluster.zookeeper})
        reader.follow(blocks(HOW_TO / "exactly-once.md"))
