"""`barnabas.testing.simulate`: a user's own clients and faults in virtual time, and its
clients beside the real ones."""

import asyncio
import inspect
import time
from typing import Any

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.client import (
    JSON,
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    ClosedError,
    CommitError,
    ConfigurationError,
    DeliveryError,
    DeserializationError,
    RefusedError,
    TimedOutError,
    TopicPartition,
    UnknownTopicError,
)
from barnabas.testing import (
    Cluster,
    ProgramKilledError,
    SimulatedRunError,
    VirtualCluster,
    VirtualConsumer,
    VirtualProducer,
    simulate,
)

GROUP = {"group.id": "kitchen", "auto.offset.reset": "earliest", "session.timeout.ms": "6000"}
BY_HAND = {**GROUP, "enable.auto.commit": "false"}


# A run


async def _orders(cluster: VirtualCluster) -> list[tuple[int, int]]:
    await cluster.create_topic("orders", partitions=3)
    async with cluster.producer() as producer:
        return [(d.partition, d.offset) for d in [await producer.send("orders", f"order {n}") for n in range(20)]]


def test_the_same_seed_gives_the_same_run():
    """Everything that happens is equal, not only what the scenario returns; another
    seed gives another run."""
    first, again, other = (simulate(_orders, seed=seed, brokers=3) for seed in (7, 7, 8))
    assert first == again
    assert first.digest != other.digest


def test_ten_minutes_of_virtual_time_are_not_waited_for():
    """asyncio's time is the run's own, and a program's wall clock follows it."""

    async def scenario(cluster: VirtualCluster) -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        start_s, start_ms = loop.time(), cluster.now_ms()
        await asyncio.sleep(600)
        return loop.time() - start_s, cluster.now_ms() - start_ms

    started_s = time.monotonic()
    waited_s, waited_ms = simulate(scenario).value
    assert time.monotonic() - started_s < 300
    assert waited_s == pytest.approx(600, abs=1)
    assert waited_ms == pytest.approx(600_000, abs=1000)


@pytest.mark.parametrize(("level", "epochs"), [(0, [0, 0]), (2, [1, 2])])
def test_features_are_finalized_before_the_scenario_begins(level, epochs):
    """Producers have another epoch for each transaction only at level 2."""

    async def scenario(cluster: VirtualCluster) -> list[int]:
        await cluster.create_topic("orders")
        producer = cluster.producer({"transactional.id": "till"})
        await producer.init_transactions()
        seen = []
        for _ in range(2):
            async with producer.transaction():
                await producer.send("orders", "tea")
            assert producer._transactions is not None
            seen.append(producer._transactions.identity[1])
        return seen

    assert simulate(scenario, brokers=3, features={"transaction.version": level}).value == epochs


@pytest.mark.parametrize("features", [{"transaction.version": 3}, {"tea.version": 1}])
def test_a_feature_that_no_broker_supports_is_refused(features):
    """As brokers refuse it; the scenario does not begin."""

    async def scenario(cluster: VirtualCluster) -> None:
        pytest.fail("began")

    with pytest.raises(RefusedError, match=f"cannot set feature {next(iter(features))}"):
        simulate(scenario, features=features)


def test_a_scenario_without_end_is_ended_by_its_limit():
    """The error names the limit, and the seed that runs it again."""

    async def scenario(_: VirtualCluster) -> None:
        await asyncio.sleep(1_000_000)

    with pytest.raises(TimedOutError, match="within 30 s of virtual time") as found:
        simulate(scenario, seed=3, limit_s=30)
    assert "seed=3" in found.value.__notes__[0]


def test_an_error_of_the_scenario_passes_through_with_the_seed():
    """A failed assertion is the test's result."""

    async def scenario(_: VirtualCluster) -> None:
        raise AssertionError("two orders were cooked twice")

    with pytest.raises(AssertionError, match="cooked twice") as found:
        simulate(scenario, seed=41)
    assert found.value.__notes__ == ["simulate(..., seed=41) runs it again"]


def test_a_program_that_fails_unseen_fails_the_run():
    """Unless the scenario waited for it, and so saw its error."""

    async def broken() -> None:
        raise ValueError("a bug")

    async def unseen(cluster: VirtualCluster) -> None:
        cluster.start("worker", broken)
        await asyncio.sleep(1)

    async def seen(cluster: VirtualCluster) -> str:
        with pytest.raises(ValueError, match="a bug"):
            await cluster.start("worker", broken).wait()
        return "seen"

    with pytest.raises(SimulatedRunError, match=r"worker failed with ValueError\('a bug'\)"):
        simulate(unseen)
    assert simulate(seen).value == "seen"


def test_simulate_inside_a_running_loop_says_what_to_do():
    """It needs a loop of its own."""

    async def inside() -> None:
        with pytest.raises(Exception, match="call it outside of coroutines"):
            simulate(_orders)

    asyncio.run(inside())


def test_a_killed_program_runs_nothing_more():
    """Not even its ``finally`` blocks; it can be started again under its name."""
    steps = []

    async def work(name: str) -> str:
        try:
            steps.append(f"{name} begins")
            await asyncio.sleep(5)
            return name
        finally:
            steps.append(f"{name} ends")

    async def scenario(cluster: VirtualCluster) -> list[str]:
        first = cluster.start("worker", work, "one")
        await asyncio.sleep(1)
        cluster.kill("worker")
        with pytest.raises(ProgramKilledError):
            await first.wait()
        with pytest.raises(Exception, match="no server or program 'worker7'"):
            cluster.kill("worker7")
        assert await cluster.start("worker", work, "two").wait() == "two"
        return list(steps)

    assert simulate(scenario).value == ["one begins", "two begins", "two ends"]


# Faults


async def _cook(cluster: VirtualCluster, cooked: list[str], pause_s: float = 0.05) -> None:
    async with cluster.consumer(BY_HAND) as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            cooked.append(record.value)
            await asyncio.sleep(pause_s)
            await consumer.commit()


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_killed_before_its_commit_repeats_one_order_and_loses_none(seed):
    """At least once: the worker that takes over begins at the last commit."""

    async def scenario(cluster: VirtualCluster) -> list[str]:
        await cluster.create_topic("orders")
        async with cluster.producer() as producer:
            for n in range(10):
                await producer.send("orders", f"order {n}")
        cooked: list[str] = []
        worker = cluster.start("worker", _cook, cluster, cooked)
        await cluster.until(lambda: len(cooked) == 4)
        worker.kill()  # order 3 is cooked, and not committed
        cluster.start("other worker", _cook, cluster, cooked)
        await cluster.until(lambda: "order 9" in cooked)
        return cooked

    cooked = simulate(scenario, seed=seed, brokers=3).value
    assert cooked == [f"order {n}" for n in (0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9)]


@pytest.mark.parametrize(("idempotent", "copies"), [(False, 2), (True, 1)])
def test_a_late_answer_doubles_a_record_only_without_idempotence(idempotent, copies):
    """The producer sends the record again, and the leader knows it again only by its
    sequence number."""

    async def scenario(cluster: VirtualCluster) -> int:
        await cluster.create_topic("orders")
        settings = {"enable.idempotence": idempotent, "request.timeout.ms": 1000}
        async with cluster.producer(settings) as producer:
            await producer.send("orders", "first")
            follower = next(n for n in cluster.in_sync("orders") if n != cluster.leader("orders"))
            cluster.pause(follower)  # the leader stores, and waits for it with its answer
            sending = asyncio.create_task(producer.send("orders", "second"))
            await asyncio.sleep(2.5)
            cluster.resume(follower)
            await sending
        return [record.value for record in await cluster.records("orders")].count("second")

    found = simulate(scenario, seed=5, brokers=2).value
    assert found == copies if idempotent else found >= copies


def test_what_is_acknowledged_survives_the_leaders_death():
    """With acks=all, whatever happens; the record without an acknowledgement is sent again."""

    async def scenario(cluster: VirtualCluster) -> tuple[list[str], list[str]]:
        await cluster.create_topic("orders", config={"min.insync.replicas": "2"})
        sent = []
        async with cluster.producer({"enable.idempotence": True}) as producer:
            for n in range(30):
                if n == 10:
                    cluster.kill(cluster.leader("orders"))
                await producer.send("orders", f"order {n}")
                sent.append(f"order {n}")
        return sent, [record.value for record in await cluster.records("orders")]

    sent, stored = simulate(scenario, seed=2, brokers=3).value
    assert stored == sent


def test_a_worker_that_is_cut_off_loses_its_partitions_and_cannot_commit():
    """The group moves on without it; its late commit is refused, so the new owner's work stays."""

    async def scenario(cluster: VirtualCluster) -> str:
        await cluster.create_topic("orders", partitions=2)
        async with cluster.producer() as producer:
            await producer.send("orders", "one", partition=0)
        cut_off = asyncio.Event()

        async def lonely() -> str:
            async with cluster.consumer({**BY_HAND, "max.poll.interval.ms": "600000"}) as consumer:
                consumer.subscribe(["orders"])
                while (record := await consumer.poll(1.0)) is None:
                    pass
                cut_off.set()
                await asyncio.sleep(20)  # a long piece of work; meanwhile the session expires
                try:
                    await consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})
                except CommitError:
                    return "refused"
                return "committed"

        worker = cluster.start("lonely", lonely)
        await cut_off.wait()
        cluster.partition(["lonely"], [0, 1, 2])
        cooked: list[str] = []
        cluster.start("other", _cook, cluster, cooked)
        await cluster.until(lambda: cooked == ["one"])
        cluster.heal()
        return await worker.wait()

    assert simulate(scenario, seed=1, brokers=3).value == "refused"


def test_a_slow_disk_and_a_wrong_clock_last_until_heal():
    """A slow disk takes longer with flush.before.ack, a wrong clock shows in
    LogAppendTime, heal ends both."""

    async def scenario(cluster: VirtualCluster) -> list[float]:
        await cluster.create_topic("orders", config={"message.timestamp.type": "LogAppendTime"})
        async with cluster.producer({"linger.ms": 0}) as producer:

            async def send() -> tuple[float, int]:
                start_s = asyncio.get_running_loop().time()
                for _ in range(5):
                    delivery = await producer.send("orders", "one")
                assert delivery.timestamp_ms is not None
                return asyncio.get_running_loop().time() - start_s, delivery.timestamp_ms - cluster.now_ms()

            usual = await send()
            cluster.slow_disk(0, 1000)
            cluster.clock(0, 3600)
            wrong = await send()
            cluster.heal()
            await asyncio.sleep(10)  # what was under way ends
            right = await send()
        return [usual[0], wrong[0], right[0], usual[1], wrong[1], right[1]]

    usual_s, slow_s, again_s, *shifts_ms = simulate(scenario, seed=4, settings={"flush.before.ack": "true"}).value
    assert slow_s > 5 * max(usual_s, again_s)
    assert [round(shift / 1_000_000) for shift in shifts_ms] == [0, 4, 0]


def test_a_broker_comes_back_in_sync_after_a_power_failure():
    """What was not synced is gone with the power, and is copied from the leader."""

    async def scenario(cluster: VirtualCluster) -> list[str]:
        await cluster.create_topic("orders")
        async with cluster.producer() as producer:
            await producer.send("orders", "one")
            gone = cluster.leader("orders")
            assert gone is not None
            cluster.power_off(gone)
            await producer.send("orders", "two")
        await cluster.until(lambda: gone not in cluster.in_sync("orders"))
        await cluster.start_broker(gone)
        await cluster.until(lambda: len(cluster.in_sync("orders")) == 3)
        await cluster.stop_broker((gone + 1) % 3)
        await cluster.stop_broker((gone + 2) % 3)
        return [record.value for record in await cluster.records("orders")]

    assert simulate(scenario, seed=6, brokers=3).value == ["one", "two"]


def test_a_program_that_does_not_poll_leaves_its_group():
    """As max.poll.interval.ms says; when it polls again it is a member again."""

    async def scenario(cluster: VirtualCluster) -> list[str]:
        await cluster.create_topic("orders", partitions=2)
        events = []
        async with cluster.consumer({**GROUP, "max.poll.interval.ms": "10000"}) as consumer:
            consumer.subscribe(
                ["orders"],
                before_revoke=lambda: events.append("before"),
                on_assign=lambda places: events.append(f"+{len(places)}"),
                on_revoke=lambda places: events.append(f"-{len(places)}"),
            )
            await consumer.poll(5)
            await asyncio.sleep(60)
            await consumer.poll(15)
        return events

    assert simulate(scenario).value == ["+2", "-2", "+2"]


def test_a_program_that_cannot_leave_its_group_still_gives_up_its_partitions():
    """The coordinator does not answer when max.poll.interval.ms ends."""

    async def scenario(cluster: VirtualCluster) -> list[str]:
        await cluster.create_topic("orders", partitions=2)
        events: list[str] = []
        properties = {**GROUP, "heartbeat.interval.ms": "4000", "max.poll.interval.ms": "10000"}
        async with cluster.consumer(properties) as consumer:
            consumer.subscribe(
                ["orders"],
                on_assign=lambda given: events.append(f"+{len(given)}"),
                on_revoke=lambda gone: events.append(f"-{len(gone)}"),
            )
            while not events:
                await consumer.poll(0.1)
            await asyncio.sleep(10.5)  # the next heartbeat is due at 12 s
            cluster.pause(0)
            await asyncio.sleep(8)
            cluster.resume(0)
            while events.count("+2") < 2:
                await consumer.poll(0.1)
        return events

    assert simulate(scenario, limit_s=120).value == ["+2", "-2", "+2"]


def test_a_partition_that_is_filled_again_and_again_does_not_keep_others_waiting():
    """Each turn hands out what waited at its begin."""

    async def scenario(cluster: VirtualCluster) -> int:
        await cluster.create_topic("orders", partitions=2)
        busy, rare = TopicPartition("orders", 0), TopicPartition("orders", 1)
        async with cluster.producer() as producer, cluster.consumer() as consumer:
            consumer.assign({busy: 0, rare: 0})
            for handed_out in range(300):
                for _ in range(2):
                    await producer.submit("orders", "busy", partition=0)
                await asyncio.sleep(0.02)
                if handed_out == 10:
                    await producer.send("orders", "rare", partition=1)
                record = await consumer.poll(1.0)
                if record is not None and record.value == "rare":
                    return handed_out
        return -1

    assert 10 <= simulate(scenario).value < 100


def test_a_rebalance_lets_the_program_commit_before_its_partitions_go():
    """``before_revoke`` may be a coroutine function; the next owner begins after its commit."""

    async def scenario(cluster: VirtualCluster) -> list[str | None]:
        await cluster.create_topic("orders", partitions=2)
        async with cluster.producer() as producer:
            for partition, value in enumerate(["a", "b"]):
                await producer.send("orders", value, partition=partition)
        async with cluster.consumer(BY_HAND) as one, cluster.consumer(BY_HAND) as two:
            one.subscribe(["orders"], before_revoke=one.commit)
            read = [await one.poll(10), await one.poll(10)]
            two.subscribe(["orders"])
            while len(one.assignment()) != 1 or len(two.assignment()) != 1:
                read += [await one.poll(0.1), await two.poll(0.1)]
            read += [await one.poll(2), await two.poll(2)]
        return [record.value for record in read if record is not None]

    assert sorted(simulate(scenario, brokers=3).value) == ["a", "b"]


# Clients


def test_what_is_not_simulated_is_refused():
    """A property without effect would promise what is not tried."""

    async def scenario(cluster: VirtualCluster) -> None:
        with pytest.raises(ConfigurationError, match=r"not simulated for a consumer: fetch\.max\.bytes"):
            cluster.consumer({"fetch.max.bytes": 100, "group.id": "g"})
        with pytest.raises(ConfigurationError, match=r"not simulated for a producer: compression\.type"):
            cluster.producer({"compression.codec": "gzip"})
        with pytest.raises(ConfigurationError, match="cooperative-sticky: range and roundrobin"):
            cluster.consumer({"partition.assignment.strategy": "cooperative-sticky"})

    simulate(scenario)


def test_a_record_that_cannot_be_delivered_fails_with_its_cause():
    """Too few replicas in sync, until delivery.timeout.ms is over."""

    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.create_topic("orders", config={"min.insync.replicas": "2"})
        cluster.kill(next(n for n in cluster.in_sync("orders") if n != cluster.leader("orders")))
        await cluster.until(lambda: len(cluster.in_sync("orders")) == 1)
        async with cluster.producer({"delivery.timeout.ms": 5000}) as producer:
            with pytest.raises(DeliveryError, match=r"over; orders-0: The size of the current ISR") as found:
                await producer.send("orders", "one")
        assert found.value.name == "_MSG_TIMED_OUT"

    simulate(scenario, brokers=2)


def test_where_there_is_no_leader_there_is_none_to_kill():
    """The types let `leader` be given to `kill`; the error says what to wait for."""

    async def scenario(cluster: VirtualCluster) -> None:
        with pytest.raises(BarnabasError, match="there is no leader or controller at the moment"):
            cluster.kill(cluster.leader("missing"))

    simulate(scenario)


@pytest.mark.parametrize(("real", "virtual"), [(AsyncProducer, VirtualProducer), (AsyncConsumer, VirtualConsumer)])
def test_the_clients_have_the_methods_of_the_real_ones(real, virtual):
    """With the same signatures; only transactions, which brokers do not have, and
    librdkafka's reports are left out."""
    left_out = {"init_transactions", "begin_transaction", "commit_transaction", "abort_transaction", "transaction"}
    left_out |= {"send_offsets_to_transaction", "group_metadata", "last_problem", "dropped", "metrics", "metrics_port"}

    def surface(kind: type) -> dict[str, list[tuple[Any, ...]]]:
        return {
            name: [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]
            for name, method in vars(kind).items()
            if not name.startswith("_") and name not in left_out
        }

    assert surface(virtual) == surface(real)


async def _refusal(call: Any) -> type[ClientError]:
    """The class of the error that a call ends with."""
    try:
        result = call() if callable(call) else call
        if inspect.isawaitable(result):
            await result
    except ClientError as error:
        return type(error)
    pytest.fail("nothing was refused")


async def _contract(make_producer: Any, make_consumer: Any) -> list[Any]:
    """What a program sees of clients; the topic "orders" with two partitions is there."""
    seen: list[Any] = []
    async with make_producer({}) as producer:
        for n in range(6):
            delivery = await producer.send("orders", f"order {n}", key=f"table {n}", timestamp_ms=1000 + n)
            seen.append((delivery.partition, delivery.offset, delivery.timestamp_ms))
        await producer.send("orders", None, key="table 0", headers=[("by", b"hand"), ("none", None)])
        seen.append(await producer.partitions_for("orders"))
        future = await producer.submit("orders", "last", partition=1)
        await producer.flush()
        seen.append((await future).partition)
        nonsense = ({"timestamp_ms": 0}, {"timestamp_ms": -5}, {"partition": 2}, {"partition": -3})
        seen += [await _refusal(producer.send("orders", "no", **given)) for given in nonsense]
        seen.append(await _refusal(producer.send_many("orders", ["a", "b"], keys=["a"])))
    with pytest.raises(ClosedError):
        await producer.send("orders", "late")
    seen += [await _refusal(producer.partitions_for("orders")), await _refusal(producer.__aenter__())]
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)
    async with make_consumer(BY_HAND) as consumer:
        consumer.subscribe(["orders"])
        found = []
        while len(found) < 8:
            found += await consumer.consume(8 - len(found), 1.0)
        found.sort(key=lambda record: (record.partition, record.offset))
        seen += [(r.partition, r.offset, r.key, r.value, list(r.headers), r.timestamp_type) for r in found]
        seen.append(sorted(consumer.assignment()))
        await consumer.commit()
        seen += [consumer.position([zero, one]), await consumer.committed([zero, one]), await consumer.lag()]
        seen.append([await consumer.watermarks("orders", n) for n in (0, 1)])
        seen.append(await consumer.offsets_for_times({zero: 1001, one: 9_999_999_999_999}))
        seen.append((await consumer.topics())["orders"])
        consumer.pause([one])
        seen.append(consumer.paused())
        await consumer.seek("orders", 0, 1)
        record = await consumer.poll(10)
        seen.append((record.partition, record.offset))
        consumer.resume([one])
        seen.append(consumer.paused())
        two = TopicPartition("orders", 2)
        for refused in (
            lambda: consumer.pause([two]),
            lambda: consumer.resume([two]),
            lambda: consumer.seek("orders", 2, 0),
            lambda: consumer.seek("orders", 0, -77),
            lambda: consumer.commit({zero: -3}),
            lambda: consumer.offsets_for_times({zero: -1}),
            lambda: consumer.assign({TopicPartition("orders", -1): 0}),
            lambda: consumer.assign({zero: -77}),
            lambda: consumer.subscribe("orders"),
            lambda: consumer.subscribe([5]),
        ):
            seen.append(await _refusal(refused))
    for refused in (
        lambda: consumer.pause([one]),
        lambda: consumer.assignment(),
        lambda: consumer.subscribe(["orders"]),
        lambda: consumer.assign([one]),
        lambda: consumer.poll(1),
        lambda: consumer.commit(),
        lambda: consumer.committed([one]),
        lambda: consumer.lag(),
        lambda: consumer.topics(),
        lambda: consumer.watermarks("orders", 0),
        lambda: consumer.__aenter__(),
    ):
        seen.append(await _refusal(refused))
    async with make_consumer({"auto.offset.reset": "earliest"}, deserializer=JSON) as consumer:
        consumer.assign({zero: 0})
        with pytest.raises(DeserializationError) as caught:
            await consumer.poll(10)
        seen.append((caught.value.record.offset, caught.value.record.value))
    async with make_consumer({"group.id": "other", "consumer.timeout.ms": "10000"}) as consumer:
        consumer.subscribe(["missing"])
        with pytest.raises(UnknownTopicError):
            async for _ in consumer:
                pass
    return seen


def test_the_clients_do_what_the_real_ones_do():
    """The same program against a real cluster with librdkafka, and in virtual time:
    it sees the same."""

    async def scenario(cluster: VirtualCluster) -> list[Any]:
        await cluster.create_topic("orders", partitions=2)
        return await _contract(cluster.producer, cluster.consumer)

    with Cluster(brokers=1, settings={"auto.create.topics.enable": "false"}) as cluster:
        cluster.create_topic("orders", partitions=2)
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        real = asyncio.run(
            _contract(
                lambda given, **options: AsyncProducer({**servers, **given}, **options),
                lambda given, **options: AsyncConsumer({**servers, **given}, **options),
            )
        )
    virtual = simulate(scenario).value
    for step, (ours, theirs) in enumerate(zip(virtual, real, strict=True)):
        assert ours == theirs, f"step {step}"
