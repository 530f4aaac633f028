"""Access control lists of running brokers: who may change them, when changes hold, and when a
broker does not start."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.tasks import Runner
from barnabas.broker.authorizer import service
from barnabas.broker.authorizer.acl_store import AclStore
from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.broker.authorizer.service import AclManager
from barnabas.broker.cluster import change_notes
from barnabas.broker.cluster.service import Interpreter
from barnabas.broker.cluster.znodes import ZnodeFormatError
from barnabas.broker.server import BrokerServer
from barnabas.coordination.client import CoordinationClient, SessionEvent
from barnabas.coordination.client.operations import delete
from barnabas.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.testing import Cluster
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.kafka.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest
from support.coordination_in_process import running_server, session
from support.raw import ask
from support.waiting import eventually

SETTINGS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW = AclPermissionType.ALLOW
ANY_FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def creation(
    name: str, operation: AclOperation, kind: ResourceType = TOPIC, principal: str = "User:ann"
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


def names(at: int) -> list[str]:
    return [resource.resource_name for resource in ask(at, DescribeAclsRequest(**ANY_FILTER), 3).resources]


def test_a_change_at_one_broker_holds_at_the_other() -> None:
    """Without a request to it; and where it was made, it holds with the answer."""
    with Cluster(brokers=2, settings={**SETTINGS, "super.users": "User:ANONYMOUS"}) as cluster:
        here, there = map(port, cluster.bootstrap_servers.split(","))
        for at, other in ((here, there), (there, here)):
            created = ask(at, CreateAclsRequest(creations=[creation("t", AclOperation.READ)]), 3)
            assert [result.error_code for result in created.results] == [0]
            assert names(at) == ["t"]
            eventually(lambda other=other: names(other) == ["t"])
            ask(at, DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY_FILTER)]), 3)
            assert names(at) == []
            eventually(lambda other=other: names(other) == [])


@pytest.fixture(scope="module")
def closed() -> Iterator[int]:
    """The port of a broker whose cluster has an ACL, and none for this client."""
    settings = {**SETTINGS, "allow.everyone.if.no.acl.found": "true"}
    with Cluster(brokers=1, settings=settings) as cluster:
        at = port(cluster.bootstrap_servers)
        right = creation("kafka-cluster", AclOperation.ALL, CLUSTER)
        assert ask(at, CreateAclsRequest(creations=[right]), 3).results[0].error_code == 0
        yield at


def denied(code: int, text: str | None = None) -> bool:
    assert text is None or text == ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message
    return code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_acls_are_administered_with_rights_to_the_cluster_alone(closed: int) -> None:
    """Before anything else is said, or changed."""
    for _ in range(2):
        created = ask(closed, CreateAclsRequest(creations=[creation("a/b", AclOperation.READ)] * 2), 3).results
        assert [denied(result.error_code, result.error_message) for result in created] == [True] * 2
        deleted = ask(closed, DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY_FILTER)]), 3).filter_results
        assert [denied(result.error_code, result.error_message) for result in deleted] == [True]
        assert deleted[0].matching_acls == []
        described = ask(closed, DescribeAclsRequest(**ANY_FILTER), 3)
        assert denied(described.error_code, described.error_message)
        assert described.resources == []


def test_a_request_of_brokers_needs_their_right(closed: int) -> None:
    """One of a stranger changes nothing."""
    forged = UpdateMetadataRequest(controller_id=0, controller_epoch=(1 << 31) - 1, broker_epoch=-1)
    assert denied(ask(closed, forged, 8).error_code)


@pytest.mark.parametrize("message", [
    CreateAclsRequest(creations=[creation("t", AclOperation.READ), creation("t", AclOperation.UNKNOWN)]),
    DeleteAclsRequest(filters=[DeleteAclsFilter(**{**ANY_FILTER, "permission_type": 0})]),
    DescribeAclsRequest(**{**ANY_FILTER, "pattern_type_filter": 0}),
], ids=["create", "delete", "describe"])  # fmt: skip
def test_a_request_with_the_code_of_unknown_closes_the_connection(closed: int, message: Any) -> None:
    """As at Apache's brokers, before rights are asked for."""
    with pytest.raises(ConnectionError):
        ask(closed, message, 3)


def test_a_broker_does_not_open_before_its_acls_are_known(tmp_path: Path) -> None:
    """One that cannot read them ends its start: nobody was let in meanwhile."""

    async def run() -> None:
        async with running_server(tmp_path / "zookeeper") as zookeeper:
            async with session(f"127.0.0.1:{zookeeper.port}") as client:
                await client.ensure_path("/kafka-acl/Topic/t")
                await client.set_data("/kafka-acl/Topic/t", b'{"version":1,"acls":[{}]}')
            server = BrokerServer(
                {
                    "broker.id": "0",
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    "log.dirs": str(tmp_path / "logs"),
                    "zookeeper.connect": f"127.0.0.1:{zookeeper.port}",
                    **SETTINGS,
                }
            )
            with pytest.raises(ZnodeFormatError, match="/kafka-acl/Topic/t"):
                await server.start()
            assert list(server.listeners) == []
            await server.abandon()

    asyncio.run(run())


async def holds(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # entries have no event
            await asyncio.sleep(0.01)


class _Keeping:
    """One broker's entries, on a session of its own."""

    def __init__(self, client: CoordinationClient) -> None:
        loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

        def call_later(delay_ms: float, callback: Any) -> Any:
            return loop.call_later(delay_ms / 1000, callback)

        clock = SystemClock()
        runner = Runner(clock, call_later, lambda *_: None)
        interpreter = Interpreter(client, None, self._spawn, runner)
        self.authorizer = Authorizer()
        store = AclStore(self.authorizer, clock.wall_ms, Random(1))
        self.manager = AclManager(self.authorizer, store, interpreter, self._spawn, call_later)
        self._interpreter = interpreter

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def perform(self, steps: Any) -> Any:
        return await self._interpreter.perform(steps)

    async def await_patterns(self, *patterns: ResourcePattern) -> None:
        await holds(lambda: set(self.authorizer.patterns()) == set(patterns))


def binding(name: str, pattern_type: PatternType = LITERAL) -> AclBinding:
    entry = AccessControlEntry("User:ann", "*", AclOperation.READ, ALLOW)
    return AclBinding(ResourcePattern(TOPIC, name, pattern_type), entry)


def test_a_broker_follows_the_others_and_finds_in_a_new_session_what_it_has_missed(tmp_path: Path) -> None:
    """Notes are watched again and again; changes whose notes are gone are found when a session
    begins."""

    async def run() -> None:
        async with (
            running_server(tmp_path / "zookeeper") as zookeeper,
            session(f"127.0.0.1:{zookeeper.port}") as first,
            session(f"127.0.0.1:{zookeeper.port}") as second,
        ):
            writer, reader = _Keeping(first), _Keeping(second)
            await writer.manager.load()
            await reader.manager.load()
            bindings = [binding(f"t{number}", (LITERAL, PREFIXED)[number % 2]) for number in range(6)]
            for number, one in enumerate(bindings):
                assert await writer.perform(writer.manager.create([one])) == [None]
                await reader.await_patterns(*(pattern for pattern, _ in bindings[: number + 1]))
            await writer.perform(writer.manager.delete([AclBindingFilter()]))
            await reader.await_patterns()
            await first.ensure_path("/kafka-acl/Topic/unseen")
            await first.set_data("/kafka-acl/Topic/unseen", b'{"version":1,"acls":[{"principal":"User:a","host":"*",'
                                 b'"operation":"Read","permissionType":"Allow"}]}')  # fmt: skip
            for root in ("/kafka-acl-changes", "/kafka-acl-extended-changes"):
                for name in (await first.get_children(root))[0]:
                    await first.run(delete(f"{root}/{name}", -1))
            reader.manager.session_changed(SessionEvent.CREATED)
            await reader.await_patterns(binding("unseen").pattern)
            await writer.perform(writer.manager.create([binding("later")]))
            await reader.await_patterns(binding("unseen").pattern, binding("later").pattern)

    asyncio.run(run())


def test_a_znode_that_was_repaired_holds_without_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be read is read again and again: who repairs it leaves no note."""
    monkeypatch.setattr(service, "UNREADABLE_RETRY_MS", 20)

    async def run() -> None:
        async with (
            running_server(tmp_path / "zookeeper") as zookeeper,
            session(f"127.0.0.1:{zookeeper.port}") as client,
        ):
            broker = _Keeping(client)
            await broker.manager.load()
            (pattern, entry), root = binding("t"), "/kafka-acl/Topic/t"
            assert await broker.perform(broker.manager.create([binding("t")])) == [None]
            data, _ = await client.get(root)
            await client.set_data(root, b"{")
            assert await broker.perform(broker.manager.create([binding("other")])) == [None]
            broker.manager.session_changed(SessionEvent.CREATED)
            await holds(lambda: broker.authorizer.unreadable == {pattern})
            await client.set_data(root, data)
            await holds(lambda: not broker.authorizer.unreadable)
            assert broker.authorizer.acls_of(pattern).entries == {entry}

    asyncio.run(run())


def test_changes_at_the_same_time_all_hold(tmp_path: Path) -> None:
    """Of two brokers, to one pattern: none overwrites another."""

    async def run() -> None:
        async with (
            running_server(tmp_path / "zookeeper") as zookeeper,
            session(f"127.0.0.1:{zookeeper.port}") as first,
            session(f"127.0.0.1:{zookeeper.port}") as second,
        ):
            brokers = [_Keeping(first), _Keeping(second)]
            for broker in brokers:
                await broker.manager.load()
            pattern = binding("t").pattern
            entries = [binding("t").entry._replace(principal=f"User:{number}") for number in range(20)]
            results = await asyncio.gather(
                *(
                    brokers[number % 2].perform(brokers[number % 2].manager.create([AclBinding(pattern, entry)]))
                    for number, entry in enumerate(entries)
                )
            )
            assert results == [[None]] * len(entries)
            for broker in brokers:
                await holds(lambda broker=broker: broker.authorizer.acls_of(pattern).entries == set(entries))

    asyncio.run(run())


def test_what_clients_change_does_not_wait_between_looks_at_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of notes the broker looks at them less often, and no client notices."""
    monkeypatch.setattr(change_notes, "ITEMS_A_TURN", 1)
    monkeypatch.setattr(change_notes, "_NOTES_A_PAUSED_MS", 1e-6)  # for ever

    async def run() -> None:
        async with (
            running_server(tmp_path / "zookeeper") as zookeeper,
            session(f"127.0.0.1:{zookeeper.port}") as client,
            asyncio.timeout(60),
        ):
            broker = _Keeping(client)
            await broker.manager.load()
            for number in range(20):
                assert await broker.perform(broker.manager.create([binding(f"t{number}")])) == [None]

    asyncio.run(run())
