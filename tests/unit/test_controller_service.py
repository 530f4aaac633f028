"""Controllers on our coordination server: election, hand-over, fencing, requests to brokers."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import random_uuid
from barnabas.base.task_futures import runner_here
from barnabas.broker.cluster.service import Interpreter, ensure_cluster_id, ensure_top_level_paths
from barnabas.broker.cluster.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    REASSIGN_PARTITIONS,
    BrokerInfo,
    Endpoint,
    ReplicaAssignment,
    TopicAssignment,
    broker_path,
    delete_topic_path,
    encode_broker,
    encode_reassignments,
    encode_topic,
    topic_path,
)
from barnabas.broker.configuration import definitions
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.controller.isr_change import IsrChange
from barnabas.broker.controller.service import Controller, ControllerSettings
from barnabas.broker.membership.registration import BrokerIdTakenError
from barnabas.broker.membership.service import BrokerLifecycle, LifecycleDependencies
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.features import FeatureCache
from barnabas.broker.transactions.producer_id_blocks import allocate_block
from barnabas.coordination.client import CoordinationClient
from barnabas.coordination.client.operations import delete, multi, multi_create, set_acl
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.jute.errors import ErrorCode as KeeperCode
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import CreateMode, Perms
from barnabas.wire.jute.records import ACL, Id, Stat
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.wire.kafka.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from support.coordination_in_process import running_server
from support.performing import NoBrokers, interpreter

RNG = random.Random(1)


class Brokers:
    """The far side of all channels: brokers that do as they are asked and remember it."""

    def __init__(self) -> None:
        self.caches: dict[int, MetadataCache] = {}
        self.received: list[tuple[int, Any]] = []
        self.refuse: set[int] = set()

    def set_brokers(self, endpoints: Mapping[int, tuple[str, int]]) -> None:
        self.endpoints = dict(endpoints)

    async def send(self, broker_id: int, message: Any, *, timeout_ms: int | None = None) -> Any:
        await asyncio.sleep(0)
        if broker_id in self.refuse:
            raise OSError("no connection")
        self.received.append((broker_id, message))
        if isinstance(message, UpdateMetadataRequest):
            self.caches.setdefault(broker_id, MetadataCache()).update(message)
            return UpdateMetadataResponse()
        if isinstance(message, LeaderAndIsrRequest):
            topics = [
                LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        LeaderAndIsrPartitionError(partition_index=state.partition_index)
                        for state in topic.partition_states
                    ],
                )
                for topic in message.topic_states
            ]
            return LeaderAndIsrResponse(topics=topics)
        assert isinstance(message, StopReplicaRequest)
        errors = [
            StopReplicaPartitionError(topic_name=topic.topic_name, partition_index=state.partition_index)
            for topic in message.topic_states
            for state in topic.partition_states
        ]
        return StopReplicaResponse(partition_errors=errors)

    def leader(self, broker: int, topic: str, partition: int = 0) -> int | None:
        cache = self.caches.get(broker)
        state = cache.partition(TopicPartition(topic, partition)) if cache else None
        return state.leader if state else None


class Member:
    """One broker's client, lifecycle and controller."""

    def __init__(self, address: str, broker: int, brokers: Brokers, port: int | None = None) -> None:
        self.client = CoordinationClient(SocketNetwork(), address, rng=RNG, session_timeout_ms=4000)
        info = BrokerInfo(broker, (Endpoint("h", port or 9000 + broker, "PLAINTEXT", "PLAINTEXT"),))
        self.lifecycle = BrokerLifecycle(
            LifecycleDependencies(
                broker_id=broker,
                info=lambda: info,
                client=self.client,
                interpreter=interpreter(self.client),
                channels=brokers,
                metadata=MetadataCache(),
                config=BrokerConfig(definitions.DEFINITIONS.parse({"zookeeper.connect": address})),
                files=OsFiles(),
                clock=SystemClock(),
                log_dirs=list,
                lost_data=dict,
                has_new_dir=lambda: False,
                note_gone=lambda _: {},
                note_dirs_checked=lambda: None,
                controller=lambda: self.controller,
                is_closing=lambda: False,
                spawn=lambda work: work.close(),
            )
        )
        self.broker_id = broker
        self.brokers = brokers
        self.settings = ControllerSettings(auto_leader_rebalance=False)
        self.make_interpreter: Callable[[CoordinationClient], Interpreter] = interpreter

    async def start(self) -> "Member":
        await self.client.start(5000)
        await ensure_top_level_paths(self.client)
        performing = self.make_interpreter(self.client)
        self.perform = performing.perform
        self.controller = Controller(
            self.broker_id,
            performing,
            self.brokers,
            self.lifecycle.register,
            wall_ms=SystemClock().wall_ms,
            new_topic_id=lambda: random_uuid(RNG),
            settings=lambda: self.settings,
            features=FeatureCache(),
        )
        self.client.on_session(self.controller.session_changed)
        await self.controller.start()
        return self

    async def close(self) -> None:
        if hasattr(self, "controller"):
            await self.controller.close()
        await self.client.close()


@contextlib.asynccontextmanager
async def members(
    tmp_path: Path, count: int, *, tick_ms: int = 2000
) -> AsyncIterator[tuple[Brokers, list[Member], str]]:
    """Brokers 0 to count - 1, started in order."""
    brokers = Brokers()
    async with running_server(tmp_path, tick_ms=tick_ms) as server:
        address = f"127.0.0.1:{server.port}"
        started: list[Member] = []
        try:
            for broker in range(count):
                member = Member(address, broker, brokers)
                started.append(member)
                await member.start()
            yield brokers, started, address
        finally:
            for member in started:
                await member.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # any condition, also of code that sets no event
            await asyncio.sleep(0.005)


def assigned(*replicas: tuple[int, ...]) -> TopicAssignment:
    return TopicAssignment(random_uuid(RNG), {index: ReplicaAssignment(each) for index, each in enumerate(replicas)})


def test_the_first_broker_is_controller_and_the_others_know_it(tmp_path: Path) -> None:
    """The epoch is one more than the znode said."""

    async def run() -> None:
        async with members(tmp_path, 3) as (brokers, started, _):
            assert [member.controller.controller_id for member in started] == [0, 0, 0]
            assert [member.controller.is_active for member in started] == [True, False, False]
            assert (await started[0].client.get(CONTROLLER_EPOCH))[0] == b"1"
            await until(lambda: len(tuple(brokers.caches.get(2, MetadataCache()).alive_brokers())) == 3)
            assert set(brokers.endpoints) == {0, 1, 2}

    asyncio.run(run())


def test_when_the_controller_goes_another_takes_over_and_elects_leaders(tmp_path: Path) -> None:
    """From the znodes alone, under the next epoch."""

    async def run() -> None:
        async with members(tmp_path, 3) as (brokers, started, _):
            await started[1].client.create(topic_path("t"), encode_topic(*assigned((0, 1, 2), (1, 2, 0))))
            await until(lambda: brokers.leader(2, "t") == 0)
            await started[0].close()
            await until(lambda: brokers.leader(2, "t") in (1, 2))
            active = [member for member in started[1:] if member.controller.is_active]
            assert [member.controller.epoch for member in active] == [2]
            state = brokers.caches[2].partition(TopicPartition("t", 1))
            assert state is not None
            assert (state.leader, sorted(state.isr)) == (1, [1, 2])
            await until(lambda: started[1].controller.controller_id == started[2].controller.controller_id)

    asyncio.run(run())


def test_topics_that_the_controllers_broker_wrote_need_no_watch(tmp_path: Path) -> None:
    """The command returns when they have leaders; many commands at once are one step."""

    async def run() -> None:
        async with members(tmp_path, 1) as (brokers, (member,), _):
            topics = {f"t{n}": assigned((0,), (0,)) for n in range(30)}
            for name, topic in topics.items():
                await member.client.create(topic_path(name), encode_topic(*topic))
            await asyncio.gather(
                *(member.perform(member.controller.commands.create_topics({n: t})) for n, t in topics.items())
            )
            assert len(member.controller.context.leadership) == 60
            await until(lambda: brokers.leader(0, "t29", 1) == 0)
            await member.client.set_data(topic_path("t0"), encode_topic(*assigned((0,), (0,), (0,))))
            await until(lambda: brokers.leader(0, "t0", 2) == 0)

    asyncio.run(run())


def test_a_deletion_runs_to_its_end(tmp_path: Path) -> None:
    """Requested by a znode, as tools and other brokers do it."""

    async def run() -> None:
        async with members(tmp_path, 2) as (brokers, started, _):
            client = started[1].client
            await client.create(topic_path("t"), encode_topic(*assigned((0, 1))))
            await until(lambda: brokers.leader(1, "t") == 0)
            await client.create(delete_topic_path("t"))
            await until(lambda: not started[0].controller.context.topics)
            assert await client.exists(topic_path("t")) is None
            assert await client.exists(delete_topic_path("t")) is None
            assert brokers.leader(1, "t") is None

    asyncio.run(run())


def test_a_controller_that_was_deposed_writes_nothing_more(tmp_path: Path) -> None:
    """Its epoch's znode has another version: the write is refused, and it resigns."""

    async def run() -> None:
        async with members(tmp_path, 1) as (_, (member,), _):
            await member.client.set_data(CONTROLLER_EPOCH, b"7")
            topic = assigned((0,))
            await member.client.create(topic_path("t"), encode_topic(*topic))
            with pytest.raises(KafkaError) as refused:
                await member.perform(member.controller.commands.create_topics({"t": topic}))
            assert refused.value.code is ErrorCode.NOT_CONTROLLER
            # The znode is its own all the same, so it becomes controller again, above
            # the epoch that was written.
            await until(lambda: member.controller.is_active)
            assert member.controller.epoch == 8
            await until(lambda: "t" in member.controller.context.topics)

    asyncio.run(run())


def test_a_controller_that_is_deposed_while_it_takes_over_resigns(tmp_path: Path) -> None:
    """It stands again; it does not go on from a context that was read half."""

    async def run() -> None:
        async with running_server(tmp_path) as server:
            member = Member(f"127.0.0.1:{server.port}", 0, Brokers())
            member.make_interpreter = _Deposing
            try:
                await member.start()
                await until(lambda: member.controller.is_active and member.controller.epoch == 8)
                await member.client.create(topic_path("t"), encode_topic(*assigned((0,))))
                await until(lambda: member.brokers.leader(0, "t") == 0)
            finally:
                await member.close()

    asyncio.run(run())


class _Deposing(Interpreter):
    """Raises the controller epoch, as another controller would, before the first step of a term."""

    def __init__(self, client: CoordinationClient) -> None:
        super().__init__(client, NoBrokers(), asyncio.ensure_future, runner_here(SystemClock()))
        self._raising: CoordinationClient | None = client

    async def perform(self, steps: Any, *, term: Any = None, **options: Any) -> Any:
        if term is not None and self._raising is not None:
            raising, self._raising = self._raising, None
            await raising.set_data(CONTROLLER_EPOCH, b"7")
        return await super().perform(steps, term=term, **options)


def test_a_command_can_wait_until_a_new_controller_has_read_the_znodes(tmp_path: Path) -> None:
    """Before that, what the controller does not know may exist all the same."""

    async def run() -> None:
        async with running_server(tmp_path) as server:
            member = Member(f"127.0.0.1:{server.port}", 0, Brokers())
            member.make_interpreter = _Reading
            starting = asyncio.ensure_future(member.start())
            try:
                await until(lambda: hasattr(member, "controller") and member.controller.is_active)
                await member.client.create(topic_path("t"), encode_topic(*assigned((0,))))
                controller = member.controller
                assert not controller.context.has_read_znodes
                waiting = asyncio.ensure_future(member.perform(controller.commands.await_failover()))
                await asyncio.sleep(0)
                assert (waiting.done(), list(controller.context.topics)) == (False, [])
                _Reading.may_begin.set()
                await waiting
                assert (controller.context.has_read_znodes, list(controller.context.topics)) == (True, ["t"])
                await member.perform(controller.commands.await_failover())
            finally:
                _Reading.may_begin.set()
                await starting
                await member.close()

    _Reading.may_begin = asyncio.Event()
    asyncio.run(run())


class _Reading(Interpreter):
    """Begins the first steps of a term when it may."""

    may_begin: asyncio.Event

    def __init__(self, client: CoordinationClient) -> None:
        super().__init__(client, NoBrokers(), asyncio.ensure_future, runner_here(SystemClock()))

    async def perform(self, steps: Any, *, term: Any = None, **options: Any) -> Any:
        if term is not None:
            await self.may_begin.wait()
        return await super().perform(steps, term=term, **options)


def test_commands_elsewhere_are_refused(tmp_path: Path) -> None:
    """Clients look for the controller then."""

    async def run() -> None:
        async with members(tmp_path, 2) as (_, started, _):
            for command in (
                started[1].controller.commands.delete_topics(),
                started[1].controller.commands.shut_down_broker(1, 0),
                started[1].controller.commands.create_topics({"t": assigned((0,))}),
            ):
                with pytest.raises(KafkaError) as refused:
                    await started[1].perform(command)
                assert refused.value.code is ErrorCode.NOT_CONTROLLER

    asyncio.run(run())


def test_requests_wait_for_a_broker_that_cannot_be_reached(tmp_path: Path) -> None:
    """In their order, as long as it is registered."""

    async def run() -> None:
        async with members(tmp_path, 2) as (brokers, started, _):
            brokers.refuse.add(1)
            await started[0].client.create(topic_path("t"), encode_topic(*assigned((1, 0))))
            await until(lambda: brokers.leader(0, "t") == 1)
            brokers.received.clear()
            brokers.refuse.clear()
            await until(lambda: brokers.leader(1, "t") == 1)
            kinds = [type(message) for broker, message in brokers.received if broker == 1]
            assert kinds.index(LeaderAndIsrRequest) < len(kinds) - 1

    asyncio.run(run())


def test_after_an_expired_session_the_broker_is_registered_and_elected_again(tmp_path: Path) -> None:
    """Under a new broker epoch and the next controller epoch."""

    async def run() -> None:
        async with members(tmp_path, 1, tick_ms=20) as (_, (member,), _):
            epoch = member.lifecycle.broker_epoch
            # A server rejects this password as that of an expired session.
            member.client._session.password = b"x" * 16
            assert member.client._driver.link is not None
            member.client._driver.link.lose()
            await until(lambda: member.controller.epoch == 2 and member.controller.is_active)
            assert member.lifecycle.broker_epoch > epoch

    asyncio.run(run())


def test_a_broker_replaces_what_its_dead_predecessor_left(tmp_path: Path) -> None:
    """Same id, same endpoints: the registration and /controller of the dead session
    are replaced at once."""

    async def run() -> None:
        async with members(tmp_path, 1) as (brokers, (dead,), address):
            await dead.controller.close()  # the session and its znodes stay, as after kill -9
            reborn = await Member(address, 0, brokers).start()
            assert reborn.controller.is_active
            assert reborn.controller.epoch == 2
            stat = await reborn.client.exists(CONTROLLER)
            assert stat is not None
            assert stat.ephemeral_owner == reborn.client.session_id
            await reborn.close()

    asyncio.run(run())


def test_another_brokers_id_is_not_taken(tmp_path: Path) -> None:
    """Same id, other endpoints: the error says what to do."""

    async def run() -> None:
        async with members(tmp_path, 1) as (brokers, _, address):
            second = Member(address, 0, brokers, port=7777)
            with pytest.raises(BrokerIdTakenError, match=r"PLAINTEXT://h:9000.*broker\.id"):
                await second.start()
            await second.close()

    asyncio.run(run())


def test_a_broker_whose_id_was_taken_does_not_stand_for_controller_until_it_is_registered_again(tmp_path: Path) -> None:
    """Its registration was removed, and another broker has registered under the id:
    it gives the office up."""

    async def run() -> None:
        async with members(tmp_path, 2) as (_, (first, second), _):
            assert first.controller.is_active
            other = BrokerInfo(0, (Endpoint("elsewhere", 1, "PLAINTEXT", "PLAINTEXT"),))
            path = broker_path(0)
            await second.client.batch(
                [multi([delete(path, -1), multi_create(path, encode_broker(other, 0), CreateMode.EPHEMERAL)])]
            )
            await until(lambda: second.controller.is_active)
            await until(lambda: first.controller.controller_id == 1)
            await second.client.delete(CONTROLLER)
            await until(lambda: second.controller.epoch == 3)
            assert (first.controller.is_active, first.controller.epoch) == (False, 0)
            await second.client.delete(path)
            await until(lambda: "h" in [end.host for end in second.controller.context.brokers.get(0, other).endpoints])
            await second.controller.close()
            await second.client.delete(CONTROLLER)
            await until(lambda: first.controller.is_active)

    asyncio.run(run())


def test_a_session_that_expires_before_the_first_registration_is_no_end_of_the_start(tmp_path: Path) -> None:
    """The registration begins again in the next session."""

    async def run() -> None:
        async with members(tmp_path, 1) as (brokers, _, address):
            member = Member(address, 1, brokers)
            create_own, expired = member.client.create_own_ephemeral, []

            async def expire_once(path: str, data: bytes) -> Stat:
                if not expired:
                    expired.append(path)
                    raise KeeperError(KeeperCode.SESSION_EXPIRED)
                return await create_own(path, data)

            member.client.create_own_ephemeral = expire_once
            await member.start()
            assert member.lifecycle.broker_epoch > 0
            await member.close()

    asyncio.run(run())


def test_a_broker_that_may_not_register_ends_its_start_and_names_the_znodes(tmp_path: Path) -> None:
    """An ACL forbids it, and waiting would not help."""

    async def run() -> None:
        async with members(tmp_path, 1) as (brokers, (first,), address):
            read_only = ACL(Perms.READ, Id("world", "anyone"))
            await first.client.batch([set_acl("/brokers/ids", [read_only])])
            member = Member(address, 1, brokers)
            with pytest.raises(BarnabasError, match="no permission to register: check the ACLs of /brokers/ids"):
                await member.start()
            await member.close()

    asyncio.run(run())


def test_brokers_agree_on_the_clusters_id(tmp_path: Path) -> None:
    """The first one draws it."""

    async def run() -> None:
        async with members(tmp_path, 2) as (_, started, _):
            ids = await asyncio.gather(*(ensure_cluster_id(member.client, RNG) for member in started))
            assert len(set(ids)) == 1
            assert len(ids[0]) == 22

    asyncio.run(run())


def test_producer_ids_are_given_out_once(tmp_path: Path) -> None:
    """In blocks of a thousand, also to several at once."""

    async def run() -> None:
        async with members(tmp_path, 1) as (_, (member,), _):
            blocks = await asyncio.gather(*(member.perform(allocate_block(n)) for n in range(5)))
            assert sorted(block.first for block in blocks) == [0, 1000, 2000, 3000, 4000]

    asyncio.run(run())


def test_unclean_elections_follow_the_setting_while_it_changes(tmp_path: Path) -> None:
    """Allowed, the partition without a leader gets one at once; forbidden again, the
    next one stays without."""

    async def run() -> None:
        async with members(tmp_path, 3) as (_, (member, *others), _):
            controller, client = member.controller, member.client
            topics = {"t": assigned((1, 0)), "u": assigned((2, 0))}
            for name, topic in topics.items():
                await client.create(topic_path(name), encode_topic(*topic))
            await member.perform(controller.commands.create_topics(topics))
            for name, broker in (("t", 1), ("u", 2)):
                partition = TopicPartition(name, 0)
                known = controller.context.leadership[partition].leader_and_isr
                change = IsrChange(partition, known.leader_epoch, (broker,), 0, known.version)
                await member.perform(
                    controller.commands.alter_partitions(broker, controller.context.brokers[broker].epoch, [change])
                )
            await others[0].close()
            await until(lambda: controller.context.leadership[TopicPartition("t", 0)].leader_and_isr.leader == -1)
            member.settings = replace(member.settings, unclean_leader_election=True)
            controller.retry_leaders()
            await until(lambda: controller.context.leadership[TopicPartition("t", 0)].leader_and_isr.leader == 0)
            member.settings = replace(member.settings, unclean_leader_election=False)
            await others[1].close()
            await until(lambda: controller.context.leadership[TopicPartition("u", 0)].leader_and_isr.leader == -1)

    asyncio.run(run())


def test_a_move_is_ended_by_the_next_controller_and_orders_in_znodes_are_seen_again_and_again(tmp_path: Path) -> None:
    """The reassignment is in the topic's znode; those of older tools are watched for though
    their znode is not there."""

    async def run() -> None:
        async with members(tmp_path, 3) as (_, started, _):
            first = started[0].controller
            topic, partition = assigned((1,)), TopicPartition("t", 0)
            await started[0].client.create(topic_path("t"), encode_topic(*topic))
            commands, perform = first.commands, started[0].perform
            await perform(commands.create_topics({"t": topic}))
            assert await perform(commands.alter_reassignments({partition: [2]})) == {partition: None}
            assert (await perform(commands.list_reassignments())).keys() == {partition}
            await started[0].close()
            await until(lambda: any(member.controller.is_active for member in started[1:]))
            member = next(member for member in started[1:] if member.controller.is_active)
            second, client = member.controller, member.client
            assert (await member.perform(second.commands.list_reassignments([partition])))[partition].adding == (2,)

            async def join_isr_until_moved(target: tuple[int, ...]) -> None:
                """As leaders do: what crosses a change of the controller's is
                refused, and asked for again."""
                while second.context.assignment(partition) != ReplicaAssignment(target):
                    known = second.context.leadership[partition].leader_and_isr
                    change = IsrChange(partition, known.leader_epoch, (1, 2), 0, known.version)
                    await member.perform(
                        second.commands.alter_partitions(
                            known.leader, second.context.brokers[known.leader].epoch, [change]
                        )
                    )
                    await asyncio.sleep(0.01)

            await join_isr_until_moved((2,))
            for target in ((1,), (2,)):
                await client.create(REASSIGN_PARTITIONS, encode_reassignments({partition: target}))
                await until(lambda target=target: second.context.assignment(partition).adding == target)
                await join_isr_until_moved(target)
                while await client.exists(REASSIGN_PARTITIONS) is not None:  # noqa: ASYNC110  # another task writes it
                    await asyncio.sleep(0.01)

    asyncio.run(run())
