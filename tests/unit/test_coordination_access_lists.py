"""Checks of access control lists against a plain description of them, and what many
entries cost."""

import ipaddress
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.core import access
from barnabas.coordination.core.access import SUPER, AccessList, checked_acl, is_allowed, parse_network
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import ACL, OPEN_ACL, READ_ACL, CreateRequest, GetDataRequest, Id, SetDataRequest
from support.coordination_processor import Harness

SCHEMES = frozenset(("digest", "ip"))
ADDRESSES = ("10.0.0.1", "10.0.1.1", "2001:db8::1", "::1", "fe80::1%eth0", "localhost", "")
NETWORKS = (
    *ADDRESSES,
    "10.0.0.0/24",
    "10.0.0.9/16",
    "0.0.0.0/0",
    "2001:db8::/32",
    "::/0",
    "10.0.0.1/255.0.0.0",
    "10.0.0.1/",
)
NAMES = ("bob", "bob:x", "super", "anyone", "CN=bob", None)

entries = st.builds(
    ACL,
    st.integers(-1, 31),
    st.one_of(
        st.builds(Id, st.sampled_from(("world", "digest", "sasl", "x509", None)), st.sampled_from(NAMES)),
        st.builds(Id, st.just("ip"), st.sampled_from((*NETWORKS, None))),
    ),
)
identities = st.one_of(
    st.just(SUPER),
    st.builds(Id, st.sampled_from(("digest", "sasl", "x509")), st.sampled_from(NAMES[:-1])),
    st.builds(Id, st.just("ip"), st.sampled_from(ADDRESSES)),
)


def is_in(address: str, network: str) -> bool:
    try:
        if "/" in network and not network.partition("/")[2].isdecimal():
            return False
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def is_allowed_one_by_one(acl: Sequence[ACL], perms: int, ids: Sequence[Id]) -> bool:
    """Each entry with each identity."""
    if not acl or SUPER in ids:
        return True
    return any(
        given & perms
        and (
            (scheme, wanted) == ("world", "anyone")
            or any(
                is_in(own or "", wanted or "")
                if scheme == "ip"
                else own == wanted or (scheme, own) == ("sasl", "super")
                for own_scheme, own in ids
                if own_scheme == scheme
            )
        )
        for given, (scheme, wanted) in acl
    )


@given(st.lists(entries, max_size=5), st.sampled_from((1, 2, 4, 8, 16, 17, 31)), st.lists(identities, max_size=4))
def test_a_check_agrees_with_comparing_each_entry_with_each_identity(acl: list[ACL], perms: int, ids: list[Id]) -> None:
    """Also with nulls, with addresses that are none, and with several entries for
    the same identity."""
    expected = is_allowed_one_by_one(acl, perms, ids)
    kept = AccessList(acl)
    assert is_allowed(acl, perms, ids) == is_allowed(kept, perms, ids) == is_allowed(kept, perms, ids) == expected


@given(st.lists(entries, max_size=5))
def test_a_list_is_equal_to_the_tuple_of_its_entries(acl: list[ACL]) -> None:
    """Nodes of a snapshot, of transactions and of this server share their lists."""
    assert AccessList(acl) == tuple(acl)
    assert {tuple(acl): 1}[AccessList(acl)] == {AccessList(acl): 1}[tuple(acl)] == 1


@pytest.mark.parametrize(
    "text", ["10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/٣", "10.0.0.0/8/8", "010.0.0.1", "/8"]
)
def test_what_is_no_network_is_a_value_error(text: str) -> None:
    """Too many bits, digits that are not ASCII, octal octets."""
    with pytest.raises(ValueError, match=r"."):
        parse_network(text)


def test_a_list_of_many_networks_is_read_once_for_all_checks_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small multiRead of a node with thousands of entries does not read each of
    them again for each part."""
    parsed = []

    def counting(text: str) -> tuple[int, int, int]:
        parsed.append(text)
        return parse_network(text)

    harness = Harness()
    client = harness.connect()
    acl = [ACL(31, Id("ip", f"10.0.{number}.0/24")) for number in range(200)]
    monkeypatch.setattr(access, "parse_network", counting)
    for path in ("/a", "/b"):  # which share the list
        assert client.call(OpCode.CREATE, CreateRequest(path, b"", acl, 0))[0] == 0
    parsed.clear()
    reads = [(OpCode.GET_DATA, GetDataRequest(path, False)) for path in ("/a", "/b")] * 50
    assert client.call(OpCode.MULTI_READ, reads)[0] == 0
    assert client.call(OpCode.SET_DATA, SetDataRequest("/a", b"x", -1))[0] == ErrorCode.NO_AUTH
    assert client.call(OpCode.GET_DATA, GetDataRequest("/b", False))[0] == ErrorCode.NO_AUTH
    assert len(parsed) == len(acl)


def test_entries_with_a_null_are_compared_with_all_before_them_in_one_look_up() -> None:
    """The permissions of none are equal, so each has to be compared with every other one."""

    class Counted(str):
        __slots__ = ()
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

    acl = [ACL(perms, Id(Counted("auth"), None if perms % 2 else "")) for perms in range(2000)]
    assert len(checked_acl(acl, [Id("digest", "bob:x")], "/a", SCHEMES)) == 2000
    assert Counted.compared < 10 * len(acl)


def test_auth_so_often_that_it_stands_for_too_many_entries_is_refused() -> None:
    """A request of a megabyte would otherwise become a transaction of hundreds."""
    own = [Id("digest", f"user{number}:x") for number in range(99)]
    entries_of_auth = [ACL(perms, Id("auth", "")) for perms in range(102)]
    with pytest.raises(KeeperError) as refused:
        checked_acl(entries_of_auth, own, "/a", SCHEMES)
    assert refused.value.code is ErrorCode.INVALID_ACL
    assert len(checked_acl(entries_of_auth[:101], own, "/a", SCHEMES)) == 9999


def test_too_many_entries_for_addresses_are_refused() -> None:
    """Each is read as an address, and a request of a megabyte has tens of thousands."""
    acl = [ACL(1, Id("ip", f"2001:db8::{number:x}")) for number in range(1001)]
    with pytest.raises(KeeperError) as refused:
        checked_acl(acl, [], "/a", SCHEMES)
    assert refused.value.code is ErrorCode.INVALID_ACL
    others = [ACL(1, Id("digest", f"user{number}:x")) for number in range(10)]
    assert len(checked_acl([*acl[1:], *others], [], "/a", SCHEMES)) == 1010


octets = st.one_of(st.integers(-1, 300).map(str), st.sampled_from(("", "00", "010", " 1", "+1", "1_0", "٣")))
hosts = st.one_of(
    st.lists(octets, min_size=3, max_size=5).map(".".join),
    st.ip_addresses().map(str),
    st.lists(octets, min_size=4, max_size=4).map(lambda found: "::ffff:" + ".".join(found)),
)


@given(hosts)
def test_an_address_is_read_as_the_standard_library_reads_it(host: str) -> None:
    """Also what is none: octets that are too great, that have zeros in front, or other digits."""
    try:
        expected = ipaddress.ip_address(host)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            parse_network(host)
    else:
        assert parse_network(host) == (expected.version, int(expected), 0)


def test_the_list_of_the_configuration_node_keeps_what_checks_need() -> None:
    """Each client of an ensemble may read that node, and few nodes have a list of
    the same entries."""
    harness = Harness()
    tree = harness.processor.database.tree
    kept = tree.nodes["/zookeeper/config"].acl
    assert isinstance(kept, AccessList)
    assert tree.intern(list(READ_ACL)) is kept
    assert kept == READ_ACL
    assert list(tree.forget_unused_acls()) == []
    assert tree.intern(list(READ_ACL)) is kept


def test_everyone_may_do_everything_where_the_list_says_so() -> None:
    """The usual list is not looked into, and one that is equal to it means the same."""
    for acl in (OPEN_ACL, list(OPEN_ACL), AccessList(OPEN_ACL)):
        assert all(is_allowed(acl, perms, []) for perms in (1, 2, 4, 8, 16))
