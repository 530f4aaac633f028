"""Ensembles of our servers and one of Apache's whose members protect their
connections, with TLS and with SASL."""

import contextlib
import socket
import struct
import threading
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, NodeExistsError
from kazoo.protocol.states import KazooState

from barnabas.coordination.election.messages import encode_greeting
from barnabas.coordination.quorum.authentication import encode_auth_packet
from support.apache_ensemble import is_reconfigured
from support.certificates import make_certificate
from support.ensemble import HOST, Ensemble, Member, ensemble
from support.needs import needs, needs_reference
from support.promptness import read_to_the_end
from support.waiting import eventually

pytestmark = [pytest.mark.interop, needs("openssl")]

FOLLOWERINFO = struct.pack(">iqi", 11, 0, -1) + struct.pack(">i", -1)


def sasl(directory: Path, name: str, password: str) -> dict[str, object]:
    """The settings of a member that knows the password of ``peer``, and its JAAS file."""
    path = directory / f"{name}.jaas"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    path.write_text(
        f'QuorumServer {{ {module} user_peer="{password}"; }};\n'
        f'QuorumLearner {{ {module} username="peer" password="{password}"; }};\n'
    )
    names = ("enableSasl", "learnerRequireSasl", "serverRequireSasl")
    return {"java.security.auth.login.config": path, **{f"quorum.auth.{name}": "true" for name in names}}


def tls(directory: Path, name: str, trusted: Path | None = None) -> dict[str, object]:
    """The settings of a member with a certificate of its own making.

    It trusts that one, or another."""
    own = make_certificate(directory, name, "/O=Barnabas/CN=member")
    return {
        "sslQuorum": "true",
        "ssl.quorum.keyStore.location": own,
        "ssl.quorum.trustStore.location": trusted or own,
    }


def quorum_address(member: Member) -> tuple[str, int, int]:
    """Its host, quorum port and election port."""
    host, quorum_port, election_port = member.servers[f"server.{member.server_id}"].split(":")[:3]
    return host, int(quorum_port), int(election_port)


def check_strangers_are_refused(member: Member) -> None:
    """What begins as a member does, without TLS or SASL, gets no answer that a member would get."""
    _, quorum_port, election_port = quorum_address(member)
    greeting = encode_greeting(9, f"{HOST}:1")
    for port, first in ((quorum_port, FOLLOWERINFO), (election_port, greeting + b"\0\0\0\x28" + bytes(40))):
        with socket.create_connection((HOST, port), 5) as stranger:
            stranger.settimeout(60)
            stranger.sendall(first)
            answer = read_to_the_end(stranger)
        # An alert of TLS, or the packet of SASL that says ERROR.
        assert answer in (b"", encode_auth_packet(-1, b"")) or answer[0] == 0x15, answer


def swap_leaders(members: Ensemble) -> None:
    """Ours lead Apache's, then Apache's leads ours; what was acknowledged is there."""
    apache = members.members[3]
    members.until_serving()
    with members.client(3, timeout_s=30) as client:
        client.create("/a", b"1")
    first = eventually(members.leader, what="a member leads")
    if first is not apache:
        check_strangers_are_refused(first)
        first.stop()
        eventually(lambda: apache.mode() == "leader", timeout_s=60, what="Apache's leads")
        first.start()
    members.until_serving()
    with members.client(1, 2, timeout_s=30) as client:
        client.retry(client.set, "/a", b"2")
        client.retry(client.sync, "/a")
        assert client.retry(client.get, "/a")[0] == b"2"


def check_impostor_is_refused(members: Ensemble, settings: dict[str, object], reason: str) -> None:
    """A member that comes back without the right secret stays out, and the others serve."""
    impostor = members.members[1]
    impostor.stop()
    members.until_serving()
    impostor.settings = settings
    seen = len(impostor.log())
    impostor.start()
    eventually(lambda: reason in impostor.log()[seen:], timeout_s=60, what=f"the impostor logs: {reason}")
    with members.client(2, 3, timeout_s=30) as client:
        client.retry(client.set, "/a", b"3")
    assert impostor.mode() == ""


@pytest.mark.java
@needs_reference
def test_members_authenticate_each_other_with_sasl_and_refuse_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours lead one of Apache's, then the reverse; strangers and a member with a
    wrong password stay out."""
    settings = sasl(tmp_path, "member", "quorum-pw")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={tmp_path}/member.jaas")
    with ensemble(tmp_path, (3,), **settings) as members:
        swap_leaders(members)
        check_impostor_is_refused(members, sasl(tmp_path, "impostor", "guessed"), "does not accept this server's user")
        for member in members.members.values():
            assert "quorum-pw" not in member.log()


@pytest.mark.java
@needs_reference
def test_members_connect_with_tls_and_refuse_others(tmp_path: Path) -> None:
    """Ours lead one of Apache's, then the reverse; strangers and a member with
    another certificate stay out."""
    settings = tls(tmp_path, "member")
    with ensemble(tmp_path, (3,), **settings) as members:
        swap_leaders(members)
        check_impostor_is_refused(members, tls(tmp_path, "impostor", tmp_path / "member.pem"), "Cannot open channel to")


class Writer:
    """A client of all members that creates one node after the other, and remembers
    those that were acknowledged.

    Its session, which owns an ephemeral node, must last as long as it.
    """

    def __init__(self, members: Ensemble) -> None:
        self.acknowledged: list[str] = []
        self._states: list[KazooState] = []
        self._client = KazooClient(members.addresses, timeout=40)
        self._client.start(60)
        self._client.add_listener(self._states.append)
        self._client.create("/w", b"")
        self._client.create("/alive", b"", ephemeral=True)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(0.005):
            try:
                with contextlib.suppress(NodeExistsError):  # the answer to an earlier try was lost
                    self._client.create(f"/w/{number}", b"")
            except (ConnectionLoss, ConnectionClosedError):
                continue
            self.acknowledged.append(str(number))
            number += 1

    def close(self) -> None:
        """Stop writing."""
        self._is_over.set()
        self._thread.join(60)
        try:
            assert KazooState.LOST not in self._states
            assert self._client.retry(self._client.exists, "/alive").ephemeralOwner == self._client.client_id[0]
        finally:
            self._stop()

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()


def restart_one_by_one(members: Ensemble, writer: Writer, settings: dict[str, object]) -> None:
    """Each member gets the settings; the next one follows when a write is acknowledged with it."""
    for member in members.members.values():
        member.stop()
        member.settings = {**settings, **({"peerType": "observer"} if member.server_id == 4 else {})}
        configuration = member.directory / "zoo.cfg"
        if is_reconfigured(configuration):
            kept = [line for line in configuration.read_text().splitlines() if line.partition("=")[0] not in settings]
            configuration.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in settings.items()), ""]))
        member.start()
        members.until_serving()
        written = len(writer.acknowledged)
        eventually(lambda: len(writer.acknowledged) > written, timeout_s=60, what="a write with the new member")  # noqa: B023


@pytest.mark.parametrize(
    "release",
    [
        pytest.param(None, id="ours"),
        pytest.param("3.9", id="ours and one of Apache's", marks=[pytest.mark.java, needs_reference]),
    ],
)
def test_tls_and_sasl_are_switched_on_while_clients_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str | None
) -> None:
    """As Apache's guides say: accept both, use the new, demand it; no session and no
    acknowledged write is lost.

    Strangers are out at the end. The ensemble of ours has an observer, and is
    reconfigured when all is on.
    """
    # ZooKeeper 3.9 has DIGEST-MD5 without FIPS mode only.
    changing: dict[str, object] = {"fips-mode": "false"} if release else {"reconfigEnabled": "true", "skipACL": "yes"}
    protected = {**sasl(tmp_path, "member", "quorum-pw"), **tls(tmp_path, "member"), **changing}
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={tmp_path}/member.jaas")
    steps = {
        "portUnification": ("true", "true", "false"),
        "sslQuorum": ("false", "true", "true"),
        "quorum.auth.learnerRequireSasl": ("false", "true", "true"),
        "quorum.auth.serverRequireSasl": ("false", "false", "true"),
    }
    mixture = {"apaches": (3,), "release": release} if release else {"count": 4, "observers": (4,)}
    with ensemble(tmp_path, **mixture, **changing) as members:
        members.until_serving()
        writer = Writer(members)
        try:
            for step in range(3):
                now = {name: texts[step] for name, texts in steps.items()}
                restart_one_by_one(members, writer, {**protected, **now})
            if not release:
                check_an_observer_becomes_a_voter(members)
        finally:
            writer.close()
        assert len(writer.acknowledged) > 100
        for number in members.members:
            with members.client(number, timeout_s=30) as client:
                client.retry(client.sync, "/w")
                assert not set(writer.acknowledged) - set(client.retry(client.get_children, "/w"))
        leader = eventually(members.leader, timeout_s=60, what="a member leads")
        check_strangers_are_refused(leader)


def check_an_observer_becomes_a_voter(members: Ensemble) -> None:
    """The fourth member leaves, and joins with a vote."""
    with members.client(1, timeout_s=30) as client:
        fourth = members.members[4]
        line = fourth.servers["server.4"].replace("observer", "participant")
        client.reconfig("", "4", "")
        client.reconfig(f"server.4={line};{fourth.client_port}", "", "")
        assert client.get("/zookeeper/config")[0].count(b":participant") == 4
    members.until_serving()
