"""What a user writes against the client, with all its types: type checkers find
nothing in it, however strict."""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, assert_type

from barnabas.client import (
    BYTES,
    INTEGER,
    JSON,
    STRING,
    Admin,
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    ConnectError,
    Consumer,
    Delivery,
    Producer,
    Receipt,
    Record,
    RefusedError,
    TopicPartition,
    UnknownTopicError,
)
from barnabas.testing import Cluster, VirtualCluster, VirtualConsumer, VirtualProducer, simulate

SERVERS = {"bootstrap.servers": "localhost:9092"}


@dataclass
class Order:
    table: int
    item: str


class OrderCodec:
    def encode(self, value: Order, /) -> bytes:
        return f"{value.table}:{value.item}".encode()

    def decode(self, data: bytes, /) -> Order:
        table, _, item = data.decode().partition(":")
        return Order(int(table), item)


def send_orders(orders: Iterable[Order]) -> list[Delivery]:
    with Producer(SERVERS, serializer=OrderCodec(), key_serializer=INTEGER) as producer:
        receipts: list[Receipt] = [
            producer.send("orders", order, order.table, headers=[("kind", b"x")]) for order in orders
        ]
        producer.flush(10)
        return [receipt.result(5) for receipt in receipts]


def report(delivery: Delivery | None, error: ClientError | None) -> None:
    if delivery is not None:
        print(delivery.topic, delivery.partition, delivery.offset)
    elif error is not None:
        print(error.name, error.retriable, error.remedy)


def read_orders() -> list[Order]:
    found: list[Order] = []
    with Consumer({**SERVERS, "group.id": "kitchen"}, deserializer=OrderCodec(), key_deserializer=INTEGER) as consumer:
        consumer.subscribe(["orders"], on_assign=lambda partitions: print(len(partitions)))
        for record in consumer:
            key: int | None = record.key
            value: Order | None = record.value
            if value is not None and key == value.table:
                found.append(value)
            if len(found) == 10:
                break
        consumer.commit()
        positions: dict[TopicPartition, int | None] = consumer.position(consumer.assignment())
        print(positions)
    return found


def show(record: Record[str, str]) -> str:
    return f"{record.topic}/{record.partition}@{record.offset} {record.key}={record.value} {record.timestamp_ms}"


def plain() -> None:
    with Producer(SERVERS) as producer:
        producer.send("orders", b"as bytes", key=b"key")
        producer.send("lines", "text", on_delivery=report)
        producer.send_many("lines", ["a", "b"], keys=["1", "2"])
        print(producer.partitions_for("lines"))
    with Consumer({**SERVERS, "group.id": "g"}) as consumer:
        consumer.subscribe(["lines"])
        one = consumer.poll(1)
        if one is not None:
            print(show(one))
        for each in consumer.consume(10, 1):
            print(show(each))


async def asynchronous() -> None:
    async with AsyncProducer(SERVERS, serializer=JSON) as producer:
        delivery = await producer.send("json", asdict(Order(1, "tea")))
        print(delivery.offset)
    async with AsyncConsumer({**SERVERS, "group.id": "j"}, deserializer=JSON) as consumer:
        consumer.subscribe(["json"])
        async for record in consumer:
            if record.value is not None:
                print(record.value["item"])
            await consumer.commit()
            break


def administer() -> None:
    with Admin(SERVERS) as admin:
        try:
            admin.create_topic("orders", partitions=3, if_not_exists=True)
            for topic in admin.describe_topics(["orders"]):
                print(topic.name, [each.leader for each in topic.partitions])
            ends = admin.list_offsets({TopicPartition("orders", 0): -1})
            print({partition: info.offset for partition, info in ends.items() if not isinstance(info, RefusedError)})
        except UnknownTopicError as error:
            print(error.code, error.remedy)
        except ConnectError as error:
            print(error)


if __name__ == "__main__":
    print(BYTES, STRING)
    send_orders([Order(1, "espresso")])
    print(read_orders())
    asyncio.run(asynchronous())


async def cook(consumer: AsyncConsumer[str, Order] | VirtualConsumer[str, Order], cooked: list[Order]) -> None:
    consumer.subscribe(["orders"])
    async for record in consumer:
        value: Order | None = record.value
        if value is not None:
            cooked.append(value)
        await consumer.commit()


async def work(cluster: VirtualCluster, cooked: list[Order]) -> None:
    async with cluster.consumer({"group.id": "kitchen"}, deserializer=OrderCodec()) as consumer:
        await cook(consumer, cooked)


async def scenario(cluster: VirtualCluster) -> list[Order]:
    cooked: list[Order] = []
    program = cluster.start("worker", work, cluster, cooked)
    async with cluster.producer(serializer=OrderCodec(), key_serializer=INTEGER) as producer:
        delivery: Delivery = await producer.send("orders", Order(7, "espresso"), 7)
        cluster.kill(cluster.leader("orders", delivery.partition))
    async with cluster.producer() as texts:
        await texts.send("notes", "text", "key")
    program.kill()
    return cooked


def try_it() -> list[Order]:
    return simulate(scenario, seed=7, brokers=3).value


def break_it(barnabas_cluster: Cluster) -> None:
    barnabas_cluster.partition([0, "zookeeper"], [1, 2])
    barnabas_cluster.slow_disk(0, 0.2)
    barnabas_cluster.heal()


def decode_number(data: bytes) -> int:
    return int(data)


def encode_number(value: int) -> bytes:
    return str(value).encode()


def types_of_clients() -> None:
    """Keys and values are text, or what the codecs make of them."""
    assert_type(Consumer(SERVERS), Consumer[str, str])
    assert_type(Consumer(SERVERS, deserializer=decode_number), Consumer[str, int])
    assert_type(Consumer(SERVERS, deserializer=OrderCodec), Consumer[str, Order])
    assert_type(Consumer(SERVERS, key_deserializer=INTEGER), Consumer[int, str])
    assert_type(Consumer(SERVERS, deserializer=BYTES, key_deserializer=OrderCodec()), Consumer[Order, bytes])
    assert_type(Consumer(SERVERS, deserializer=None, key_deserializer=INTEGER), Consumer[int, str])
    assert_type(AsyncConsumer(SERVERS), AsyncConsumer[str, str])
    assert_type(AsyncConsumer(SERVERS, deserializer=OrderCodec()), AsyncConsumer[str, Order])
    assert_type(AsyncConsumer(SERVERS, key_deserializer=decode_number), AsyncConsumer[int, str])
    assert_type(Producer(SERVERS), Producer[str | bytes, str | bytes])
    assert_type(Producer(SERVERS, serializer=encode_number), Producer[str | bytes, int])
    assert_type(Producer(SERVERS, key_serializer=INTEGER), Producer[int, str | bytes])
    assert_type(Producer(SERVERS, serializer=OrderCodec(), key_serializer=STRING), Producer[str, Order])
    assert_type(AsyncProducer(SERVERS), AsyncProducer[str | bytes, str | bytes])
    assert_type(AsyncProducer(SERVERS, serializer=OrderCodec), AsyncProducer[str | bytes, Order])


def types_of_virtual_clients(cluster: VirtualCluster) -> None:
    assert_type(cluster.consumer(), VirtualConsumer[str, str])
    assert_type(cluster.consumer({}, deserializer=OrderCodec()), VirtualConsumer[str, Order])
    assert_type(cluster.consumer(key_deserializer=INTEGER), VirtualConsumer[int, str])
    assert_type(cluster.producer(), VirtualProducer[str | bytes, str | bytes])
    assert_type(cluster.producer({}, serializer=OrderCodec()), VirtualProducer[str | bytes, Order])
    assert_type(cluster.producer(serializer=OrderCodec(), key_serializer=INTEGER), VirtualProducer[int, Order])


async def types_of_methods(consumer: AsyncConsumer[int, Order], producer: AsyncProducer[int, Order]) -> None:
    """The methods for asyncio have the signatures of the blocking ones."""
    place = TopicPartition("orders", 0)
    assert_type(await consumer.poll(1.0), Record[int, Order] | None)
    assert_type(await consumer.consume(10, timeout_s=1.0), list[Record[int, Order]])
    assert_type(consumer.assignment(), list[TopicPartition])
    assert_type(consumer.position([place]), dict[TopicPartition, int | None])
    assert_type(await consumer.committed([place], timeout_s=3.0), dict[TopicPartition, int | None])
    assert_type(await consumer.lag(), dict[TopicPartition, int])
    assert_type(await consumer.watermarks("orders", 0), tuple[int, int])
    assert_type(await consumer.topics(), dict[str, int])
    await consumer.commit({place: 1}, wait=False)
    await consumer.seek("orders", 0, 5)
    metadata: Any = await consumer.group_metadata()
    await producer.send_offsets_to_transaction({place: 1}, metadata, timeout_s=1.0)
    assert_type(await producer.partitions_for("orders"), int)


async def what_type_checkers_refuse(consumer: AsyncConsumer[int, Order]) -> None:
    """A comment that suppresses nothing is an error, so each of these lines is
    refused without it."""
    Producer(SERVERS).send("orders", 5)  # type: ignore[arg-type]
    Producer(SERVERS, serializer=encode_number).send("orders", "text")  # type: ignore[arg-type]
    Consumer(SERVERS, deserializer=5)  # type: ignore[arg-type]
    await consumer.lag(timeout=1.0)  # type: ignore[call-arg]
    await consumer.seek("orders", 0, "5")  # type: ignore[arg-type]
    consumer.assign("orders")  # type: ignore[arg-type]
