"""Ensembles of our servers and one of Apache's whose members protect their connections, with TLS and with SASL."""

import socket
import struct
from pathlib import Path

import pytest

from barnabas.coordination.election.messages import encode_greeting
from barnabas.coordination.quorum.authentication import encode_auth_packet
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
    """The settings of a member with a certificate of its own making; it trusts that one, or another."""
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
            stranger.settimeout(20)
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
    first = members.leader()
    assert first is not None
    if first is not apache:
        check_strangers_are_refused(first)
        first.stop()
        eventually(lambda: apache.mode() == "leader", timeout_s=60, what="Apache's leads")
        first.start()
    members.until_serving()
    with members.client(1, 2, timeout_s=30) as client:
        client.set("/a", b"2")
        client.sync("/a")
        assert client.get("/a")[0] == b"2"


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
        client.set("/a", b"3")
    assert impostor.mode() == ""


@pytest.mark.java
@needs_reference
def test_members_authenticate_each_other_with_sasl_and_refuse_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours lead one of Apache's, then the reverse; strangers and a member with a wrong password stay out."""
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
    """Ours lead one of Apache's, then the reverse; strangers and a member with another certificate stay out."""
    settings = tls(tmp_path, "member")
    with ensemble(tmp_path, (3,), **settings) as members:
        swap_leaders(members)
        check_impostor_is_refused(members, tls(tmp_path, "impostor", tmp_path / "member.pem"), "Cannot open channel to")
