"""The server on a loop inside the test's process: start, stop, four-letter words,
snapshots while it serves."""

import asyncio
import logging
import os
import pwd
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from barnabas import __date__, __version__
from barnabas.base.errors import ConfigError, CorruptDataError
from barnabas.base.files import OsFiles
from barnabas.coordination.core.database import Database
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import (
    ZOO_CFG_DEFINITIONS,
    ZOO_CFG_REFUSED,
    ZOO_CFG_WITHOUT_EFFECT,
    RefusedSetting,
    ineffective_lines,
    parse_settings,
)
from barnabas.coordination.server.snapshot_schedule import SnapshotSchedule
from barnabas.coordination.storage.storage import Storage
from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import (
    ACL,
    OPEN_ACL,
    CreateRequest,
    DeleteRequest,
    ExistsRequest,
    GetDataRequest,
    GetDataResponse,
    Id,
    SetACLRequest,
    SetDataRequest,
)
from support.coordination import RawClient, four_letter_word
from support.waiting import eventually

OPEN = list(OPEN_ACL)


def settings_for(directory: Path, **texts: object) -> dict[str, str]:
    settings = {"dataDir": directory, "clientPort": 0, "clientPortAddress": "127.0.0.1", "4lw.commands.whitelist": "*"}
    return {name: str(value) for name, value in {**settings, **texts}.items()}


def serve(texts: dict[str, str], use: Callable[[int], None]) -> None:
    """Run a server on this thread's loop while ``use(port)`` runs on another."""

    async def run() -> None:
        server = CoordinationServer(parse_settings(texts))
        await server.start()
        try:
            await asyncio.to_thread(use, server.port)
        finally:
            await server.close()
            await server.close()

    asyncio.run(run())


def test_a_server_takes_a_free_port_and_keeps_its_data_over_a_restart(tmp_path: Path) -> None:
    """With port 0, in the caller's process; sessions and nodes survive, and no thread is left."""
    threads = threading.active_count()

    def create(port: int) -> None:
        client = RawClient(port)
        assert client.call(OpCode.CREATE, CreateRequest("/a", b"x", OPEN, 0))[1] == 0
        client.close()

    def look(port: int) -> None:
        client = RawClient(port)
        assert client.call(OpCode.EXISTS, ExistsRequest("/a", False))[1] == 0
        assert b"Node count: 6" in four_letter_word(port, b"srvr")
        client.close()

    serve(settings_for(tmp_path), create)
    serve(settings_for(tmp_path), look)
    assert threading.active_count() <= threads + 1


def test_reads_are_answered_from_memory_alone(tmp_path: Path) -> None:
    """Every file of the server is emptied and removed, and all data are still read."""

    def use(port: int) -> None:
        client = RawClient(port)
        for number in range(50):
            client.call(OpCode.CREATE, CreateRequest(f"/n{number}", b"%d" % number * 100, OPEN, 0))
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        for path in files:
            os.truncate(path, 0)
            path.unlink()
        for number in range(50):
            _, error, found = client.call(OpCode.GET_DATA, GetDataRequest(f"/n{number}", False))
            assert error == 0
            assert decode(GetDataResponse, found).data == b"%d" % number * 100
        client.close()

    serve(settings_for(tmp_path), use)


def test_closing_the_server_closes_its_connections_and_port(tmp_path: Path) -> None:
    """Clients see the end at once, even if they never read."""
    held: list[RawClient] = []
    ports: list[int] = []

    def connect(port: int) -> None:
        ports.append(port)
        held.append(RawClient(port))

    serve(settings_for(tmp_path), connect)
    assert held[0].socket.recv(10) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]))
    held[0].close()


def test_every_four_letter_word_answers_and_the_whitelist_holds(tmp_path: Path) -> None:
    """Text for each word; a refusal in words outside the whitelist; no answer to other bytes."""

    def ask_all(port: int) -> None:
        client = RawClient(port)
        client.call(OpCode.CREATE, CreateRequest("/e", b"x", OPEN, 1))
        client.call(OpCode.EXISTS, ExistsRequest("/watched", True))
        session = f"0x{client.response.session_id:x}".encode()
        for word, said in (
            (b"ruok", b"imok"),
            (b"isro", b"rw"),
            (b"stat", b"Mode: standalone"),
            (b"mntr", b"zk_ephemerals_count\t1"),
            (b"conf", b"maxSessionTimeout=60000"),
            (b"envi", b"zookeeper.version="),
            (b"cons", b"sid=" + session),
            (b"dump", session + b":\n\t/e"),
            (b"wchs", b"Total watches:1"),
            (b"wchp", b"/watched\n\t" + session),
            (b"wchc", session + b"\n\t/watched"),
            (b"crst", b"reset"),
            (b"srst", b"reset"),
            (b"dirs", b"datadir_size: "),
            (b"gtmk", b"306"),
            (b"stmk" + (42).to_bytes(8, "big"), b"42"),
            (b"gtmk", b"42"),
            (b"cons", b"lop="),
        ):
            assert said in four_letter_word(port, word), word
        assert four_letter_word(port, b"xyzq") == b""
        client.close()

    def ask_default(port: int) -> None:
        assert b"not in the whitelist" in four_letter_word(port, b"ruok")
        assert b"Zookeeper version: 3.9" in four_letter_word(port, b"srvr")

    serve(settings_for(tmp_path / "all"), ask_all)
    serve(settings_for(tmp_path / "default", **{"4lw.commands.whitelist": "srvr"}), ask_default)


def write_until_files(directory: Path, client: RawClient, wanted: dict[str, int], data: bytes = b"") -> int:
    """Create nodes until there are this many files of each pattern; returns how many nodes.

    What is written while a snapshot is under way begins none, so the number of
    writes alone says little.
    """
    number = 0

    def is_done() -> bool:
        nonlocal number
        for _ in range(40):
            assert client.call(OpCode.CREATE, CreateRequest(f"/n{number}", data, OPEN, 0))[1] == 0
            number += 1
        return all(len(list((directory / "version-2").glob(name))) >= count for name, count in wanted.items())

    eventually(is_done)
    return number


def test_snapshots_are_taken_and_logs_rolled_while_it_serves(tmp_path: Path) -> None:
    """After snapCount transactions, without a pause in the zxids."""

    def load(port: int) -> None:
        client = RawClient(port)
        created.append(write_until_files(tmp_path, client, {"snapshot.*": 4, "log.*": 4}))
        client.close()

    created: list[int] = []
    serve(settings_for(tmp_path, snapCount=100), load)

    def look(port: int) -> None:
        client = RawClient(port)
        for number in range(created[0]):
            assert client.call(OpCode.EXISTS, ExistsRequest(f"/n{number}", False))[1] == 0
        client.close()

    serve(settings_for(tmp_path), look)


def test_snapshots_are_taken_by_the_size_of_the_log_too(tmp_path: Path) -> None:
    """Few large transactions, long before snapCount."""

    def load(port: int) -> None:
        client = RawClient(port)
        write_until_files(tmp_path, client, {"snapshot.*": 4}, b"x" * 10_000)
        client.close()

    serve(settings_for(tmp_path, snapSizeLimitInKb=100), load)


def test_old_snapshots_are_purged_at_the_start_already(tmp_path: Path) -> None:
    """A server that is restarted more often than the interval would never purge."""
    storage = Storage(OsFiles(), str(tmp_path), str(tmp_path), preallocate_bytes=0)
    storage.open()
    for zxid in range(1, 7):
        database = Database()
        database.last_zxid = zxid
        storage.save_snapshot(database)
    storage.close()

    def look(_port: int) -> None:
        eventually(lambda: len(list((tmp_path / "version-2").glob("snapshot.*"))) == 3)

    serve(settings_for(tmp_path, **{"autopurge.purgeInterval": 24}), look)


def test_damaged_data_is_refused_and_leaves_the_directory_free(tmp_path: Path) -> None:
    """The error says which file; a second try is not blocked by the first."""
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2" / "log.1").write_bytes(b"this is no transaction log")
    for _ in range(2):
        with pytest.raises(CorruptDataError, match=r"log\.1"):
            serve(settings_for(tmp_path), lambda _port: None)


def test_settings_are_checked_and_take_apaches_names() -> None:
    """Defaults, system property names, one server line, errors that name the property."""
    values = parse_settings({"dataDir": "/d", "clientPort": "2181", "zookeeper.snapCount": "50", "server.1": "a:1:2"})
    assert (values["tickTime"], values["snapCount"], values["maxClientCnxns"]) == (3000, 50, 60)
    assert ineffective_lines(values) == []
    with pytest.raises(ConfigError, match="dataDir: it must name a directory"):
        parse_settings({"dataDir": "", "clientPort": "2181"})
    with pytest.raises(ConfigError, match="dataDir"):
        parse_settings({"clientPort": "2181"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authProvider.1", "org.apache.zookeeper.server.auth.KeyAuthenticationProvider"),
        ("authProvider.mine", "com.example.MyProvider"),
        ("authProvider.1", "none"),
        ("authProvider.1", "0"),
        ("authProvider.1", ""),
        ("AuthProvider.1", "com.example.MyProvider"),
        ("ensembleAuthName", "prod"),
        ("kerberos.removeHostFromPrincipal", "true"),
        ("client.portUnification", "true"),
        ("ssl.crl", "true"),
        ("ssl.ciphersuites", "TLS_RSA_WITH_AES_128_CBC_SHA"),
        ("ssl.x509.clientCertIdType", "SAN"),
        ("ssl.quorum.ocsp", "true"),
        ("ssl.quorum.ciphersuites", "TLS_RSA_WITH_AES_128_CBC_SHA"),
        ("sslQuorumReloadCertFiles", "true"),
        ("admin.forceHttps", "true"),
        ("quorum.auth.kerberos.servicePrincipal", "zk/_HOST"),
        ("quorum.auth.encryption", "true"),
        ("connection_throttle_tokens", "100"),
        ("datadir.autocreate", "false"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "zookeeper."])
def test_a_setting_that_asks_for_missing_protection_ends_the_start(name: str, text: str, prefix: str) -> None:
    """The error names the setting as it was written, and not its value, which may be a secret."""
    with pytest.raises(ConfigError) as refused:
        parse_settings({"dataDir": "/d", "clientPort": "1", prefix + name: text})
    assert f"Remove {prefix + name} to start without" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        "SecureClientPort",
        "enforce.auth.Enabled",
        "zookeeper.sessionRequireClientSaslAuth",
        "SSLQuorum",
        "Quorum.auth.enableSASL",
    ],
)
def test_a_setting_of_access_in_another_case_ends_the_start(name: str) -> None:
    """ZooKeeper ignores it, and the server would look protected and be open.

    The error has the right spelling."""
    with pytest.raises(
        ConfigError, match="is unknown, and .*: write (secureClientPort|enforce|sessionRequire|sslQuorum|quorum)"
    ):
        parse_settings({"dataDir": "/d", "clientPort": "1", name: "1"})


@pytest.mark.parametrize("row", [row for row in ZOO_CFG_REFUSED if row.harmless], ids=lambda row: row.name)
def test_a_refused_setting_that_asks_for_nothing_is_accepted_in_silence(row: RefusedSetting) -> None:
    """False, 0, empty, or the default."""
    name = row.name.replace("*", "x")
    for text in row.harmless:
        assert ineffective_lines(parse_settings({"dataDir": "/d", "clientPort": "1", name: text})) == []


def test_every_setting_that_does_nothing_is_reported_with_the_reason() -> None:
    """An unknown name, too. Settings that work are not."""
    texts = {"dataDir": "/d", "clientPort": "1", "leaderServes": "yes", "zookeeper.flushDelay": "1", "typo": "1"}
    assert ineffective_lines(parse_settings(texts)) == [
        "flushDelay has no effect: requests and syncs are grouped as they come",
        "leaderServes has no effect: this part of an ensemble works in one way",
        "typo is unknown and has no effect",
    ]


@pytest.mark.parametrize(
    ("texts", "name", "missing"),
    [
        (
            {"ssl.keyStore.location": "/k", "ssl.protocol": "TLSv1.3"},
            "ssl.keyStore.location",
            "secureClientPort is not set",
        ),
        ({"ssl.clientAuth": "need"}, "ssl.clientAuth", "secureClientPort is not set"),
        ({"ssl.quorum.trustStore.location": "/t"}, "ssl.quorum.trustStore.location", "members connect without TLS"),
        ({"enforce.auth.schemes": "sasl"}, "enforce.auth.schemes", "enforce.auth.enabled is not true"),
    ],
)
def test_protection_without_the_setting_that_switches_it_on_ends_the_start(
    texts: dict[str, str], name: str, missing: str
) -> None:
    """The server would look protected and be open."""
    with pytest.raises(ConfigError, match=f"{name} is set, and .*{missing}"):
        parse_settings({"dataDir": "/d", "clientPort": "1", **texts})


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({"sslQuorum": "false", "ssl.quorum.keyStore.location": "/k"}, ["ssl.quorum.keyStore.location"]),
        ({"enforce.auth.enabled": "false", "enforce.auth.schemes": "sasl"}, ["enforce.auth.schemes"]),
        ({"ssl.keyStore.type": "PEM", "ssl.protocol": "TLSv1.3"}, ["ssl.keyStore.type", "ssl.protocol"]),
        ({"quorum.auth.server.saslLoginContext": "Q"}, ["quorum.auth.server.saslLoginContext"]),
        ({"sslQuorum": "true", "ssl.quorum.keyStore.location": "/k"}, ["ssl.quorum.keyStore.location", "sslQuorum"]),
        ({"quorum.auth.enableSasl": "true"}, ["quorum.auth.enableSasl"]),
        (
            {"superUser": "ann", "X509AuthenticationProvider.superUser": "CN=a"},
            ["X509AuthenticationProvider.superUser", "superUser"],
        ),
        (
            {"DigestAuthenticationProvider.enabled": "false", "DigestAuthenticationProvider.digestAlg": "SHA1"},
            ["DigestAuthenticationProvider.digestAlg"],
        ),
        ({"sslQuorum": "false", "quorum.auth.enableSasl": "false", "ssl.keyStore.location": ""}, []),
    ],
)
def test_a_setting_of_security_that_another_one_makes_idle_is_reported(texts: dict[str, str], named: list[str]) -> None:
    """One line each, with the name; what is off is not reported."""
    lines = ineffective_lines(parse_settings({"dataDir": "/d", "clientPort": "1", **texts}))
    assert [line.partition(" has no effect: ")[0] for line in lines] == named


def test_no_setting_has_two_effects() -> None:
    """It works, or it does nothing, or it is refused."""
    names = [setting.name for setting in ZOO_CFG_DEFINITIONS] + list(ZOO_CFG_WITHOUT_EFFECT)
    assert len(names) == len(set(names))
    # ssl.* and quorum.auth.* are those that are left.
    exact = [row for row in ZOO_CFG_REFUSED if row.name not in ("ssl.*", "quorum.auth.*")]
    assert [name for name in names if any(row.matches(name) for row in exact)] == []


def test_before_the_session_only_small_frames_are_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The length alone closes the connection; with a session a frame may have jute.maxbuffer."""

    def connect(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), 5) as long_request:
            long_request.settimeout(60)
            long_request.sendall((1025).to_bytes(4, "big"))
            assert long_request.recv(1) == b""
        assert "is not the length of a request" in caplog.text, "it is not closed for its silence"
        client = RawClient(port)
        assert client.call(OpCode.CREATE, CreateRequest("/a", b"x" * 500_000, OPEN, 0))[1] == 0
        client.close()

    caplog.set_level(logging.INFO)
    serve(settings_for(tmp_path), connect)


def test_the_four_letter_words_say_what_the_server_is(tmp_path: Path) -> None:
    """The version that clients compare is ZooKeeper's; Barnabas' own stands behind it, with its
    date as monitors parse it."""

    def ask(port: int) -> None:
        version = f"3.9.4-barnabas-{__version__}, built on {__date__} 00:00 UTC"
        assert re.fullmatch(r"[\w.-]+, built on \d{4}-\d\d-\d\d \d\d:\d\d \w+", version)
        assert four_letter_word(port, b"srvr").startswith(f"Zookeeper version: {version}\n".encode())
        assert f"zookeeper.version={version}\n".encode() in four_letter_word(port, b"envi")
        assert b"\nMode: standalone\n" in four_letter_word(port, b"stat")
        conf = four_letter_word(port, b"conf")
        assert b"serverId=0\n" in conf
        assert f"clientPort={port}\n".encode() in conf

    serve(settings_for(tmp_path), ask)


def test_nothing_is_logged_about_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Passwords of auth packets and sessions stay out of the log."""
    caplog.set_level(logging.DEBUG)

    def authenticate(port: int) -> None:
        client = RawClient(port)
        assert client.authenticate("digest", b"bob:geheim") == 0
        assert client.authenticate("unknown", b"geheim") < 0
        client.close()

    serve(settings_for(tmp_path), authenticate)
    assert "geheim" not in caplog.text


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"enforce.auth.enabled": "true"}, "enforce.auth.schemes must name"),
        (
            {"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest,sasl"},
            "scheme sasl, which is not available",
        ),
        ({"sessionRequireClientSASLAuth": "true"}, "sessionRequireClientSASLAuth requires"),
        (
            {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
            "java.security.auth.login.config names no file",
        ),
        ({"java.security.auth.login.config": "/nowhere/jaas.conf"}, "/nowhere/jaas.conf .* cannot be read"),
        ({"secureClientPort": "0"}, "ssl.keyStore.location does not name"),
        ({"secureClientPort": "0", "ssl.keyStore.location": "/nowhere.pem"}, r"/nowhere.pem \(ssl.keyStore.location\)"),
        (
            {"secureClientPort": "0", "ssl.keyStore.location": "/store.jks"},
            r"/store.jks \(ssl.keyStore.location\) cannot be read",
        ),
        ({"secureClientPort": "0", "ssl.keyStore.type": "BCFKS"}, "PEM, JKS and PKCS12 are supported"),
        (
            {"secureClientPort": "0", "ssl.keyStore.location": "/k.pem", "ssl.keyStore.passwordPath": "/nowhere"},
            "/nowhere .* cannot be read",
        ),
        ({"audit.enable": "true", "audit.impl.class": "com.example.Mine"}, "must be one of: org.apache"),
        ({"requireClientAuthScheme": "kerberos"}, "requireClientAuthScheme requires"),
        ({"DigestAuthenticationProvider.digestAlg": "ROT13"}, "the name of a hash algorithm"),
        ({"DigestAuthenticationProvider.superDigest": "geheim"}, "user:base64"),
        ({"skipACL": "true"}, "must be one of: yes, no"),
    ],
)
def test_protection_that_cannot_work_ends_the_start(tmp_path: Path, texts: dict[str, str], message: str) -> None:
    """The error names the setting, and no secret."""
    with pytest.raises(ConfigError, match=message) as refused:
        serve(settings_for(tmp_path, **texts), lambda _port: None)
    assert "geheim" not in str(refused.value)


def test_the_audit_log_has_a_line_for_each_write_with_its_user(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Start and stop, successes, failures, a failed multi, the end of a session; no reads, no
    hashes, and no forged lines."""
    caplog.set_level(logging.INFO, "barnabas.audit")

    def write(port: int) -> None:
        client = RawClient(port)
        client.authenticate("digest", b"bob:geheim")
        locked = [ACL(31, Id("auth", "")), ACL(1, Id("world", "anyone"))]
        client.call(OpCode.CREATE, CreateRequest("/a", b"", OPEN, 0))
        client.call(OpCode.CREATE, CreateRequest("/a/s-", b"", OPEN, 3))
        client.call(OpCode.CREATE, CreateRequest("/no\nline\tuser=eve/x", b"", OPEN, 0))
        client.call(OpCode.SET_DATA, SetDataRequest("/a", b"x", 7))
        client.call(OpCode.SET_ACL, SetACLRequest("/a", [ACL(31, Id("digest", "bob:geheim")), *locked], -1))
        client.call(
            OpCode.MULTI, [(OpCode.DELETE, DeleteRequest("/a", -1)), (OpCode.CREATE, CreateRequest("/b", b"", OPEN, 0))]
        )
        client.call(OpCode.EXISTS, ExistsRequest("/a", False))
        client.call(OpCode.CLOSE_SESSION)
        client.close()

    serve(settings_for(tmp_path, **{"audit.enable": "true"}), write)
    lines = [
        re.sub(r"session=0x\w+", "session=S", record.getMessage())
        for record in caplog.records
        if record.name == "barnabas.audit"
    ]
    who = "session=S\tuser=127.0.0.1,bob\tip=127.0.0.1\t"
    server = f"user={pwd.getpwuid(os.geteuid()).pw_name}"
    assert lines == [
        f"{server}\toperation=serverStart\tresult=success",
        f"{who}operation=create\tznode=/a\tznode_type=persistent\tresult=success",
        f"{who}operation=create\tznode=/a/s-0000000000\tznode_type=ephemeral_sequential\tresult=success",
        f"{who}operation=create\tznode=/no\\nline\\tuser=eve/x\tznode_type=persistent\tresult=failure",
        f"{who}operation=setData\tznode=/a\tresult=failure",
        f"{who}operation=setAcl\tznode=/a\tacl=digest:bob:x:cdrwa,auth::cdrwa,world:anyone:r\tresult=success",
        f"{who}operation=multiOperation\tresult=failure",
        f"session=S\t{server}\toperation=ephemeralZNodeDeletionOnSessionCloseOrExpire\tznode=/a/s-0000000000\tresult=success",
        f"{server}\toperation=serverStop\tresult=success",
    ]


def test_a_snapshot_is_due_between_the_half_and_the_whole_of_either_limit() -> None:
    """By the number of transactions, and by their bytes; after each snapshot at another point."""
    points = set()
    schedule = SnapshotSchedule(100, 10_000, Random(4))
    for _ in range(50):
        count = 0
        while not schedule.is_due:
            schedule.logged(1, 10)
            count += 1
        assert 50 < count <= 100
        points.add(count)
        schedule.restart()
    assert len(points) > 10
    for _ in range(50):
        size = 0
        while not schedule.is_due:
            schedule.logged(1, 1000)
            size += 1000
        assert 5000 < size <= 10_000 + 1000
        schedule.restart()


def test_a_snapshot_is_not_due_by_bytes_without_a_limit_of_them() -> None:
    """Zero, and less, mean no limit."""
    for max_bytes in (0, -1024):
        schedule = SnapshotSchedule(100, max_bytes, Random(1))
        schedule.logged(10, 1 << 40)
        assert not schedule.is_due
