"""Paths, access control lists and session expiry against plain descriptions of their rules."""

import hashlib
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.core.access import (
    SUPER,
    AccessRules,
    authenticate,
    checked_acl,
    hide_digests,
    ip_id,
    is_allowed,
)
from barnabas.coordination.core.operations.base import checked_version
from barnabas.coordination.core.paths import checked_path
from barnabas.coordination.core.sessions import SessionTracker, first_session_id
from barnabas.coordination.core.tree import Tree
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.records import ACL, OPEN_ACL, Id


def is_valid_by_zookeepers_rules(path: str) -> bool:
    """The rules of ZooKeeper's programmer's guide, one by one."""
    if path == "/":
        return True
    if not path.startswith("/"):
        return False
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            return False
        for character in name:
            code = ord(character)
            if code < 0x20 or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or code >= 0xFFF0:
                return False
    return True


def is_accepted(path: str) -> bool:
    try:
        return checked_path(path) == path
    except KeeperError:
        return False


@given(st.text(st.sampled_from("/./..ab \0\x1f\x7f\x9f\xa0\ud800\uf8ff\uf900\uffef\ufff0\uffff\U0001f600"), max_size=8))
def test_a_path_is_accepted_exactly_by_zookeepers_rules(path: str) -> None:
    """The pattern and the plain rules agree."""
    assert is_accepted("/" + path) == is_valid_by_zookeepers_rules("/" + path)
    assert is_accepted(path) == is_valid_by_zookeepers_rules(path)


SCHEMES = AccessRules().schemes
BOB = Id("digest", "bob:" + b64encode(hashlib.sha1(b"bob:pw").digest()).decode())


def test_identities_are_proven_and_matched() -> None:
    """digest by its hash, ip by its network, world always."""
    rules = AccessRules()
    assert authenticate(rules, "digest", b"bob:pw") == [BOB]
    assert authenticate(rules, "ip", b"") == []
    with pytest.raises(KeeperError):
        authenticate(rules, "kerberos", b"")
    with pytest.raises(KeeperError):
        authenticate(AccessRules(schemes=frozenset(("ip",))), "digest", b"bob:pw")
    home = ip_id("127.0.0.1")
    assert is_allowed([ACL(1, BOB)], 1, [home, BOB])
    assert not is_allowed([ACL(1, BOB)], 2, [home, BOB])
    assert not is_allowed([ACL(1, BOB)], 1, [home])
    assert is_allowed([ACL(31, Id("ip", "127.0.0.0/8"))], 16, [home])
    assert not is_allowed([ACL(31, Id("ip", "10.0.0.0/8"))], 16, [home])
    assert not is_allowed([ACL(31, Id("ip", "::1"))], 16, [home])
    assert is_allowed(OPEN_ACL, 16, [home])
    assert is_allowed([], 16, [home])


def test_lists_are_checked_and_auth_is_replaced() -> None:
    """Duplicates are removed; auth stands for the identities of the connection."""
    auth = ACL(7, Id("auth", ""))
    assert checked_acl([auth, auth], [ip_id("::1"), BOB], "/a", SCHEMES) == [ACL(7, BOB)]
    for bad in (None, [], [auth], [ACL(1, Id("digest", "x"))], [ACL(1, Id("ip", "x"))], [ACL(1, Id("world", "x"))]):
        with pytest.raises(KeeperError):
            checked_acl(bad, [ip_id("::1")], "/a", SCHEMES)
    assert hide_digests([ACL(1, BOB), *OPEN_ACL]) == [ACL(1, Id("digest", "bob:x")), *OPEN_ACL]


@pytest.mark.parametrize(
    ("acl", "code"),
    [
        ([ACL(31, Id("auth", None))], None),
        ([ACL(31, Id("auth", None)), ACL(1, Id("world", "anyone"))], None),
        ([ACL(31, Id("auth", None)), ACL(31, Id("auth", None))], ErrorCode.MARSHALLING_ERROR),
        ([ACL(31, Id(None, None))], ErrorCode.INVALID_ACL),
        ([ACL(31, Id("world", "anyone")), ACL(31, Id(None, "anyone"))], ErrorCode.MARSHALLING_ERROR),
        ([ACL(31, Id("nonsense", None))], ErrorCode.INVALID_ACL),
        ([ACL(31, Id("world", None))], ErrorCode.MARSHALLING_ERROR),
        ([ACL(31, Id("digest", None))], ErrorCode.MARSHALLING_ERROR),
        ([ACL(31, Id("ip", None))], ErrorCode.MARSHALLING_ERROR),
        ([ACL(31, Id("ip", "10.0.0.0/255.0.0.0"))], ErrorCode.INVALID_ACL),
        ([ACL(31, Id("ip", "2001:db8::/32"))], None),
        ([ACL(31, Id("sasl", "bob"))], ErrorCode.INVALID_ACL),
    ],
    ids=repr,
)
def test_a_null_in_a_list_is_answered_as_apaches_server_does(acl: list[ACL], code: ErrorCode | None) -> None:
    """``auth`` needs no id; elsewhere a null is an error, and never an exception
    that ends the connection."""
    ids = [ip_id("10.0.0.1"), BOB]
    if code is None:
        assert None not in [entry.id.id for entry in checked_acl(acl, ids, "/a", SCHEMES)]
        return
    with pytest.raises(KeeperError) as refused:
        checked_acl(acl, ids, "/a", SCHEMES)
    assert refused.value.code is code


def test_the_super_user_passes_every_list() -> None:
    """Its digest proves it, with whatever hash is configured; another password does not."""
    digest = "super:" + b64encode(hashlib.sha3_256(b"super:secret").digest()).decode()
    rules = AccessRules(super_digest=digest, digest_algorithm="sha3_256")
    ids = authenticate(rules, "digest", b"super:secret")
    assert SUPER in ids
    locked = [ACL(31, BOB)]
    assert is_allowed(locked, 16, ids)
    assert not is_allowed(locked, 16, authenticate(rules, "digest", b"super:wrong"))
    assert digest not in repr(rules)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 900)), max_size=60))
def test_sessions_expire_at_most_a_tick_late_and_never_early(steps: list[tuple[int, int]]) -> None:
    """The tracker agrees with a list of the times of the last requests."""
    tick_ms, now_ms = 300, 10_000
    tracker = SessionTracker(tick_ms, 0, now_ms)
    timeouts = [600, 700, 1000, 2500]
    last_request_ms = {}
    for session_id, timeout_ms in enumerate(timeouts):
        tracker.track(session_id, timeout_ms, now_ms)
        last_request_ms[session_id] = now_ms
    for session_id, elapsed_ms in steps:
        now_ms += elapsed_ms
        for expired in tracker.expire(now_ms):
            assert now_ms - last_request_ms.pop(expired.id) >= expired.timeout_ms, "too early"
            tracker.remove(expired.id)
        for live, when_ms in last_request_ms.items():
            assert now_ms - when_ms < timeouts[live] + tick_ms, "too late"
        session = tracker.live(session_id)
        if session is not None:
            tracker.touch(session, now_ms)
            last_request_ms[session_id] = now_ms
    assert tracker.sessions.keys() == last_request_ms.keys()


def test_a_session_expires_with_its_tick_and_not_earlier() -> None:
    """A timeout of 150 ms that began at 0 ends with the tick at 200 ms."""
    tracker = SessionTracker(tick_ms=100, first_id=0, now_ms=0)
    session = tracker.track(1, 150, now_ms=0)
    assert tracker.expire(199) == []
    assert tracker.expire(200) == [session]


def test_a_new_session_never_gets_the_id_of_a_live_one() -> None:
    """Ids of sessions from the log are not given out again."""
    tracker = SessionTracker(tick_ms=100, first_id=7, now_ms=0)
    tracker.track(8, 1000, now_ms=0)
    assert tracker.new_id() == 9


def test_a_version_above_the_largest_int_wraps_to_negative() -> None:
    """Versions are Java's ints, and -1 expects any."""
    assert checked_version(4, 4, "/a") == checked_version(4, -1, "/a") == 5
    assert checked_version(2**31 - 1, -1, "/a") == -(2**31)
    with pytest.raises(KeeperError):
        checked_version(4, 3, "/a")


def test_session_ids_of_servers_and_starts_differ() -> None:
    """The server's id is in the highest byte, the time below."""
    assert first_session_id(1, 1_700_000_000_000) >> 56 == 1
    assert first_session_id(1, 1_700_000_000_001) - first_session_id(1, 1_700_000_000_000) == 1 << 16
    assert first_session_id(200, 5) < 0, "a Java long"


def test_a_long_path_is_kept_once() -> None:
    """The tree's nodes and the lists of their children share it; a node that is
    created again does, too."""
    tree = Tree()
    path = ""
    for _ in range(300):
        path += "/n"
        tree.put(path, DataNode.new(path, b"", OPEN_ACL, 0, 1, 0))
    for _ in range(2):
        keys = {key: key for key in tree.nodes}
        assert all(keys[parent] is parent for parent in tree.children if len(parent) >= 256)
        tree.remove(path)
        tree.put(path, DataNode.new(path, b"", OPEN_ACL, 0, 2, 0))
        tree.put(path + "/n", DataNode.new(path + "/n", b"", OPEN_ACL, 0, 2, 0))
        tree.remove(path + "/n")
    for size in range(300, 0, -1):
        tree.remove("/n" * size)
    assert not tree._long_paths
