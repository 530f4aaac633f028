"""Access control lists in znodes: their bytes, and how brokers read, follow and change them, also
where they are hindered."""

import itertools
import json
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from barnabas.base.tasks import done_here
from barnabas.broker.authorizer.acl_store import AclBindingDeleteResult, AclDeleteResult, AclStore
from barnabas.broker.authorizer.acl_znodes import (
    CHANGES,
    MAX_ACLS_BYTES,
    acl_path,
    decode_acls,
    decode_change,
    encode_acls,
    encode_change,
)
from barnabas.broker.authorizer.authorizer import Authorizer, VersionedAcls
from barnabas.broker.cluster.steps import Pause, Transact
from barnabas.broker.cluster.znodes import ZnodeFormatError
from barnabas.security.acls import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from support.znode_steps import Znodes

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
ALL_OF_O = ResourcePattern(ResourceType.TOPIC, "o", PatternType.PREFIXED)
GROUP = ResourcePattern(ResourceType.GROUP, "orders", PatternType.LITERAL)
ANN = AccessControlEntry("User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW)
BOB = ANN._replace(principal="User:bob")
LIFETIME_MS = 15 * 60 * 1000


def path(pattern: ResourcePattern) -> str:
    return acl_path(pattern.resource_type, pattern.pattern_type, pattern.name)


class Broker:
    """One broker's entries."""

    def __init__(self, znodes: Znodes, *, has_prefixes: bool = True) -> None:
        self.znodes = znodes
        self.authorizer = Authorizer()
        self.store = AclStore(self.authorizer, lambda: znodes.now_ms, Random(1), has_prefixes=has_prefixes)
        znodes.perform(self.store.load())

    def look(self) -> None:
        for pattern_type in CHANGES:
            self.znodes.perform(self.store.process_changes(pattern_type))

    def create(self, *bindings: AclBinding) -> list[KafkaError | KeeperError | None]:
        results: list[KafkaError | KeeperError | None] = self.znodes.perform(self.store.create(bindings))
        return results

    def delete(self, *filters: AclBindingFilter) -> list[list[AclBindingDeleteResult]]:
        """What filters have deleted, where nothing hinders them."""
        results: list[AclDeleteResult] = self.znodes.perform(self.store.delete(filters))
        assert codes([result.failure for result in results]) == [ErrorCode.NONE] * len(filters)
        return [result.bindings for result in results]

    def may_read(self, principal: str, topic: str = "orders") -> bool:
        return self.authorizer.authorize(principal, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, topic)

    def entries(self, pattern: ResourcePattern = ORDERS) -> set[AccessControlEntry]:
        acls = self.authorizer.acls_of(pattern)
        return set() if acls is None else set(acls.entries)


def stored(znodes: Znodes, pattern: ResourcePattern = ORDERS) -> set[AccessControlEntry]:
    return set(done_here(decode_acls(path(pattern), znodes.data(path(pattern)))))


def notes(znodes: Znodes, pattern_type: PatternType = PatternType.LITERAL) -> list[bytes | None]:
    root = CHANGES[pattern_type]
    return [znodes.data(f"{root}/{name}") for name in znodes.children(root)]


def drive(znodes: Znodes, steps: Any, on_step: Callable[[Any], KeeperError | None]) -> Any:
    """Perform steps, each after ``on_step`` had a look at it, or raise what that returns."""
    outcome: Any = None
    while True:
        try:
            step = steps.throw(outcome) if isinstance(outcome, KeeperError) else steps.send(outcome)
        except StopIteration as end:
            return end.value
        outcome = on_step(step) or znodes.outcome(step)


def codes(failures: Sequence[KafkaError | KeeperError | None]) -> list[ErrorCode]:
    return [failure.code if isinstance(failure, KafkaError) else ErrorCode.NONE for failure in failures]


# Bytes


def test_entries_have_the_bytes_of_apaches_brokers() -> None:
    """Key order included; what is not ASCII is not escaped."""
    entry = AccessControlEntry('User:"ä', "10.0.0.1", AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)
    text = (
        '{"acls":[{"principal":"User:\\"ä","permissionType":"Deny","host":"10.0.0.1","operation":"DescribeConfigs"},'
        '{"principal":"User:b","permissionType":"Allow","host":"*","operation":"All"}],"version":1}'
    )
    other = AccessControlEntry("User:b", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    assert done_here(encode_acls([entry, other])) == text.encode()
    assert (
        path(ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t", PatternType.LITERAL)) == "/kafka-acl/TransactionalId/t"
    )
    assert path(ALL_OF_O) == "/kafka-acl-extended/prefixed/Topic/o"


def test_notes_have_the_bytes_of_apaches_brokers() -> None:
    """A text for a literal pattern, JSON for a prefix."""
    transactional = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a:b", PatternType.LITERAL)
    assert encode_change(transactional) == b"TRANSACTIONAL_ID:a:b"
    assert encode_change(ALL_OF_O) == (b'{"version":1,"resourceType":"TOPIC","name":"o","patternType":"PREFIXED"}')
    for pattern in (transactional, ALL_OF_O):
        assert decode_change(f"{CHANGES[pattern.pattern_type]}/acl_changes_1", encode_change(pattern)) == pattern
    assert decode_change("/kafka-acl-changes/acl_changes_1", b"Topic:t") == ORDERS._replace(name="t")
    assert decode_change("/kafka-acl-changes/acl_changes_1", b"SomethingNew:t") is None


def test_words_are_read_in_any_case_and_unknown_ones_kept() -> None:
    """As older and newer versions wrote them."""
    acls = [
        {"principal": "User:a", "permissionType": "ALLOW", "operation": "DESCRIBECONFIGS", "host": "*"},
        {"principal": "User:a", "permissionType": "Allow", "operation": "Fly", "host": "*"},
    ]
    data = json.dumps({"version": 1, "acls": acls, "more": 1}).encode()
    assert {entry.operation for entry in done_here(decode_acls("/p", data))} == {
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.UNKNOWN,
    }
    assert done_here(decode_acls("/p", b"")) == done_here(decode_acls("/p", None)) == frozenset()


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[" * 100_000,
        b"[]",
        b"\xff",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":{}}',
        b'{"version":1,"acls":[1]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read"}]}',
        b'{"version":1,"acls":[{"principal":"a","permissionType":"Allow","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":1,"operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":1}]}',
        b'{"version":1,"acls":[{"principal":"User:\\ud800","permissionType":"Allow","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"\\udfff"}]}',
    ],
    ids=range(14),
)
def test_a_znode_that_cannot_be_read_stops_the_start_and_later_denies(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It may deny something: a broker that ignored it, or kept what was there, would be open."""
    znodes = Znodes()
    broker = Broker(znodes)
    broker.create(AclBinding(ORDERS, ANN))
    znodes.put(path(ORDERS), data)
    znodes.put("/kafka-acl-changes/acl_changes_0000000099", b"TOPIC:orders")
    broker.look()
    znodes.perform(broker.store.reload())
    (error,) = (record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR)
    assert "Write the znode /kafka-acl/Topic/orders again, or delete it" in error
    assert broker.authorizer.unreadable == {ORDERS}
    assert not broker.may_read("User:ann")
    assert codes(broker.create(AclBinding(ORDERS, BOB))) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    named = ResourcePatternFilter(ResourceType.TOPIC, "orders", PatternType.LITERAL)
    other = ResourcePatternFilter(ResourceType.TOPIC, "other", PatternType.LITERAL)
    filters = [AclBindingFilter(), AclBindingFilter(named), AclBindingFilter(other)]
    deleted = znodes.perform(broker.store.delete(filters))
    assert codes([result.failure for result in deleted]) == [*[ErrorCode.UNKNOWN_SERVER_ERROR] * 2, ErrorCode.NONE]
    assert [result.bindings for result in deleted] == [[], [], []]
    assert znodes.data(path(ORDERS)) == data
    with pytest.raises(ZnodeFormatError, match="/kafka-acl/Topic/orders"):
        Broker(znodes)


@pytest.mark.parametrize("pattern", [ORDERS, ALL_OF_O, ORDERS._replace(name="*")], ids=["literal", "prefix", "all"])
def test_a_new_znode_that_cannot_be_read_denies_all_but_super_users_until_it_can_be(pattern: ResourcePattern) -> None:
    """Where resources without ACLs are open, too; other resources stay open."""
    znodes = Znodes()
    broker = Broker(znodes)
    broker.authorizer.configure(frozenset({"User:root"}), allow_everyone_if_no_acl_found=True)
    znodes.put(path(pattern), b"{")
    znodes.put(f"{CHANGES[pattern.pattern_type]}/acl_changes_0000000099", encode_change(pattern))
    broker.look()
    assert [broker.may_read(user) for user in ("User:ann", "User:root")] == [False, True]
    assert broker.may_read("User:ann", "payments") is (pattern.name != "*")
    znodes.perform(broker.store.retry_unreadable())
    assert not broker.may_read("User:ann")
    znodes.put(path(pattern), done_here(encode_acls([ANN])))
    znodes.perform(broker.store.retry_unreadable())
    assert [broker.may_read(user) for user in ("User:ann", "User:bob")] == [True, False]
    assert not broker.authorizer.unreadable


def test_a_znode_that_its_own_acl_hides_denies_and_hinders_no_other_change() -> None:
    """What the coordination service refuses to show may deny something, too."""
    znodes = Znodes()
    broker, other = Broker(znodes), Broker(znodes)
    broker.create(AclBinding(ORDERS, ANN))
    other.create(AclBinding(GROUP, BOB))
    znodes.unreadable.add(path(ORDERS))
    broker.look()
    assert broker.authorizer.unreadable == {ORDERS}
    assert broker.entries(GROUP) == {BOB}
    both = broker.create(AclBinding(ORDERS, BOB), AclBinding(ALL_OF_O, BOB))
    assert codes(both) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    with pytest.raises(KeeperError):
        Broker(znodes)
    znodes.unreadable.clear()
    assert codes(broker.create(AclBinding(ORDERS, BOB))) == [ErrorCode.NONE]
    assert broker.entries() == {ANN, BOB}


# Reading


def test_a_broker_makes_the_znodes_and_reads_the_entries_that_there_are() -> None:
    """Of all types of resources and patterns; a second start finds the znodes."""
    znodes = Znodes()
    Broker(znodes).create(AclBinding(ORDERS, ANN), AclBinding(ALL_OF_O, BOB), AclBinding(GROUP, ANN))
    znodes.put("/kafka-acl/SomethingNew/x", b"{")
    broker = Broker(znodes)
    assert broker.entries() == {ANN}
    assert broker.entries(ALL_OF_O) == {BOB}
    assert broker.entries(GROUP) == {ANN}
    assert znodes.children("/kafka-acl") == sorted(
        ["SomethingNew", "Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"]
    )
    assert znodes.data("/kafka-acl/Topic") is None


def test_more_patterns_than_are_read_at_a_time_are_read() -> None:
    """All of them."""
    znodes = Znodes()
    bindings = [AclBinding(ORDERS._replace(name=f"t{number}"), ANN) for number in range(600)]
    assert codes(Broker(znodes).create(*bindings)) == [ErrorCode.NONE] * 600
    assert set(Broker(znodes).authorizer.patterns()) == {binding.pattern for binding in bindings}


def test_a_note_leads_the_other_brokers_to_what_has_changed() -> None:
    """Additions and removals, of literal names and prefixes."""
    znodes = Znodes()
    writer, reader = Broker(znodes), Broker(znodes)
    writer.create(AclBinding(ORDERS, ANN), AclBinding(ALL_OF_O, BOB))
    assert reader.entries() == set()
    reader.look()
    assert reader.entries() == {ANN}
    assert reader.entries(ALL_OF_O) == {BOB}
    writer.delete(AclBindingFilter())
    reader.look()
    assert list(reader.authorizer.patterns()) == []
    assert not [name for name in znodes.nodes if name in (path(ORDERS), path(ALL_OF_O))]


def test_notes_that_cannot_be_read_stop_no_others(caplog: pytest.LogCaptureFixture) -> None:
    """Each is reported once."""
    znodes = Znodes()
    writer, reader = Broker(znodes), Broker(znodes)
    for number, data in enumerate((b"no colon", b"TOPIC:../x", b"TOPIC:", b"New:x", None, b"TOPIC:\xff")):
        znodes.put(f"/kafka-acl-changes/acl_changes_{number:010}", data)
    znodes.put("/kafka-acl-changes/something_else", b"")
    literal = b'{"version":1,"resourceType":"TOPIC","name":"x","patternType":"LITERAL"}'
    half = b'{"version":1,"resourceType":"TOPIC","name":"\\ud800","patternType":"PREFIXED"}'
    for number, data in enumerate((b"{", literal, half)):
        znodes.put(f"/kafka-acl-extended-changes/acl_changes_{number:010}", data)
    znodes._sequence = 10
    writer.create(AclBinding(ORDERS, ANN))
    reader.look()
    reader.look()
    assert reader.entries() == {ANN}
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 6


def test_a_note_that_cannot_be_read_leads_to_a_look_at_all_entries() -> None:
    """Whatever it was about holds, removals included."""
    znodes = Znodes()
    writer, reader = Broker(znodes), Broker(znodes)
    writer.create(AclBinding(GROUP, ANN))
    reader.look()
    writer.delete(AclBindingFilter())
    writer.create(AclBinding(ORDERS, ANN), AclBinding(ALL_OF_O, BOB))
    for root in CHANGES.values():
        for name in znodes.children(root):
            znodes.put(f"{root}/{name}", b"?")
    reader.look()
    assert set(reader.authorizer.patterns()) == {ORDERS, ALL_OF_O}


def test_notes_are_deleted_when_their_time_has_come() -> None:
    """By the next look, or by a broker that starts."""
    znodes = Znodes()
    broker = Broker(znodes)
    broker.create(AclBinding(ORDERS, ANN), AclBinding(ALL_OF_O, BOB))
    znodes.now_ms += LIFETIME_MS
    broker.create(AclBinding(GROUP, ANN))
    broker.look()
    assert notes(znodes) == [b"TOPIC:orders", b"GROUP:orders"]
    znodes.now_ms += 1
    Broker(znodes)
    assert notes(znodes) == [b"GROUP:orders"]
    assert notes(znodes, PatternType.PREFIXED) == []


def test_a_new_session_finds_changes_whose_notes_are_gone() -> None:
    """What is gone is gone here, too."""
    znodes = Znodes()
    writer, reader = Broker(znodes), Broker(znodes)
    writer.create(AclBinding(ORDERS, ANN))
    reader.look()
    writer.delete(AclBindingFilter())
    writer.create(AclBinding(GROUP, BOB))
    for name in znodes.children("/kafka-acl-changes"):
        znodes.remove(f"/kafka-acl-changes/{name}")
    znodes.perform(reader.store.reload())
    assert list(reader.authorizer.patterns()) == [GROUP]


# Creating


def test_an_entry_that_is_there_is_created_again_without_a_trace() -> None:
    """No note, no new version."""
    znodes = Znodes()
    broker = Broker(znodes)
    for _ in range(2):
        assert codes(broker.create(AclBinding(ORDERS, ANN), AclBinding(ORDERS, ANN))) == [ErrorCode.NONE] * 2
    assert notes(znodes) == [b"TOPIC:orders"]
    assert znodes.nodes[path(ORDERS)][1] == 0


def test_an_entry_that_another_broker_has_removed_meanwhile_is_created_again() -> None:
    """What this broker knows may be old."""
    znodes = Znodes()
    writer, other = Broker(znodes), Broker(znodes)
    writer.create(AclBinding(ORDERS, ANN))
    other.look()
    other.delete(AclBindingFilter())
    assert writer.entries() == {ANN}
    writer.create(AclBinding(ORDERS, ANN))
    assert stored(znodes) == {ANN}


@pytest.mark.parametrize("is_there", [True, False])
def test_a_change_is_made_to_what_another_broker_has_written_meanwhile(is_there: bool) -> None:
    """The conditional write fails, and the znode is read again after a pause."""
    znodes = Znodes()
    writer, other = Broker(znodes), Broker(znodes)
    if is_there:
        writer.create(AclBinding(ORDERS, ANN._replace(host="h")))
        other.look()
    pauses = []

    def on_step(step: Any) -> None:
        if isinstance(step, Transact) and not pauses:
            other.create(AclBinding(ORDERS, BOB))
        if isinstance(step, Pause):
            pauses.append(step.ms)

    assert drive(znodes, writer.store.create([AclBinding(ORDERS, ANN)]), on_step) == [None]
    assert stored(znodes) == writer.entries() == {ANN, BOB} | ({ANN._replace(host="h")} if is_there else set())
    assert len(pauses) == 1
    assert 100 <= pauses[0] < 150
    other.look()
    assert other.entries() == stored(znodes)


def test_a_change_that_others_forestall_ten_times_is_given_up() -> None:
    """As in Kafka."""
    znodes = Znodes()
    broker = Broker(znodes)
    hosts = itertools.count()

    def on_step(step: Any) -> None:
        if isinstance(step, Transact):
            znodes.put(path(ORDERS), done_here(encode_acls([BOB._replace(host=str(next(hosts)))])))

    result = drive(znodes, broker.store.create([AclBinding(ORDERS, ANN), AclBinding(GROUP, ANN)]), on_step)
    assert codes(result) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert next(hosts) == 11
    assert stored(znodes, GROUP) == {ANN}


@pytest.mark.parametrize(
    ("pattern", "entry", "code"),
    [
        (ORDERS._replace(name="a/b"), ANN, ErrorCode.INVALID_REQUEST),
        (ORDERS._replace(resource_type=ResourceType.UNKNOWN), ANN, ErrorCode.INVALID_REQUEST),
        (ORDERS._replace(pattern_type=PatternType.UNKNOWN), ANN, ErrorCode.INVALID_REQUEST),
        (ORDERS, ANN._replace(operation=AclOperation.UNKNOWN), ErrorCode.INVALID_REQUEST),
        (ORDERS, ANN._replace(permission_type=AclPermissionType.UNKNOWN), ErrorCode.INVALID_REQUEST),
        (ALL_OF_O, ANN, ErrorCode.INVALID_REQUEST),
        (ORDERS._replace(name=".."), ANN, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ORDERS._replace(name="a\0b"), ANN, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ORDERS._replace(name="\U0001f600"), ANN, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ORDERS._replace(name="x"), ANN._replace(principal="ann"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ORDERS._replace(name="x"), ANN._replace(host="h" * MAX_ACLS_BYTES), ErrorCode.INVALID_REQUEST),
    ],
    ids=range(11),
)
def test_an_entry_that_cannot_be_is_refused_and_the_others_created(
    pattern: ResourcePattern, entry: AccessControlEntry, code: ErrorCode
) -> None:
    """With Apache's codes; a prefix where the brokers' protocol version is older than prefixes."""
    znodes = Znodes()
    broker = Broker(znodes, has_prefixes=False)
    before = len(znodes.nodes)
    failures = broker.create(AclBinding(GROUP, ANN), AclBinding(pattern, entry), AclBinding(ORDERS, BOB))
    assert codes(failures) == [ErrorCode.NONE, code, ErrorCode.NONE]
    assert stored(znodes) == {BOB}
    assert len(znodes.nodes) == before + 4


def test_a_wrong_principal_fails_the_other_entries_of_its_pattern() -> None:
    """As in Apache's brokers, which write all entries of a pattern together or none."""
    znodes = Znodes()
    failures = Broker(znodes).create(AclBinding(ORDERS, ANN), AclBinding(ORDERS, ANN._replace(principal="ann")))
    assert codes(failures) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert path(ORDERS) not in znodes.nodes


def test_entries_that_are_too_many_for_a_request_are_written_in_several() -> None:
    """No transaction's data are near what ends a session."""
    znodes = Znodes()
    broker = Broker(znodes)
    bindings = [AclBinding(ORDERS._replace(name=f"t{number}"), ANN._replace(host="h" * 300_000)) for number in range(7)]
    sizes = []

    def on_step(step: Any) -> None:
        if isinstance(step, Transact):
            sizes.append(sum(len(ops[0].data) for ops in step.groups))

    assert drive(znodes, broker.store.create(bindings), on_step) == [None] * 7
    assert len(sizes) == 3
    assert max(sizes) < 1 << 20


# Deleting


def test_entries_are_deleted_by_the_first_filter_that_matches() -> None:
    """The second has those that are left; a filter without a match has none."""
    znodes = Znodes()
    broker = Broker(znodes)
    broker.create(AclBinding(ORDERS, ANN), AclBinding(ORDERS, BOB), AclBinding(GROUP, ANN), AclBinding(ALL_OF_O, ANN))
    by_ann = AclBindingFilter(entry=AccessControlEntryFilter(principal="User:ann"))
    of_orders = AclBindingFilter(ResourcePatternFilter(ResourceType.TOPIC, "orders", PatternType.LITERAL))
    nothing = AclBindingFilter(ResourcePatternFilter(ResourceType.TOPIC, "x", PatternType.ANY))
    first, second, third = broker.delete(by_ann, of_orders, nothing)
    assert {deleted.binding for deleted in first} == {
        AclBinding(ORDERS, ANN),
        AclBinding(GROUP, ANN),
        AclBinding(ALL_OF_O, ANN),
    }
    assert second == [AclBindingDeleteResult(AclBinding(ORDERS, BOB), None)]
    assert third == []
    assert list(broker.authorizer.patterns()) == []
    assert [name for name in znodes.nodes if name in map(path, (ORDERS, GROUP, ALL_OF_O))] == []


def test_a_pattern_that_keeps_entries_is_rewritten() -> None:
    """Under a new version, with a note."""
    znodes = Znodes()
    broker = Broker(znodes)
    broker.create(AclBinding(ORDERS, ANN), AclBinding(ORDERS, BOB))
    broker.delete(AclBindingFilter(entry=AccessControlEntryFilter(principal="User:ann")))
    assert stored(znodes) == broker.entries() == {BOB}
    assert len(notes(znodes)) == 2


def test_a_filter_for_one_pattern_deletes_what_this_broker_does_not_know_yet() -> None:
    """What was created by another broker before."""
    znodes = Znodes()
    broker, other = Broker(znodes), Broker(znodes)
    other.create(AclBinding(ORDERS, ANN))
    (deleted,) = broker.delete(AclBindingFilter(ResourcePatternFilter(ResourceType.TOPIC, "orders", PatternType.ANY)))
    assert deleted == [AclBindingDeleteResult(AclBinding(ORDERS, ANN), None)]
    assert path(ORDERS) not in znodes.nodes
    assert broker.delete(AclBindingFilter(ResourcePatternFilter(ResourceType.TOPIC, "..", PatternType.ANY))) == [[]]


def test_a_lost_session_fails_what_is_not_done_and_keeps_what_is() -> None:
    """The answer says which entries are still there."""
    znodes = Znodes()
    broker = Broker(znodes)
    count = 300
    broker.create(*(AclBinding(ORDERS._replace(name=f"t{number}"), ANN) for number in range(count)))
    writes = itertools.count()

    def on_step(step: Any) -> KeeperError | None:
        return KeeperError(Keeper.SESSION_EXPIRED) if isinstance(step, Transact) and next(writes) else None

    (result,) = drive(znodes, broker.store.delete([AclBindingFilter()]), on_step)
    deleted = result.bindings
    done = [one.binding.pattern for one in deleted if one.failure is None]
    assert len(deleted) == count
    assert 0 < len(done) < count
    assert set(broker.authorizer.patterns()) == {one.binding.pattern for one in deleted} - set(done)
    assert all(path(pattern) not in znodes.nodes for pattern in done)


def test_a_change_of_very_many_entries_takes_turns_before_its_first_write() -> None:
    """Each pass over all of them does."""
    broker = Broker(Znodes())
    bindings = [AclBinding(ORDERS._replace(name=f"t{number}"), ANN) for number in range(5000)]

    def turns(steps: Any) -> int:
        """Before the first look at a znode, or the first write."""
        return next(number for number, step in enumerate(steps) if step is not None)

    assert turns(broker.store.create(bindings)) >= 2 * len(bindings)
    for pattern, entry in bindings:
        broker.authorizer.update(pattern, VersionedAcls(frozenset([entry]), 0))
    assert turns(broker.store.delete([AclBindingFilter()])) >= 3 * len(bindings)
