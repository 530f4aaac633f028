"""`killing_coordinator` of clusters for tests: the coordinator dies in the middle of a commit or an
abort, at the same moment each time, whichever client asks."""

import asyncio
from collections.abc import Callable, Iterator

import aiokafka
import confluent_kafka
import pytest

from barnabas.base.errors import BarnabasError
from barnabas.testing import Cluster, VirtualCluster, simulate
from barnabas.testing.coordinator_kills import Outcome
from support.cluster_faults import QUICK, transaction_states
from support.waiting import eventually

EndTransaction = Callable[[Cluster, str, Outcome], int | None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers that notice early who is gone."""
    with Cluster(brokers=3, settings=QUICK) as made:
        yield made


def by_librdkafka(cluster: Cluster, name: str, during: Outcome) -> int | None:
    """End a transaction of one record; the coordinator that died meanwhile."""
    settings = {"transactional.id": name, "log_level": 0, "reconnect.backoff.max.ms": 200}
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(name, "one")
    assert producer.flush(60) == 0
    with cluster.killing_coordinator(name, during) as kill:
        if during == "commit":
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    return kill.broker_id


def by_aiokafka(cluster: Cluster, name: str, during: Outcome) -> int | None:
    """The same."""

    async def end() -> int | None:
        servers = cluster.bootstrap_servers
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"one")
            with cluster.killing_coordinator(name, during) as kill:
                call = producer.commit_transaction if during == "commit" else producer.abort_transaction
                await asyncio.wait_for(call(), 60)
            return kill.broker_id

    return asyncio.run(end())


def read_committed(cluster: Cluster, topic: str) -> list[str] | None:
    """The values at read_committed; None while a transaction is open."""
    settings = {"group.id": "reader", "isolation.level": "read_committed", "log_level": 0}
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.partition.eof": True, **settings}
    )
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[str] = []
    try:
        while (message := reader.poll(30)) is not None and message.error() is None:
            values.append(message.value().decode())
        return values if message is not None and message.offset() == 2 else None  # a record and its marker
    finally:
        reader.close()


@pytest.mark.parametrize("during", ["commit", "abort"])
@pytest.mark.parametrize("end", [by_librdkafka, by_aiokafka])
def test_the_coordinator_dies_between_the_decision_and_the_markers(
    cluster: Cluster, end: EndTransaction, during: Outcome
) -> None:
    """Its log ends with the decision; another one completes it, and the client's call returns."""
    name = f"{end.__name__}-{during}"
    cluster.create_topic(name, replication_factor=3)
    killed = end(cluster, name, during)
    assert killed is not None
    try:
        folder = cluster.data_dir / f"kafka-logs-{killed}"
        assert transaction_states(folder, name)[-1] == f"Prepare{during.capitalize()}"
        eventually(
            lambda: read_committed(cluster, name) == (["one"] if during == "commit" else []),
            timeout_s=60,
            what="the transaction is over",
        )
    finally:
        cluster.start_broker(killed)


@pytest.mark.barnabas(settings={"zookeeper.session.timeout.ms": "3000"})
def test_a_single_broker_is_started_again(barnabas_cluster: Cluster) -> None:
    """The commit waits for it."""
    with pytest.raises(BarnabasError, match="restart=True"), barnabas_cluster.killing_coordinator("till"):
        pass
    barnabas_cluster.create_topic("till")
    settings = {"bootstrap.servers": barnabas_cluster.bootstrap_servers, "log_level": 0}
    producer = confluent_kafka.Producer({**settings, "transactional.id": "till"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("till", "one")
    with barnabas_cluster.killing_coordinator("till", restart=True):
        producer.commit_transaction(60)
    eventually(lambda: read_committed(barnabas_cluster, "till") == ["one"], what="the transaction is over")


def test_other_producers_and_other_outcomes_kill_no_broker(cluster: Cluster) -> None:
    """And a block in which nothing was killed fails."""
    cluster.create_topic("others", replication_factor=3)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "transactional.id": "other"}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("others", "one")
    with (
        pytest.raises(BarnabasError, match="no abort of other"),
        cluster.killing_coordinator("other", "abort"),
        pytest.raises(BarnabasError, match="no commit of till"),
        cluster.killing_coordinator("till"),
    ):
        producer.commit_transaction(60)


def test_an_error_of_the_block_is_not_hidden(cluster: Cluster) -> None:
    """It says more than that nothing was killed."""
    with pytest.raises(ValueError, match="a bug"), cluster.killing_coordinator("till"):
        raise ValueError("a bug")


def test_a_transaction_ends_in_one_of_two_ways(cluster: Cluster) -> None:
    """Another word is refused at once."""
    with pytest.raises(BarnabasError, match="'commit' or 'abort'"), cluster.killing_coordinator("till", "end"):  # type: ignore[arg-type]
        pass


# In virtual time


@pytest.mark.parametrize("during", ["commit", "abort"])
@pytest.mark.parametrize(("brokers", "restart"), [(3, False), (1, True)])
def test_in_virtual_time_another_coordinator_completes_the_transaction(
    during: Outcome, brokers: int, restart: bool
) -> None:
    """A reader at read_committed waits for it, and sees the record if it was committed."""

    async def scenario(cluster: VirtualCluster) -> tuple[bool, list[str | None]]:
        await cluster.create_topic("orders")
        producer = cluster.producer({"transactional.id": "till"})
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", "tea")
        with cluster.killing_coordinator("till", during, restart=restart) as kill:
            await (producer.commit_transaction() if during == "commit" else producer.abort_transaction())
        async with producer.transaction():
            await producer.submit("orders", "cake")
        is_another = cluster.transaction_coordinator("till") != kill.broker_id
        return is_another, [record.value for record in await cluster.records("orders")]

    is_another, values = simulate(scenario, brokers=brokers, settings={"zookeeper.session.timeout.ms": "3000"}).value
    assert is_another is not restart
    assert values == (["tea", "cake"] if during == "commit" else ["cake"])


@pytest.mark.parametrize("seed", range(3))
def test_in_virtual_time_the_client_has_no_answer_when_the_coordinator_dies(seed: int) -> None:
    """The coordinator has received the request, and another one answers it."""

    async def scenario(cluster: VirtualCluster) -> list[str | None]:
        await cluster.create_topic("orders")
        producer = cluster.producer({"transactional.id": "till"})
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", "tea")
        coordinator = cluster.transaction_coordinator("till")
        with cluster.killing_coordinator("till") as kill:
            committing = asyncio.ensure_future(producer.commit_transaction())
            await cluster.until(lambda: kill.is_done)
            assert kill.broker_id == coordinator
            assert not committing.done()
            await committing
        return [record.value for record in await cluster.records("orders")]

    assert simulate(scenario, seed=seed, brokers=3).value == ["tea"]
