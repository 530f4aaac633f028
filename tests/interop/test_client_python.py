"""The Python clients on our broker and on Apache's."""

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client import (
    BYTES,
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConfigurationError,
    Consumer,
    DeserializationError,
    Producer,
    RefusedError,
    UnknownTopicError,
    UnsupportedError,
)
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest
from support.needs import needs_reference
from support.reference import apache_cluster, apache_tool
from support.servers import up
from support.waiting import eventually

# Older records than log.retention.ms may be deleted at any time.
START_MS = int(time.time() * 1000) - 100_000

pytestmark = [pytest.mark.interop]

_numbers = itertools.count()


@pytest.fixture(scope="module", params=["ours", pytest.param("apache", marks=[pytest.mark.java, needs_reference])])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one broker."""
    directory = tmp_path_factory.mktemp(request.param)
    with up(directory) if request.param == "ours" else apache_cluster(directory) as cluster:
        yield cluster.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic of three partitions."""
    name = f"topic-{next(_numbers)}"
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        assert admin.create_topic(name, partitions=3, replication_factor=1)
        assert not admin.create_topic(name, if_not_exists=True)
    return name


class Lines:
    """A batch by hand: lines joined to one message, and taken apart."""

    def encode(self, lines: list[str]) -> bytes:
        return "\n".join(lines).encode()

    def decode(self, data: bytes) -> list[str]:
        return data.decode().split("\n")


def read(bootstrap: str, topic: str, count: int, limit_ms: int = 60_000, **options: object) -> list[object]:
    """``count`` records of all partitions, by partition and offset."""
    properties = {"bootstrap.servers": bootstrap, "auto.offset.reset": "smallest", "consumer.timeout.ms": limit_ms}
    with Consumer(properties, **options) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        records = list(itertools.islice(consumer, count))
    return sorted(records, key=lambda record: (record.partition, record.offset))


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_producer_of_the_notes_delivers(bootstrap: str, topic: str, kind: str, acks: int) -> None:
    """Old property names, each kind of producer and of acknowledgement."""
    properties = {
        "metadata.broker.list": bootstrap,
        "producer.type": kind,
        "request.required.acks": acks,
        "compression.codec": 1,
        "batch.num.messages": 200,
        "queue.buffering.max.ms": 5,
        "serializer.class": "kafka.serializer.StringEncoder",
    }
    with Producer(properties) as producer:
        receipts = [producer.send(topic, f"value {n}", key=f"key {n}") for n in range(20)]
        deliveries = [receipt.result(60) for receipt in receipts]
    assert {delivery.topic for delivery in deliveries} == {topic}
    assert sorted(record.value for record in read(bootstrap, topic, 20)) == sorted(f"value {n}" for n in range(20))
    if acks:
        places = {(record.partition, record.offset) for record in read(bootstrap, topic, 20)}
        assert {(delivery.partition, delivery.offset) for delivery in deliveries} == places


def test_ten_lines_travel_as_one_message(bootstrap: str, topic: str) -> None:
    """An own encoder and its decoder, by object and by dotted path."""
    lines = [f"line {n}" for n in range(10)]
    with Producer({"bootstrap.servers": bootstrap, "producer.type": "sync", "serializer.class": Lines}) as producer:
        producer.send(topic, lines)
    (record,) = read(bootstrap, topic, 1, deserializer=Lines)
    assert record.value == lines


def test_bytes_that_the_deserializer_cannot_read_are_named(bootstrap: str, topic: str) -> None:
    """The error has the record's place and its bytes."""
    with Producer({"bootstrap.servers": bootstrap}, serializer=BYTES) as producer:
        producer.send(topic, b"\xff", partition=1)
    with pytest.raises(DeserializationError, match=f"the value of {topic}-1 offset 0 cannot be read") as caught:
        read(bootstrap, topic, 1, deserializer="string")
    assert caught.value.record.value == b"\xff"


def test_everything_of_a_record_comes_back(bootstrap: str, topic: str) -> None:
    """Key, value, headers that repeat, timestamp, partition; nulls stay nulls."""
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(topic, None, "k", partition=2, timestamp_ms=START_MS, headers=headers)
    (record,) = read(bootstrap, topic, 1)
    assert (record.key, record.value, record.partition, record.timestamp_ms) == ("k", None, 2, START_MS)
    assert record.timestamp_type == 0  # CreateTime
    assert list(record.headers) == headers


def test_an_own_partitioner_decides(bootstrap: str, topic: str) -> None:
    """partitioner.class as a callable."""
    with Producer({"bootstrap.servers": bootstrap}, partitioner=lambda key, count: int(key) % count) as producer:
        for number in range(6):
            producer.send(topic, "v", key=str(number))
    assert [(record.partition, record.key) for record in read(bootstrap, topic, 6)] == [
        (number % 3, str(number)) for number in (0, 3, 1, 4, 2, 5)
    ]


@pytest.mark.parametrize(
    "name", ["kafka.producer.DefaultPartitioner", "org.apache.kafka.clients.producer.RoundRobinPartitioner"]
)
def test_records_without_a_key_go_round_the_partitions_where_that_is_asked_for(
    bootstrap: str, topic: str, name: str
) -> None:
    """The partitioner of the first clients, and Java's: one partition after the
    other, each as often."""
    with Producer({"bootstrap.servers": bootstrap, "partitioner.class": name}) as producer:
        placed = [receipt.result(60).partition for receipt in [producer.send(topic, str(n)) for n in range(9)]]
    assert placed == [0, 1, 2] * 3
    assert [record.partition for record in read(bootstrap, topic, 9)] == [0] * 3 + [1] * 3 + [2] * 3


@pytest.mark.java
@needs_reference
def test_keys_go_where_javas_producer_sends_them(bootstrap: str, topic: str) -> None:
    """The same keys through both producers end in the same partitions."""
    keys = [f"key-{n}" for n in range(60)] + ["", "ä", "x" * 300]
    apache_tool(
        "kafka.tools.ConsoleProducer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--property", "parse.key=true"),
        *("--property", "key.separator=|"),
        text="".join(f"{key}|java\n" for key in keys),
    )
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for key in keys:
            producer.send(topic, "python", key=key)
    where: dict[str, set[int]] = {}
    for record in read(bootstrap, topic, 2 * len(keys)):
        where.setdefault(record.key, set()).add(record.partition)
    assert len(where) == len(keys)
    assert all(len(partitions) == 1 for partitions in where.values())


def test_only_what_was_handed_out_and_processed_is_committed(bootstrap: str, topic: str) -> None:
    """A consumer that fails in the middle of a record sees it again, and those behind it."""
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(10):
            producer.send(topic, str(number), partition=0)
    properties = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}

    def fail_at_4() -> None:
        with Consumer({**properties, "enable.auto.commit": "false"}) as consumer:
            consumer.subscribe([topic])
            for record in consumer:
                if record.offset == 4:
                    raise ArithmeticError
                consumer.commit()

    with pytest.raises(ArithmeticError):
        fail_at_4()
    with Consumer({**properties, "consumer.timeout.ms": 60_000}) as consumer:
        consumer.subscribe([topic])
        assert [record.offset for record in itertools.islice(consumer, 2)] == [4, 5]
        # Leaving the block commits automatically what was handed out.
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        assert admin.group_offsets(topic) == {TopicPartition(topic, 0): 6}
        assert admin.group_lag(topic) == {TopicPartition(topic, 0): 4}


def test_a_rebalance_gives_no_record_to_two_members(bootstrap: str, topic: str) -> None:
    """A second member joins while the first holds fetched records: each record is
    processed once."""
    total = 3000
    with Producer({"bootstrap.servers": bootstrap, "partitioner.class": "round_robin"}) as producer:
        for number in range(total):
            producer.send(topic, str(number))
    properties = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
    }
    seen: list[str] = []
    with Consumer(properties) as first, Consumer(properties) as second:
        first.subscribe([topic])
        while len(seen) < 700:
            record = first.poll(1)
            seen += [record.value] if record else []
        second.subscribe([topic])

        def shared() -> bool:
            # One record at a time, so that much is left when the second member gets its partitions.
            for member in (first, second):
                seen.extend(record.value for record in member.consume(1, 0.01))
            return len(second.assignment()) in (1, 2)

        eventually(shared, what="the second member has partitions")
        assert len(seen) < total

        def everything() -> bool:
            for member in (first, second):
                seen.extend(record.value for record in member.consume(200, 0.05))
            return len(seen) >= total

        eventually(everything, timeout_s=60, what="all records are read")
    assert sorted(seen, key=int) == [str(number) for number in range(total)]


def test_the_asyncio_clients_do_the_same(bootstrap: str) -> None:
    """Create, send, consume, commit, all awaited."""

    async def scenario() -> None:
        name = f"aio-{next(_numbers)}"
        async with AsyncAdmin({"bootstrap.servers": bootstrap}) as admin:
            await admin.create_topic(name, partitions=3, replication_factor=1)
            async with AsyncProducer({"bootstrap.servers": bootstrap}) as producer:
                delivery = await producer.send(name, "first", partition=0)
                assert (delivery.partition, delivery.offset) == (0, 0)
                waiting = [await producer.submit(name, str(number)) for number in range(500)]
                await asyncio.gather(*waiting)
            properties = {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
            async with AsyncConsumer(properties, deserializer="string") as consumer:
                consumer.subscribe([name])
                values = []
                async for record in consumer:
                    values.append(record.value)
                    if len(values) == 501:
                        break
                await consumer.commit()
            assert sorted(values) == sorted(["first", *map(str, range(500))])
            assert sum((await admin.group_offsets(name)).values()) == 501

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_topic_that_is_not_there_is_reported_by_both_sides(bootstrap: str) -> None:
    """The consumer within seconds instead of never; the admin at once."""
    with Admin({"bootstrap.servers": bootstrap}) as admin, pytest.raises(UnknownTopicError, match="create it first"):
        admin.describe_topics(["no-such-topic"])
    with Consumer({"bootstrap.servers": bootstrap, "group.id": "g"}) as consumer:
        consumer.subscribe(["no-such-topic"])
        with pytest.raises(UnknownTopicError, match="cannot read no-such-topic"):
            consumer.poll(60)
        consumer.unsubscribe()
        assert consumer.poll(3) is None  # it is not read any more
        consumer.assign([TopicPartition("no-such-topic", 0)])
        with pytest.raises(UnknownTopicError, match="cannot read no-such-topic"):
            consumer.poll(60)


def test_a_name_that_no_topic_can_have_is_reported(bootstrap: str) -> None:
    """librdkafka takes it for a topic that is not there yet, and waits."""
    with Consumer({"bootstrap.servers": bootstrap, "group.id": "g"}) as consumer:
        consumer.subscribe(["no topic"])
        with pytest.raises(RefusedError, match="cannot read no topic: .*Invalid topic"):
            consumer.poll(60)


def test_a_consumer_that_may_create_topics_waits_for_the_topic_it_causes_to_be_made(bootstrap: str) -> None:
    """The brokers' first answer is that they do not know it; a moment later they do."""
    name = f"created-by-reading-{next(_numbers)}"
    settings = {"group.id": name, "allow.auto.create.topics": "true", "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": bootstrap, **settings}) as consumer:
        consumer.subscribe([name])
        with Admin({"bootstrap.servers": bootstrap}) as admin:

            def is_made() -> bool:
                assert consumer.poll(0.2) is None
                return name in admin.list_topics()

            eventually(is_made, what="the topic is made")
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            producer.send(name, "first")
        record = consumer.poll(30)
    assert record is not None
    assert record.value == "first"


def test_a_partition_that_is_not_there_is_reported(bootstrap: str, topic: str) -> None:
    """librdkafka waits for it in silence.

    A number of partitions that no request can hold is refused."""
    with (
        Admin({"bootstrap.servers": bootstrap}) as admin,
        pytest.raises(ConfigurationError, match="the request cannot be sent"),
    ):
        admin.create_topic("many", partitions=1 << 40)
    with Consumer({"bootstrap.servers": bootstrap}) as consumer:
        consumer.assign([TopicPartition(topic, 9)])
        with pytest.raises(UnknownTopicError, match=f"cannot read {topic}-9: the topic has partitions 0 to 2"):
            consumer.poll(60)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_seek_in_on_assign_says_where_reading_begins(bootstrap: str, topic: str, strategy: str) -> None:
    """Such as an offset that a database keeps beside what was made of the records; a
    pause there holds, too."""
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(10):
            producer.send(topic, str(number), partition=number % 2)
    settings = {"auto.offset.reset": "earliest", "partition.assignment.strategy": strategy}
    with Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-{strategy}", **settings}) as consumer:

        def begin(partitions: list[TopicPartition]) -> None:
            consumer.seek(topic, 0, 3)
            consumer.pause([each for each in partitions if each.partition == 1])

        consumer.subscribe([topic], on_assign=begin)
        assert [consumer.poll(60).value for _ in range(2)] == ["6", "8"]
        assert consumer.poll(1) is None
        consumer.resume([TopicPartition(topic, 1)])
        assert [consumer.poll(60).value for _ in range(5)] == ["1", "3", "5", "7", "9"]


def test_callbacks_of_the_asyncio_consumer_await_its_methods(bootstrap: str, topic: str) -> None:
    """A seek says from where reading begins, a commit before a partition goes is in time, and
    other tasks go on meanwhile."""
    called: list[str] = []

    async def scenario() -> None:
        async with AsyncProducer({"bootstrap.servers": bootstrap}) as producer:
            for number in range(4):
                await producer.send(topic, str(number), partition=0)
        settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        async with AsyncConsumer({**settings, "enable.auto.commit": "false"}) as consumer:

            async def begin(partitions: list[TopicPartition]) -> None:
                meanwhile = asyncio.create_task(asyncio.sleep(0, "meanwhile"))
                await consumer.seek(topic, 0, 2)
                with pytest.raises(ConfigurationError, match="not assigned"):
                    await consumer.seek(topic, 99, 0)
                called.append(await meanwhile)

            async def before_revoke() -> None:
                await consumer.commit()
                called.append("committed")

            consumer.subscribe(
                [topic], on_assign=begin, before_revoke=before_revoke, on_revoke=lambda _: called.append("gone")
            )
            first, second = await consumer.poll(60), await consumer.poll(60)
            assert (first.value, second.value) == ("2", "3")
        async with AsyncAdmin({"bootstrap.servers": bootstrap}) as admin:
            assert (await admin.group_offsets(topic))[TopicPartition(topic, 0)] == 4

    asyncio.run(asyncio.wait_for(scenario(), 120))
    assert called == ["meanwhile", "committed", "gone"]


def test_a_consumer_pauses_seeks_and_looks_offsets_up(bootstrap: str, topic: str) -> None:
    """pause holds back what was fetched already; position, lag and offsets_for_times
    count what was handed out."""
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(10):
            producer.send(topic, str(number), partition=number % 2, timestamp_ms=START_MS + 1000 * number)
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([first, second])
        handed_out = 0
        while handed_out < 3:
            came = len(consumer.consume(3 - handed_out, 60))  # what is there, at least one
            assert came
            handed_out += came
        assert sum(consumer.lag().values()) == 7
        consumer.pause([first])
        rest = consumer.consume(10, 2)
        eventually(
            lambda: consumer.lag()[second] == 0 or rest.extend(consumer.consume(10, 0.5)), what="the second's end"
        )
        assert {record.partition for record in rest} <= {1}
        assert consumer.paused() == [first]
        consumer.resume([first])
        values: list[str] = []

        def has_all() -> bool:
            values.extend(record.value for record in consumer.consume(10, 0.5))
            return sum(consumer.lag().values()) == 0

        eventually(has_all, timeout_s=60, what="both ends")
        assert len(values) + len(rest) == 7
        assert consumer.position([first]) == {first: 5}
        assert consumer.offsets_for_times({first: START_MS + 2000, second: START_MS + 99_000}) == {
            first: 1,
            second: None,
        }
        consumer.seek(topic, 0, 4)
        (record,) = consumer.consume(1, 60)
        assert (record.partition, record.offset, record.value) == (0, 4, "8")


def test_rebalance_callbacks_and_commits_of_given_offsets(bootstrap: str, topic: str) -> None:
    """on_assign and on_revoke receive partitions; a commit in the background is reported."""
    came: list[TopicPartition] = []
    went: list[TopicPartition] = []
    commits: list[object] = []
    with Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": "false"},
        on_commit=lambda offsets, error: commits.append((offsets, error)),
    ) as consumer:
        consumer.subscribe([topic], on_assign=came.extend, on_revoke=went.extend)
        eventually(lambda: consumer.poll(0.1) or len(came) == 3, what="the partitions are assigned")
        consumer.commit({came[0]: 7}, wait=False)
        eventually(lambda: consumer.poll(0.1) or commits, what="the commit is reported")
        assert consumer.committed([came[0]]) == {came[0]: 7}
    assert commits[0] == ({came[0]: 7}, None)
    assert sorted(went) == sorted(came)


def test_an_error_of_a_callback_reaches_the_caller_of_close(bootstrap: str, topic: str) -> None:
    """The callbacks run in a thread meanwhile, so that closing has a limit."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.subscribe([topic], on_revoke=lambda partitions: partitions[len(partitions)])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment(), what="the partitions are assigned")
    with pytest.raises(IndexError):
        consumer.close()


def test_transactions_are_refused_at_once_where_brokers_have_none(
    bootstrap: str, topic: str, request: pytest.FixtureRequest
) -> None:
    """A cluster without transactions says so; one that has them commits and aborts."""
    with (
        Admin({"bootstrap.servers": bootstrap}) as admin,
        Producer({"bootstrap.servers": bootstrap, "transactional.id": topic}) as producer,
    ):
        if not has_transactions(admin):
            assert "ours" in request.node.name
            with pytest.raises(UnsupportedError, match="have no transactions"):
                producer.init_transactions()
            return
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, "kept", partition=0)

        def give_up() -> None:
            with producer.transaction():
                producer.send(topic, "given up", partition=0)
                raise ArithmeticError

        with pytest.raises(ArithmeticError):
            give_up()
        assert len(admin.describe_producers(topic, 0)) == 1
        small = f"{topic}-small"
        admin.create_topic(small, partitions=3, replication_factor=1, configs={"max.message.bytes": 2000})
        with producer.transaction():
            for n in range(300):
                producer.send(small, f"{n:0200}", partition=0)
    assert [record.value for record in read(bootstrap, topic, 2, limit_ms=8000)] == ["kept"]
    found = [record.value for record in read(bootstrap, small, 301, limit_ms=8000)]
    assert found == [f"{n:0200}" for n in range(300)]


def has_transactions(admin: Admin) -> bool:
    """Whether the brokers offer EndTxn."""
    try:
        admin.connection.negotiated(EndTxnRequest)
    except UnsupportedError:
        return False
    return True


def test_iteration_ends_when_nothing_comes_for_the_notes_timeout(bootstrap: str, topic: str) -> None:
    """consumer.timeout.ms."""
    with Consumer({"bootstrap.servers": bootstrap, "consumer.timeout.ms": 300}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert list(consumer) == []
