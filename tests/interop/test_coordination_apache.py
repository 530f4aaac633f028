"""Apache's software on our coordination server and on its files, and ours on Apache's files."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_digest_acl

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import OsFiles
from barnabas.coordination.core.database import Database
from barnabas.coordination.storage.storage import Storage
from barnabas.wire.jute.opcodes import CreateMode, OpCode
from barnabas.wire.jute.records import (
    OPEN_ACL,
    READ_ACL,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    SetACLRequest,
    SetDataRequest,
)
from barnabas.wire.jute.transactions import CreateTxn, SetDataTxn, TxnHeader, encode_transaction
from support.coordination import CoordinationProcess, RawClient, coordination_server
from support.knowing import topic_known
from support.needs import needs_reference
from support.reference import apache_cluster, apache_tool
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

OPEN = list(OPEN_ACL)
PROBE = Path(__file__).parents[1] / "support" / "TransactionLogProbe.java"


def fill(server: CoordinationProcess, *, nodes: int = 50) -> None:
    """Every kind of transaction: creations of all kinds, multi, failed ones, ACLs,
    deletions, a closed session."""
    client = KazooClient(server.address, timeout=10)
    client.start(60)
    client.add_auth("digest", "bob:secret")
    client.create("/app", b"root of the application")
    for number in range(nodes):
        client.create("/app/n-", b"data" * number, sequence=True)
    client.set("/app/n-0000000003", b"changed")
    client.delete("/app/n-0000000004")
    client.create("/app/gone", b"", ephemeral=True)
    client.ensure_path("/app/deep/er/still")
    transaction = client.transaction()
    transaction.create("/app/multi", b"1")
    transaction.set_data("/app/multi", b"2")
    transaction.check("/app/multi", 1)
    transaction.delete("/app/n-0000000005")
    assert all(not isinstance(result, Exception) for result in transaction.commit())
    failing = client.transaction()
    failing.create("/app/never", b"")
    failing.create("/app", b"")
    assert isinstance(failing.commit()[1], Exception)
    client.set_acls("/app/multi", [make_digest_acl("bob", "secret", all=True)])
    client.stop()
    client.close()


def contents(server: CoordinationProcess) -> dict[str, tuple[object, ...]]:
    """All nodes with data and stat."""
    client = KazooClient(server.address, timeout=10)
    client.start(60)
    client.add_auth("digest", "bob:secret")
    found: dict[str, tuple[object, ...]] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        data, stat = client.get(path)
        found[path] = (data, tuple(stat), client.get_acls(path)[0])
        waiting += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
    client.stop()
    client.close()
    return found


@pytest.mark.parametrize("first_is_apache", [True, False], ids=["apache-then-ours", "ours-then-apache"])
def test_a_server_starts_on_the_other_kinds_files_and_serves_the_same_tree(
    tmp_path: Path, first_is_apache: bool
) -> None:
    """The log alone, then with a snapshot (which every start of Apache's takes),
    then both again."""
    seen: list[dict[str, tuple[object, ...]]] = []
    for round_number in range(4):
        is_apache = first_is_apache == (round_number % 2 == 0)
        with coordination_server(tmp_path, apache=is_apache, snapCount=60) as server:
            if round_number == 0:
                fill(server)
            seen.append(contents(server))
            if round_number < 2:
                server.kill()
    assert "digests" not in server.log
    for later in seen[1:]:
        assert later == seen[0]
    assert len(seen[0]) > 50


def keep_writing(port: int, root: str, is_over: threading.Event) -> None:
    """Write until the server is killed: nodes of all kinds, multis, access lists,
    ephemerals of sessions that end."""
    with contextlib.suppress(OSError, EOFError):
        client = RawClient(port)
        client.call(OpCode.CREATE, CreateRequest(root, b"", OPEN, 0))
        for number in itertools.count():
            path = f"{root}/n{number}"
            client.call(OpCode.CREATE, CreateRequest(path, b"x" * (number % 50), OPEN, 0))
            client.call(OpCode.SET_DATA, SetDataRequest(path, b"y" * (number % 70), -1))
            client.call(OpCode.CREATE_CONTAINER, CreateRequest(f"{path}c", b"", OPEN, CreateMode.CONTAINER))
            client.call(OpCode.CREATE, CreateRequest(f"{path}c/child", b"", OPEN, 0))
            client.call(OpCode.CREATE_TTL, CreateTTLRequest(f"{path}t", b"", OPEN, CreateMode.PERSISTENT_WITH_TTL, 500))
            client.call(OpCode.SET_ACL, SetACLRequest(path, list(READ_ACL), -1))
            client.call(OpCode.DELETE, DeleteRequest(f"{path}c/child" if number % 2 else path, -1))
            parts = [
                (OpCode.CREATE, CreateRequest(f"{path}m", b"", OPEN, 0)),
                (OpCode.DELETE, DeleteRequest(f"{path}m" if number % 3 else "/missing", -1)),
            ]
            client.call(OpCode.MULTI, parts)
            if not number % 5:
                other = RawClient(port)
                other.call(OpCode.CREATE, CreateRequest(f"{path}e", b"", OPEN, CreateMode.EPHEMERAL_SEQUENTIAL))
                other.call(OpCode.CLOSE_SESSION)
            if is_over.is_set():
                return


def test_what_apaches_server_leaves_when_it_is_killed_is_loaded_whole_and_without_an_alarm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Amid writes of several clients, with fuzzy snapshots, a snapshot that is cut off, torn ends
    of files, reserved room."""
    is_over = threading.Event()
    with coordination_server(tmp_path, apache=True, snapCount=40, extendedTypesEnabled="true") as server:
        for round_number in range(2):
            roots = [f"/r{round_number}-{number}" for number in range(4)]
            writers = [threading.Thread(target=keep_writing, args=(server.port, root, is_over)) for root in roots]
            for writer in writers:
                writer.start()
            known = len(list(server.version_dir.glob("snapshot.*")))
            eventually(
                lambda known=known: len(list(server.version_dir.glob("snapshot.*"))) >= known + 4, what="snapshots"
            )
            server.kill()
            for writer in writers:
                writer.join()
            copy = tmp_path / f"copy{round_number}" / "data"
            shutil.copytree(server.version_dir.parent, copy)
            caplog.clear()
            assert load(copy) != "refused"
            torn = ("is torn", "before its header", "an older snapshot and more of the log are needed")
            assert [line for line in caplog.messages if not any(each in line for each in torn)] == []
            server.start()


def test_our_server_starts_on_the_directory_of_a_fresh_apache_server(tmp_path: Path) -> None:
    """Its snapshot.0 has an empty digest; there is no log yet."""
    with coordination_server(tmp_path, apache=True) as server:
        assert [path.name for path in server.version_dir.iterdir()] == ["snapshot.0"]
        server.kill()
    with coordination_server(tmp_path) as server:
        assert contents(server)
        assert "damaged" not in server.log


def test_a_damaged_or_torn_log_is_refused_or_cut_where_apaches_is(tmp_path: Path) -> None:
    """Where Apache's server refuses to start, ours does; where ours starts, Apache's does,
    with the same last zxid.

    What happens to the last entry of a log, with and without reserved room behind it:

        a bit is flipped in       Apache's server                         ours
        the checksum              refuses: CRC check failed               refuses
        the size                  refuses above 1 MiB or below 0,         refuses
                                  else forgets the transaction
        the transaction           refuses: CRC check failed               refuses
        the end byte              forgets the transaction                 refuses

        cut off at any byte       goes on before it                       the same, with a warning
        zeros from any byte on    goes on before it                       the same, with a warning
        garbage behind it         refuses: Unreasonable length            refuses
    """
    log, last_start = log_of_four_transactions(tmp_path / "source")
    flipped = [flip(log, at, bit) for at in range(last_start, len(log)) for bit in range(8)]
    torn = [log[:at] for at in range(last_start, len(log))]
    torn += [log[:at] + bytes(len(log) - at) for at in range(last_start, len(log))]
    cases = [case + room for room in (b"", bytes(4096)) for case in (log, log + b"w" * 50, *flipped, *torn)]
    directories = [tmp_path / str(number) for number in range(len(cases))]
    for directory, case in zip(directories, cases, strict=True):
        shutil.copytree(tmp_path / "source", directory)
        (directory / "version-2" / "log.1").write_bytes(case)
    names = "".join(f"{directory}\n" for directory in directories)
    lines = apache_tool(str(PROBE), text=names).stdout.splitlines()
    apache = dict(line.split("\t", 1) for line in lines if "\t" in line)
    assert len(apache) == len(cases)
    counted: Counter[str] = Counter()
    for directory in directories:
        theirs = apache[str(directory)]
        ours = load(directory)
        if theirs.isdigit():
            assert ours in (theirs, "refused"), directory
        else:
            assert ours == "refused", directory
        counted[f"{theirs if theirs.isdigit() else 'refused'} {ours}"] += 1
    entry_bytes = len(log) - last_start
    assert counted["4 4"] == 2
    assert counted["3 3"] == 4 * entry_bytes
    assert counted["3 refused"] == 2 * (8 + 21)
    assert counted["refused refused"] == 2 * (8 * entry_bytes - 8 - 21 + 1)


def log_of_four_transactions(directory: Path) -> tuple[bytes, int]:
    """A data directory with an empty snapshot and a log.

    The log, and the offset of its last entry."""
    storage = Storage(OsFiles(), str(directory), str(directory), preallocate_bytes=0)
    storage.open()
    storage.save_snapshot(Database())
    header = TxnHeader(7, 1, 1, 5, OpCode.CREATE)
    storage.log.append(1, [encode_transaction(header, CreateTxn("/a", b"1", list(OPEN_ACL), False, 1), None)])
    for zxid in (2, 3, 4):
        before = len((directory / "version-2" / "log.1").read_bytes())
        header = TxnHeader(7, zxid, zxid, 5, OpCode.SET_DATA)
        storage.log.append(zxid, [encode_transaction(header, SetDataTxn("/a", b"data", zxid), None)])
    storage.close()
    return (directory / "version-2" / "log.1").read_bytes(), before


def flip(log: bytes, at: int, bit: int) -> bytes:
    return log[:at] + bytes([log[at] ^ 1 << bit]) + log[at + 1 :]


def load(directory: Path) -> str:
    """The last zxid that our server finds, or "refused"."""
    storage = Storage(OsFiles(), str(directory), str(directory), preallocate_bytes=0)
    storage.open()
    try:
        return str(storage.load()[0].last_zxid)
    except CorruptDataError:
        return "refused"
    finally:
        storage.close()


def test_apaches_tools_read_our_log_and_snapshot(tmp_path: Path) -> None:
    """TxnLogToolkit finds every transaction with a good checksum, SnapshotFormatter every node."""
    with coordination_server(tmp_path, snapCount=100) as server:
        fill(server, nodes=150)
        snapshots = eventually(
            lambda: [
                path
                for path in server.version_dir.glob("snapshot.*")
                if path.name[-1] != "0" and "tmp" not in path.name
            ]
        )
        nodes = contents(server)
    dumped = "".join(
        apache_tool("org.apache.zookeeper.server.persistence.TxnLogToolkit", "-d", log).stdout
        for log in sorted(server.version_dir.glob("log.*"))
    )
    assert "CRC ERROR" not in dumped
    zxids = [int(zxid, 16) for zxid in re.findall(r"zxid 0x([0-9a-f]+)", dumped)]
    assert zxids == list(range(1, len(zxids) + 1))
    for kind in ("createSession", "create", "multi", "setACL", "delete", "closeSession"):
        assert kind in dumped, kind
    shown = apache_tool("org.apache.zookeeper.server.SnapshotFormatter", snapshots[0]).stdout
    assert "/app/n-0000000003" in shown
    assert len(nodes) > 150


def test_zkcli_works(tmp_path: Path) -> None:
    """Apache's command line creates, lists, reads, watches quotas and deletes."""
    with coordination_server(tmp_path) as server:
        script = "create /a hello\ncreate -s /a/s- x\ncreate -e /a/e y\nls /a\nget -s /a\nset /a two\nget /a\nsetquota -N 5 /a\nlistquota /a\ndeleteall /a\nls /\nquit\n"
        done = apache_tool("org.apache.zookeeper.ZooKeeperMain", "-server", server.address, text=script)
    assert "[e, s-0000000000]" in done.stdout
    assert "hello" in done.stdout
    assert "two" in done.stdout
    assert "count=3" in done.stdout
    assert "dataVersion = 0" in done.stdout


def test_apache_kafka_runs_and_outlives_a_killed_server(tmp_path: Path) -> None:
    """Topics, produce, consume: everything goes on after the server is killed and
    restarted under the brokers."""
    with (
        coordination_server(tmp_path / "zk") as server,
        apache_cluster(
            tmp_path / "kafka", brokers=2, zookeeper=server.address, settings={"zookeeper.session.timeout.ms": "12000"}
        ) as cluster,
    ):
        common = ("--bootstrap-server", cluster.bootstrap)
        topics = "org.apache.kafka.tools.TopicCommand"
        made = apache_tool(topics, *common, "--create", "--topic", "t1", "--partitions", 6, "--replication-factor", 2)
        assert made.returncode == 0, made.stdout + made.stderr
        assert produce_and_consume(cluster.bootstrap, "t1", 1000, 1000) == 1000
        server.kill()
        assert produce_and_consume(cluster.bootstrap, "t1", 500, 1500) == 1500
        time.sleep(1)  # a while without the server, in which brokers must not give up
        server.start()
        made = apache_tool(topics, *common, "--create", "--topic", "t2", "--partitions", 3, "--replication-factor", 2)
        assert made.returncode == 0, made.stdout + made.stderr
        topic_known(cluster.bootstrap, "t2", 3)
        described = apache_tool(topics, *common, "--describe", "--topic", "t2").stdout
        assert described.count("Leader: ") == 3
        assert "Leader: none" not in described
        assert produce_and_consume(cluster.bootstrap, "t2", 300, 300) == 300
        killed = eventually(lambda: {controller_of(server)} - {None}, timeout_s=60, what="there is a controller").pop()
        os.kill(cluster.pids[killed], signal.SIGKILL)
        other = 1 - killed
        eventually(lambda: controller_of(server) == other, timeout_s=60, what="the other broker is controller")
        survivor = cluster.bootstrap.split(",")[other]
        one = ("--partitions", 2, "--replication-factor", 1)
        made = apache_tool(topics, "--bootstrap-server", survivor, "--create", "--topic", "t3", *one)
        assert made.returncode == 0, made.stdout + made.stderr
        assert produce_and_consume(survivor, "t3", 100, 100) == 100


def controller_of(server: CoordinationProcess) -> int | None:
    """The broker id in /controller; None while there is none."""
    client = KazooClient(server.address, timeout=10)
    client.start(60)
    try:
        return int(json.loads(client.get("/controller")[0])["brokerid"])
    except NoNodeError:
        return None
    finally:
        client.stop()
        client.close()


def produce_and_consume(bootstrap: str, topic: str, count: int, expected: int) -> int:
    """Write ``count`` records, and consume from the beginning until there are ``expected`` ones.

    Their number."""
    lines = "".join(f"record {number}\n" for number in range(count))
    # A broker that has handed out no producer id yet needs the coordination service for the first.
    plain = ("--producer-property", "enable.idempotence=false")
    base = ("--bootstrap-server", bootstrap, "--topic", topic)
    sent = apache_tool("kafka.tools.ConsoleProducer", *base, *plain, text=lines)
    assert sent.returncode == 0, sent.stderr
    got: subprocess.CompletedProcess[str] = apache_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", expected, "--timeout-ms", 60_000),
    )
    return got.stdout.count("record ")
