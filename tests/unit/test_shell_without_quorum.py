"""``zookeeper-shell`` on a member of an ensemble that has no quorum."""

import sys
from collections.abc import Iterator

import pytest

from barnabas.cli.main import main
from barnabas.cli.zookeeper.diagnosis import why_unserved
from barnabas.testing import Cluster
from support.ports import free_ports
from support.typed_lines import TypedLines
from support.waiting import eventually

WITHOUT_QUORUM = "is a member of an ensemble without a quorum, and serves no client"
BRIEFLY = ("--connect-timeout", "2")


@pytest.fixture
def ensemble() -> Iterator[Cluster]:
    """Three servers."""
    with Cluster(brokers=1, zk_servers=3) as cluster:
        yield cluster


def _commands_around_a_loss(cluster: Cluster) -> Iterator[str]:
    """Commands, with a loss of the quorum between them."""
    yield "ls /brokers\n"
    without_quorum(cluster)
    yield "ls /brokers\n"
    yield "create /late x\n"


def without_quorum(cluster: Cluster) -> str:
    """Stop two of three; the address of the third."""
    last = cluster.zookeeper_connect.split(",")[2]
    for server_id in (1, 2):
        cluster.stop_zookeeper(server_id)
    eventually(lambda: WITHOUT_QUORUM in why_unserved(last), what="the last server does not serve")
    return last


def test_the_shell_says_that_a_member_has_no_quorum(
    ensemble: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a conversation each command ends with the reason, reads and writes; so does
    a shell that begins then."""
    last = ensemble.zookeeper_connect.split(",")[2]
    monkeypatch.setattr(sys, "stdin", TypedLines(_commands_around_a_loss(ensemble)))
    assert main(["zookeeper-shell", *BRIEFLY, last]) == 1
    first, second = capsys.readouterr().err.splitlines()
    for line in (first, second):
        assert f"{last} {WITHOUT_QUORUM}. Start the other members" in line
    assert main(["zookeeper-shell", *BRIEFLY, ensemble.zookeeper_connect, "ls", "/"]) == 1
    error = capsys.readouterr().err
    assert f"{last} {WITHOUT_QUORUM}; " in error
    assert error.count("is unreachable (Connection refused)") == 2


def test_a_port_without_a_server_is_no_member_without_quorum(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing answers there."""
    (port,) = free_ports(1)
    assert main(["zookeeper-shell", *BRIEFLY, f"127.0.0.1:{port}", "ls", "/"]) == 1
    assert f"no coordination server answers at 127.0.0.1:{port}: is one running there?" in capsys.readouterr().err
