"""Transactions of the clients in virtual time: what is seen, what is fenced, and exactly once
through kills."""

import asyncio
from collections.abc import Callable

import pytest

from barnabas.client import (
    ClientError,
    ConfigurationError,
    FencedError,
    TopicPartition,
    TransactionError,
)
from barnabas.testing import VirtualCluster, VirtualProducer, simulate
from barnabas.testing.simulation.feature_updates import feature_update

SENDING = {"transactional.id": "till", "transaction.timeout.ms": "5000", "delivery.timeout.ms": "4000"}
READING = {"auto.offset.reset": "earliest"}
UNCOMMITTED = {**READING, "isolation.level": "read_uncommitted"}
GROUP = {**READING, "group.id": "kitchen", "session.timeout.ms": "6000", "enable.auto.commit": "false"}
ABORTS_OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


async def _till(cluster: VirtualCluster, **others: str) -> VirtualProducer[str, str]:
    producer: VirtualProducer[str, str] = cluster.producer({**SENDING, **others})
    await producer.init_transactions()
    return producer


async def _values(cluster: VirtualCluster, properties: dict[str, str], topic: str = "orders") -> list[str | None]:
    async with cluster.consumer(properties) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for record in await consumer.consume(100, 2.0)]


def test_a_committed_transaction_is_read_and_an_aborted_one_is_not():
    """At read_uncommitted both are."""

    async def scenario(cluster: VirtualCluster) -> tuple[list[str | None], list[str | None]]:
        await cluster.create_topic("orders")
        producer = await _till(cluster)
        async with producer.transaction():
            await producer.submit("orders", "tea")
        await producer.begin_transaction()
        await producer.send("orders", "coffee")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("orders", "cake")
        return await _values(cluster, READING), await _values(cluster, UNCOMMITTED)

    assert simulate(scenario, brokers=3).value == (["tea", "cake"], ["tea", "coffee", "cake"])


def test_an_open_transaction_holds_readers_back_until_its_end():
    """The end of the partition is the last stable offset at read_committed."""

    async def scenario(cluster: VirtualCluster) -> list[object]:
        await cluster.create_topic("orders")
        producer = await _till(cluster)
        async with cluster.consumer(READING) as consumer, cluster.consumer(UNCOMMITTED) as other:
            await producer.begin_transaction()
            await producer.send("orders", "tea")
            seen = [await consumer.watermarks("orders", 0), await other.watermarks("orders", 0)]
            seen.append(await _values(cluster, READING))
            await producer.commit_transaction()
            return [*seen, await _values(cluster, READING)]

    assert simulate(scenario, brokers=3).value == [(0, 0), (0, 1), [], ["tea"]]


def test_a_block_that_raises_aborts_its_transaction():
    """The error is the block's own, and the producer goes on."""

    async def scenario(cluster: VirtualCluster) -> list[str | None]:
        await cluster.create_topic("orders")
        producer = await _till(cluster)

        async def fail() -> None:
            async with producer.transaction():
                await producer.send("orders", "tea")
                raise RuntimeError("out of tea")

        with pytest.raises(RuntimeError, match="out of tea"):
            await fail()
        async with producer.transaction():
            await producer.send("orders", "coffee")
        return await _values(cluster, READING)

    assert simulate(scenario, brokers=3).value == ["coffee"]


def test_a_newer_producer_of_the_same_id_fences_the_older_one():
    """What the older one left open is aborted; its next call is fatal."""

    async def scenario(cluster: VirtualCluster) -> tuple[list[str | None], bool]:
        await cluster.create_topic("orders")
        old = await _till(cluster)
        await old.begin_transaction()
        await old.send("orders", "tea")
        new = await _till(cluster)
        with pytest.raises(FencedError) as found:
            await old.commit_transaction()
        async with new.transaction():
            await new.send("orders", "coffee")
        return await _values(cluster, READING), found.value.fatal

    assert simulate(scenario, brokers=3).value == (["coffee"], True)


def test_a_transaction_that_takes_too_long_is_aborted():
    """Its producer learns it at the commit, and readers go on before."""

    async def scenario(cluster: VirtualCluster) -> list[str | None]:
        await cluster.create_topic("orders")
        producer = await _till(cluster)
        await producer.begin_transaction()
        await producer.send("orders", "tea")
        await asyncio.sleep(8)
        async with cluster.producer() as other:
            await other.send("orders", "coffee")
        seen = await _values(cluster, READING)
        with pytest.raises(ClientError):
            await producer.commit_transaction()
        return seen

    assert simulate(scenario, brokers=3, settings=ABORTS_OFTEN).value == ["coffee"]


def test_offsets_of_a_transaction_are_committed_with_it():
    """An aborted one leaves the group where it was."""

    async def scenario(cluster: VirtualCluster) -> list[int | None]:
        await cluster.create_topic("orders")
        place = TopicPartition("orders", 0)
        producer = await _till(cluster)
        found: list[int | None] = []
        async with cluster.consumer(GROUP) as consumer:
            consumer.assign([place])
            group = await consumer.group_metadata()
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({place: 7}, group)
            await producer.abort_transaction()
            found.append((await consumer.committed([place]))[place])
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({place: 9}, group)
            await producer.commit_transaction()
            found.append((await consumer.committed([place]))[place])
        return found

    assert simulate(scenario, brokers=3).value == [None, 9]


def test_offsets_of_a_member_that_was_replaced_are_refused():
    """The generation fences it (KIP-447); the transaction is to be aborted, and another one
    begun."""

    async def scenario(cluster: VirtualCluster) -> int | None:
        await cluster.create_topic("orders", partitions=1)
        place = TopicPartition("orders", 0)
        producer = await _till(cluster)
        async with cluster.consumer(GROUP) as consumer:
            consumer.subscribe(["orders"])
            await consumer.poll(3.0)
            group = await consumer.group_metadata()
            assert group.generation_id > 0
            await producer.begin_transaction()
            with pytest.raises(TransactionError):
                await producer.send_offsets_to_transaction({place: 7}, group._replace(generation_id=77))
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({place: 8}, group)
            await producer.commit_transaction()
            return (await consumer.committed([place]))[place]

    assert simulate(scenario, brokers=3).value == 8


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_is_exactly_once_while_brokers_are_killed_in_the_middle_of_commits(seed: int):
    """Consume, transform, produce and commit in transactions: nothing is missing, nothing twice,
    order kept."""

    async def copy(cluster: VirtualCluster) -> None:
        producer: VirtualProducer[str, str] = cluster.producer({"transactional.id": "copier"})
        await producer.init_transactions()
        async with cluster.consumer(GROUP) as consumer:
            consumer.subscribe(["orders"])
            copied = 0
            while copied < 60:
                records = await consumer.consume(5, 1.0)
                if not records:
                    continue
                async with producer.transaction():
                    for record in records:
                        await producer.submit("copies", f"copy of {record.value}")
                    ends = {TopicPartition("orders", 0): records[-1].offset + 1}
                    await producer.send_offsets_to_transaction(ends, await consumer.group_metadata())
                copied += len(records)

    async def scenario(cluster: VirtualCluster) -> list[str | None]:
        await cluster.create_topic("orders")
        await cluster.create_topic("copies", config={"min.insync.replicas": "2"})
        async with cluster.producer({"enable.idempotence": "true"}) as producer:
            await producer.send_many("orders", [f"order {n}" for n in range(60)])
        program = cluster.start("copier", copy, cluster)
        for broker_id in (0, 1, 2):
            await asyncio.sleep(1 + cluster.rng.random())
            cluster.kill(broker_id)
            await asyncio.sleep(8)
            await cluster.start_broker(broker_id)
        await program.wait()
        return await _values(cluster, READING, "copies")

    settings = {"transaction.state.log.num.partitions": "2"}
    assert simulate(scenario, seed=seed, brokers=3, settings=settings).value == [
        f"copy of order {n}" for n in range(60)
    ]


def test_a_marker_that_waits_for_replicas_holds_no_order_of_the_controller_back():
    """The coordinator is the controller, a follower of the marked partition stands still, and the
    marked broker becomes leader of new topics meanwhile."""

    new_topics = {"cakes", "pies"}

    async def scenario(cluster: VirtualCluster) -> float:
        await _till(cluster)
        controller = cluster.controller
        ids = [f"till {n}" for n in range(9)]
        mine = next(each for each in ids if cluster.transaction_coordinator(each) == controller)
        producer = await _till(cluster, **{"transactional.id": mine, "transaction.timeout.ms": "60000"})
        topic = await _topic_led_by(cluster, "orders", lambda leader: leader != controller)
        leader = cluster.leader(topic)
        await producer.begin_transaction()
        await producer.send(topic, "tea")
        (follower,) = {0, 1, 2} - {controller, leader}
        cluster.pause(follower)
        await producer.commit_transaction()
        start_s = asyncio.get_running_loop().time()
        replicas = cluster._view.broker(leader).server.components.replicas
        creating = []
        for name in sorted(new_topics):
            creating.append(asyncio.create_task(cluster.create_topic(name, partitions=3, replication_factor=1)))
            await asyncio.sleep(0.5)
        await cluster.until(
            lambda: new_topics == {each.topic_partition.topic for each in replicas if each.is_leader} & new_topics
        )
        took_s = asyncio.get_running_loop().time() - start_s
        cluster.resume(follower)
        await asyncio.gather(*creating)
        return took_s

    settings = {
        "replica.lag.time.max.ms": "20000",
        "request.timeout.ms": "30000",
        "transaction.state.log.num.partitions": "9",  # each broker leads some
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    assert simulate(scenario, brokers=3, settings=settings).value < 3


def test_the_epoch_is_raised_before_the_first_transaction_of_version_2() -> None:
    """The last one of version 1 may wait for its markers, and had the same epoch."""

    async def scenario(cluster: VirtualCluster) -> list[int]:
        await cluster.create_topic("orders")
        producer = await _till(cluster)
        transactions = producer._transactions
        assert transactions is not None
        epochs = []
        for value in ("tea", "coffee", "cake", "milk"):
            async with producer.transaction():
                await producer.send("orders", value)
                epochs.append(transactions.identity[1])
            if value == "tea":
                finalize = feature_update("transaction.version", 2, before=0)
                assert cluster.controller is not None
                await cluster._link().channels().send(cluster.controller, finalize, version=1)
                transactions._coordinators.clear()  # so it asks again what is finalized
        assert await _values(cluster, READING) == ["tea", "coffee", "cake", "milk"]
        return [epoch - epochs[0] for epoch in epochs]

    assert simulate(scenario, brokers=1).value == [0, 0, 1, 2]


async def _topic_led_by(cluster: VirtualCluster, name: str, fits: Callable[[int | None], bool]) -> str:
    for number in range(20):
        topic = f"{name}-{number}"
        await cluster.create_topic(topic)
        if fits(cluster.leader(topic)):
            return topic
    raise AssertionError("no topic has such a leader")


def test_calls_out_of_their_order_say_what_is_missing():
    """Nothing is sent outside of a transaction, and nothing has transactions without an id."""

    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.create_topic("orders")
        plain: VirtualProducer[str, str] = cluster.producer()
        with pytest.raises(ConfigurationError, match=r"transactional\.id is missing"):
            await plain.init_transactions()
        fresh: VirtualProducer[str, str] = cluster.producer(SENDING)
        with pytest.raises(ConfigurationError, match="init_transactions was not called"):
            await fresh.begin_transaction()
        await fresh.init_transactions()
        with pytest.raises(ConfigurationError, match="begin a transaction first"):
            await fresh.send("orders", "tea")
        with pytest.raises(ConfigurationError, match="called once"):
            await fresh.init_transactions()
        with pytest.raises(ConfigurationError, match="no transaction has begun"):
            await fresh.commit_transaction()

    simulate(scenario, brokers=1)


def test_a_transactional_id_needs_idempotence():
    """As with Kafka's own producer."""

    async def scenario(cluster: VirtualCluster) -> None:
        with pytest.raises(ConfigurationError, match=r"enable\.idempotence=true"):
            cluster.producer({**SENDING, "enable.idempotence": "false"})

    simulate(scenario)
