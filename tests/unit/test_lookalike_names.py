"""Names that differ in case, width, normal form or in what is not seen are different names: for
lists, for super users and for those who log in."""

import contextlib
import hashlib
from collections.abc import Iterator

import pytest

from barnabas.broker.authorizer.authorizer import Authorizer, VersionedAcls
from barnabas.security.acls import (
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.errors import SaslError
from barnabas.security.plain import PlainServer
from barnabas.security.sasl_client import converse
from barnabas.security.scram import ScramServer, scram_credential
from support.lookalikes import NAMES, lookalikes

READ = AclOperation.READ
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
PASSWORD = "the same for all"
MECHANISM = "SCRAM-SHA-256"


def authorizer(kind: ResourceType, name: str, *entries: tuple[str, AclPermissionType]) -> Authorizer:
    """One with entries for a resource, by principal."""
    made = Authorizer()
    found = frozenset(AccessControlEntry(principal, "*", READ, permission) for principal, permission in entries)
    made.update(ResourcePattern(kind, name, PatternType.LITERAL), VersionedAcls(found, 1))
    return made


def pairs() -> Iterator[tuple[str, str]]:
    """Each name with each other one that looks like it."""
    return ((name, other) for name in NAMES for other in sorted(lookalikes(name)))


def test_there_are_many_of_them() -> None:
    """Of all kinds."""
    found = dict.fromkeys(pairs())
    assert len(found) > 900
    assert (NAMES[0], NAMES[0].lower()) in found
    assert ("\u00c5ngstr\u00f6m", "A\u030angstro\u0308m") in found
    assert ("caf\u00e9-\ufb01ne", "caf\u00e9-fine") in found


@pytest.mark.parametrize(
    "kind", [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID], ids=lambda kind: kind.name
)
def test_a_right_to_a_resource_is_none_to_one_that_looks_like_it(kind: ResourceType) -> None:
    """Names are compared as they are."""
    by_name = {name: authorizer(kind, name, ("User:ann", ALLOW)) for name in NAMES}
    assert all(each.authorize("User:ann", "h", READ, kind, name) for name, each in by_name.items())
    allowed = [pair for pair in pairs() if by_name[pair[0]].authorize("User:ann", "h", READ, kind, pair[1])]
    assert allowed == []


def test_a_right_and_a_denial_are_of_no_user_who_looks_like_another() -> None:
    """Nor is anyone a super user by that."""
    topic = ResourceType.TOPIC
    for name in NAMES:
        own = f"User:{name}"
        allows = authorizer(topic, "orders", (own, ALLOW))
        denies = authorizer(topic, "orders", ("User:*", ALLOW), (own, DENY))
        supers = Authorizer(frozenset((own,)))
        decisions = [
            tuple(each.authorize(principal, "h", READ, topic, "orders") for each in (allows, denies, supers))
            for principal in (own, *(f"User:{other}" for other in lookalikes(name)))
        ]
        assert decisions[0] == (True, False, True)
        assert set(decisions[1:]) == {(False, True, False)}


def can_log_in(server: PlainServer | ScramServer, mechanism: str, user: str) -> bool:
    """Whether a user with the password of all is let in."""
    conversation = converse(mechanism, user, PASSWORD, "cln")
    with contextlib.suppress(SaslError, StopIteration):
        said = next(conversation)
        while True:
            said = conversation.send(server.evaluate(said))
    return server.is_complete


@pytest.mark.parametrize("mechanism", ["PLAIN", MECHANISM])
def test_nobody_logs_in_as_a_user_whose_name_looks_like_the_own_one(mechanism: str) -> None:
    """Kafka does not make names alike either, though RFC 5802 asks for it."""
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), b"salt", 4096)
    known = {name: scram_credential(MECHANISM, salted, b"salt", 4096) for name in NAMES}
    stand_in = scram_credential(MECHANISM, bytes(32), b"salt", 4096)

    def server() -> PlainServer | ScramServer:
        if mechanism == "PLAIN":
            return PlainServer(dict.fromkeys(NAMES, PASSWORD))
        return ScramServer(MECHANISM, known.get, lambda _: stand_in, "srv")

    assert all(can_log_in(server(), mechanism, name) for name in NAMES)
    name = NAMES[1]
    others = [other for other in sorted(lookalikes(name)) if other and "\0" not in other]
    assert len(others) > 100
    assert [other for other in others if can_log_in(server(), mechanism, other)] == []
