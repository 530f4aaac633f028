"""What is kept of a client's rights to produce, and when it is asked for again."""

import logging

import pytest

from barnabas.broker.apis.produce import rights_of
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.authorizer.authorizer import Authorizer, VersionedAcls
from barnabas.broker.replication import topic_rights
from barnabas.broker.requests.request import ClientFacts
from barnabas.security.acls import (
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
WRITES = AccessControlEntry("User:ann", "*", AclOperation.WRITE, AclPermissionType.ALLOW)


class Asked(AuthHelper):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(Authorizer())
        self.names: list[str] = []

    def authorize_client(self, client, api_key, operation, resource_type, name, **more) -> bool:  # type: ignore[no-untyped-def]
        self.names.append(name)
        return super().authorize_client(client, api_key, operation, resource_type, name, **more)

    def set(self, *entries: AccessControlEntry) -> None:
        self.authorizer.update(ORDERS, VersionedAcls(frozenset(entries), 0))


@pytest.fixture
def helper() -> Asked:
    made = Asked()
    made.set(WRITES)
    return made


@pytest.fixture
def client() -> ClientFacts:
    made = ClientFacts("L", "10.0.0.1", 1)
    made.principal = "User:ann"
    return made


def may_write(helper: Asked, client: ClientFacts, topic: str = "orders") -> bool:
    """In requests that have just arrived."""
    return rights_of(helper, client).allows(topic)


def test_a_topic_that_is_allowed_is_asked_for_once(helper: Asked, client: ClientFacts) -> None:
    """Until rights change."""
    assert [may_write(helper, client) for _ in range(3)] == [True] * 3
    assert helper.names == ["orders"]
    helper.set()
    assert not may_write(helper, client)
    helper.set(WRITES)
    assert may_write(helper, client)


def test_a_topic_that_is_denied_is_asked_for_again_with_each_arrival(helper: Asked, client: ClientFacts) -> None:
    """The audit log counts it; within requests that arrived together it is asked for once."""
    for _ in range(2):
        rights = rights_of(helper, client)
        assert [rights.allows("other"), rights.allows("other"), rights.allows("orders")] == [
            False,
            False,
            True,
        ]
    assert helper.names == ["other", "orders"] * 2


def test_another_principal_of_the_connection_is_asked_for(helper: Asked, client: ClientFacts) -> None:
    """It may authenticate again."""
    assert may_write(helper, client)
    client.principal = "User:bob"
    assert not may_write(helper, client)
    client.principal = "User:ann"
    assert may_write(helper, client)


def test_settings_of_the_authorizer_count_at_once(helper: Asked, client: ClientFacts) -> None:
    """A super user that is none any more is asked for."""
    helper.authorizer.configure(frozenset(["User:ann"]), allow_everyone_if_no_acl_found=False)
    assert may_write(helper, client, "other")
    helper.authorizer.configure(frozenset(), allow_everyone_if_no_acl_found=False)
    assert not may_write(helper, client, "other")


def test_where_each_approval_leaves_a_line_each_is_asked_for(
    helper: Asked, client: ClientFacts, caplog: pytest.LogCaptureFixture
) -> None:
    """At the level DEBUG of the audit log."""
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    for _ in range(3):
        assert may_write(helper, client)
    assert helper.names == ["orders"] * 3
    assert len(caplog.records) == 3


def test_what_is_kept_of_a_client_has_a_limit(
    helper: Asked, client: ClientFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of very many topics is asked for again."""
    monkeypatch.setattr(topic_rights, "_MAX_KEPT_TOPICS", 3)
    helper.authorizer.configure(frozenset(["User:ann"]), allow_everyone_if_no_acl_found=False)
    for _ in range(2):
        for topic in "abcd":
            assert may_write(helper, client, topic)
    assert helper.names == list("abcdabcd")
