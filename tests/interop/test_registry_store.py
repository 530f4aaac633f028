"""The registry's topic and its instances: records that Confluent's registry writes, foreign and
damaged ones, topics that do not fit, an instance that goes away, and brokers that do."""

import json
import uuid
from collections.abc import Callable, Iterator

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.client import BYTES, Consumer, Producer
from barnabas.testing import Cluster
from barnabas.testing.registry import ClusterRegistry, registry_properties
from support.registries import ask, avro_record, register
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

Start = Callable[..., ClusterRegistry]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker that lets sessions be short."""
    with Cluster(settings={"group.min.session.timeout.ms": "300"}) as made:
        yield made


@pytest.fixture
def topic() -> str:
    """The topic of one test, and its group."""
    return f"_schemas-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def start(cluster: Cluster, topic: str) -> Iterator[Start]:
    """Starts instances on the topic; they stop at the end."""
    running = []

    def made(**properties: str) -> ClusterRegistry:
        texts = {
            **registry_properties(cluster.bootstrap_servers, 1, None, 0),
            "kafkastore.topic": topic,
            "schema.registry.group.id": topic,
            "kafkagroup.session.timeout.ms": "1000",
            "kafkagroup.heartbeat.interval.ms": "100",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        running.append(ClusterRegistry(texts))
        return running[-1]

    yield made
    for each in running:
        each.stop()


def write(cluster: Cluster, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    """Append records, as somebody else does."""
    with Producer(cluster.client_properties(), serializer=BYTES, key_serializer=BYTES) as producer:
        for key, value in records:
            producer.send(topic, value, key, partition=0).result()


def read(cluster: Cluster, topic: str) -> list[tuple[dict[str, object], dict[str, object] | None]]:
    """The keys and values that are there, as documents."""
    properties = {**cluster.client_properties(), "auto.offset.reset": "earliest", "consumer.timeout.ms": "1000"}
    with Consumer(properties, deserializer=BYTES, key_deserializer=BYTES) as consumer:
        consumer.assign([(topic, 0)])
        return [(json.loads(each.key), json.loads(each.value) if each.value else None) for each in consumer]


def create(cluster: Cluster, topic: str, **config: str) -> None:
    """The topic, compacted."""
    cluster.create_topic(topic, config={"cleanup.policy": "compact", **config})


KEY = {"keytype": "SCHEMA", "subject": "theirs", "version": 1, "magic": 1}
VALUE = {"subject": "theirs", "version": 1, "id": 40, "schema": '"string"', "deleted": False}


def text(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def test_goes_on_where_confluents_registry_stopped(cluster: Cluster, topic: str, start: Start) -> None:
    """Its schemas are there, and the next id follows its highest."""
    create(cluster, topic)
    noop = (text({"keytype": "NOOP", "magic": 0}), None)
    config = (
        text({"keytype": "CONFIG", "subject": None, "magic": 0}),
        text({"compatibilityLevel": "NONE"}),
    )
    write(cluster, topic, noop, (text(KEY), text(VALUE)), config)
    registry = start()
    assert ask(f"{registry.url}/schemas/ids/40").body["schema"] == '"string"'
    assert ask(f"{registry.url}/config").body == {"compatibilityLevel": "NONE"}
    assert register(registry.url, "ours", avro_record("R")).body["id"] == 41


def test_writes_records_as_confluents_registry_does(cluster: Cluster, topic: str, start: Start) -> None:
    """So that it can go on: keys with their type and their version of the format."""
    registry = start()
    register(registry.url, "ours", avro_record("R"))
    ask(f"{registry.url}/config/ours", "PUT", {"compatibility": "FULL"})
    records = read(cluster, topic)
    keys = {str(key["keytype"]): key for key, _ in records}
    values = {str(key["keytype"]): value for key, value in records}
    assert keys["NOOP"] == {"keytype": "NOOP", "magic": 0}
    assert keys["SCHEMA"] == {"keytype": "SCHEMA", "subject": "ours", "version": 1, "magic": 1}
    assert values["SCHEMA"] is not None
    assert (values["SCHEMA"]["id"], values["SCHEMA"]["version"], values["SCHEMA"]["deleted"]) == (1, 1, False)
    assert keys["CONFIG"] == {"keytype": "CONFIG", "subject": "ours", "magic": 0}


def test_foreign_and_damaged_records_are_left_out(cluster: Cluster, topic: str, start: Start) -> None:
    """What no registry understands costs no schema and no id."""
    create(cluster, topic)
    records: list[tuple[bytes | None, bytes | None]] = [
        *[(b"\xff\xfe", b"x"), (b"{", b"{}"), (b"[]", b"[]"), (b'{"keytype":"OTHER","magic":9}', b"{}")],
        *[(text(KEY), b"\x00"), (text({**KEY, "version": "one"}), text(VALUE))],
        (text({**KEY, "subject": "good"}), text({**VALUE, "subject": "good", "id": 3})),
    ]
    write(cluster, topic, *records)
    registry = start()
    assert ask(f"{registry.url}/subjects").body == ["good"]
    assert register(registry.url, "ours", avro_record("R")).status == 200
    write(cluster, topic, (b"\xff", b"\xff"))
    assert register(registry.url, "ours", avro_record("S"), timeout_s=30).status in (200, 409)
    assert ask(f"{registry.url}/schemas/ids/3").status == 200


@pytest.mark.parametrize(
    ("partitions", "policy", "reason"), [(2, "compact", "2 partitions"), (1, "delete", "cleanup.policy is delete")]
)
def test_topic_that_loses_schemas_or_their_order_is_refused(
    cluster: Cluster, topic: str, start: Start, partitions: int, policy: str, reason: str
) -> None:
    """The registry does not start on it, and does not change it."""
    cluster.create_topic(topic, partitions, config={"cleanup.policy": policy})
    with pytest.raises(BarnabasError, match=reason):
        start()


def test_follower_forwards_and_leads_when_the_leader_stops(start: Start) -> None:
    """What it forwarded it can answer at once, and the ids go on."""
    leader, follower = start(), start()
    first = register(follower.url, "a", avro_record("A"))
    assert ask(f"{follower.url}/schemas/ids/{first.body['id']}").status == 200
    leader.stop()
    second = eventually(lambda: (found := register(follower.url, "b", avro_record("B"))).status == 200 and found)
    assert second.body["id"] == first.body["id"] + 1


def test_request_that_was_forwarded_is_not_forwarded_again(start: Start) -> None:
    """Two instances that take each other for the leader do not keep a request for ever."""
    start()
    follower = start(leader_eligibility="false")
    reply = ask(f"{follower.url}/config", "PUT", {"compatibility": "NONE"}, X_Forward="true")
    assert (reply.status, reply.code) == (500, 50004)


def test_leader_that_is_not_there_is_confluents_50003(start: Start) -> None:
    """The group has not noticed yet that nothing listens at the leader's address."""
    leader = start(host_name="localhost", host_port="1")
    follower = start()
    reply = ask(f"{follower.url}/config", "PUT", {"compatibility": "NONE"})
    assert (reply.status, reply.code) == (500, 50003)
    assert ask(f"{leader.url}/config", "PUT", {"compatibility": "NONE"}).status == 200


def test_without_an_instance_that_may_lead_nothing_is_written(start: Start) -> None:
    """Reading goes on."""
    registry = start(leader_eligibility="false")
    reply = ask(f"{registry.url}/config", "PUT", {"compatibility": "NONE"})
    assert (reply.status, reply.code) == (500, 50004)
    assert ask(f"{registry.url}/subjects").body == []


def test_while_the_broker_stands_still_writes_fail_and_lookups_answer(topic: str) -> None:
    """And a write succeeds when it is there again, with the id that follows."""
    with Cluster() as cluster:
        properties = {
            **registry_properties(cluster.bootstrap_servers, 1, None, 0),
            "kafkastore.timeout.ms": "1000",
        }
        registry = ClusterRegistry(properties)
        try:
            first = register(registry.url, "a", avro_record("A"))
            cluster.pause(0)
            reply = register(registry.url, "b", avro_record("B"))
            assert reply.status == 500
            assert reply.code in (50001, 50002)
            assert ask(f"{registry.url}/schemas/ids/{first.body['id']}").status == 200
            cluster.resume(0)
            second = eventually(
                lambda: (found := register(registry.url, "b", avro_record("B"))).status == 200 and found
            )
            assert second.body["id"] == first.body["id"] + 1
        finally:
            cluster.resume(0)
            registry.stop()


def test_schema_that_the_topic_does_not_take_is_refused_as_too_large(
    cluster: Cluster, topic: str, start: Start
) -> None:
    """The next one is written."""
    create(cluster, topic, **{"max.message.bytes": "20000"})
    registry = start()
    large = avro_record("L") | {"doc": "x" * 30_000}
    assert register(registry.url, "large", large).code == 42209
    assert register(registry.url, "small", avro_record("S")).status == 200


def test_write_waits_for_another_leader_when_the_former_one_has_stopped(start: Start) -> None:
    """A client sees nothing of an instance that is restarted."""
    leader, follower = start(kafkagroup_heartbeat_interval_ms="900"), start(kafkagroup_heartbeat_interval_ms="900")
    assert register(follower.url, "a", avro_record("A")).body["id"] == 1
    leader.stop()
    assert register(follower.url, "b", avro_record("B")).body["id"] == 2


def test_leader_whose_transactional_id_somebody_takes_leads_again(cluster: Cluster, topic: str, start: Start) -> None:
    """It asks the group whether it still leads, and fences the other one."""
    registry = start()
    assert register(registry.url, "a", avro_record("A")).body["id"] == 1
    other = Producer({**cluster.client_properties(), "transactional.id": f"{topic}-{topic}-writer"})
    with other:
        other.init_transactions()
        assert register(registry.url, "b", avro_record("B")).code == 50004
        second = eventually(lambda: (found := register(registry.url, "b", avro_record("B"))).status == 200 and found)
        assert second.body["id"] == 2
