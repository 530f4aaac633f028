"""Local sessions in ensembles: of ours, and with Apache ZooKeeper's leader."""

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from support.coordination import RawClient
from support.ensemble import Ensemble, ensemble, four_letter_word
from support.needs import needs_reference
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

MIXTURES = [
    pytest.param((), id="ours"),
    pytest.param((2,), id="ours follows Apache's", marks=[pytest.mark.java, needs_reference]),
]
LOCAL = {"localSessionsEnabled": "true"}


def figure(members: Ensemble, server_id: int, name: str) -> int:
    """One of the values of mntr."""
    lines = four_letter_word(members.members[server_id].client_port, b"mntr").splitlines()
    return int(next(line.partition("\t")[2] for line in lines if line.startswith(f"zk_{name}\t")))


def last_zxid(client: KazooClient) -> int:
    """The zxid of the last transaction, by a write."""
    return client.set("/a", b"").mzxid


@pytest.mark.parametrize("apaches", MIXTURES)
def test_a_local_session_costs_no_write_until_its_first_ephemeral_node(
    tmp_path: Path, apaches: tuple[int, ...]
) -> None:
    """It begins, reads, writes and ends without a transaction of its own; an
    ephemeral node makes it global."""
    with ensemble(tmp_path, apaches, count=2, **LOCAL, localSessionsUpgradingEnabled="true") as members:
        members.until_serving()
        with members.client(2) as other:
            other.create("/a", b"")
            before = last_zxid(other)
            with members.client(1) as client:
                assert sorted(client.get_children("/")) == ["a", "zookeeper"]
                assert figure(members, 1, "local_sessions") == 1
                client.set("/a", b"local")
            assert last_zxid(other) == before + 2  # the client's write, and this one
            with members.client(1) as client:
                client.create("/e", b"", ephemeral=True)
                transaction = client.transaction()
                transaction.create("/e2", b"", ephemeral=True)
                assert transaction.commit() == ["/e2"]
                assert figure(members, 1, "local_sessions") == 0
                eventually(lambda: figure(members, 2, "global_sessions") == 1, timeout_s=60, what="it is global")
                owner = other.get("/e")[1].ephemeralOwner
                assert owner == client.client_id[0]
            eventually(lambda: other.exists("/e") is None, timeout_s=60, what="the ephemeral node ends with it")
            assert other.exists("/e2") is None


def test_without_upgrading_a_local_session_owns_no_ephemeral_node(tmp_path: Path) -> None:
    """The creation is refused, on the leader and on a follower; the session goes on."""
    with ensemble(tmp_path, count=2, **LOCAL) as members:
        members.until_serving()
        for server_id in (1, 2):
            with members.client(server_id) as client:
                with pytest.raises((KazooException, KeyError)):
                    client.create("/e", b"", ephemeral=True)
                client.create(f"/n{server_id}", b"")
                assert client.exists("/e") is None


def test_a_local_session_expires_on_its_server(tmp_path: Path) -> None:
    """Its connection is lost without a close: the server forgets it after its time-out."""
    with ensemble(tmp_path, count=2, **LOCAL, tickTime=500) as members:
        members.until_serving()
        dying = RawClient(members.members[1].client_port, timeout_ms=4000)
        assert figure(members, 1, "local_sessions") == 1
        dying.close()
        eventually(lambda: figure(members, 1, "local_sessions") == 0, timeout_s=60, what="the session expires")
