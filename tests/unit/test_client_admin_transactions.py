"""`Admin` and `AsyncAdmin`: transactions and features of a cluster."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest

from barnabas.client import Admin, AsyncAdmin, FencedError, Producer, RefusedError
from barnabas.client.admin import FeatureDescription, FencedProducer, LevelChange, TransactionListing
from barnabas.testing import Cluster
from barnabas.wire.kafka.errors import ErrorCode
from support.waiting import eventually

Open = Callable[[str, str], Producer[str, str]]
VERSION = "transaction.version"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker for all tests, each of which has topics and transactional ids of its own."""
    with Cluster() as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    """Asks its broker."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as made:
        yield made


@pytest.fixture
def opened(cluster: Cluster) -> Iterator[Open]:
    """Opens a transaction of a transactional id, with one record in partition 0 of a new topic."""
    producers = []

    def begin(transactional_id: str, topic: str) -> Producer[str, str]:
        cluster.create_topic(topic, 1)
        producer: Producer[str, str] = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id}
        )
        producers.append(producer)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, "tea", partition=0).result(60)
        return producer

    yield begin
    for producer in producers:
        with contextlib.suppress(FencedError):  # by the test
            producer.close()


def test_an_open_transaction_is_listed_and_described_until_it_ends(admin: Admin, opened: Open) -> None:
    """Its state, its producer and its partitions."""
    producer = opened("till", "orders")
    (listed,) = (each for each in admin.list_transactions(states=["Ongoing"]) if each.transactional_id == "till")
    assert listed.state == "Ongoing"
    described = admin.describe_transactions(["till", "till"])
    assert list(described) == ["till"]
    found = described["till"]
    assert (found.coordinator, found.producer_id, found.state) == (listed.coordinator, listed.producer_id, "Ongoing")
    assert [*found.partitions] == [("orders", 0)]
    assert found.start_time_ms is not None
    producer.commit_transaction()
    (ended,) = eventually(lambda: admin.list_transactions(states=["CompleteCommit"]), what="the transaction has ended")
    assert ended.producer_id == found.producer_id
    assert admin.describe_transactions(["till"])["till"].partitions == []


def test_transactions_are_listed_by_producer_duration_and_pattern(admin: Admin, opened: Open) -> None:
    """A filter that none passes leaves an empty list."""
    opened("kitchen", "dishes")
    opened("bar", "drinks")
    (kitchen,) = (each for each in admin.list_transactions() if each.transactional_id == "kitchen")
    assert admin.list_transactions(producer_ids=[kitchen.producer_id]) == [kitchen]
    assert isinstance(kitchen, TransactionListing)
    assert admin.list_transactions(duration_ms=3_600_000) == []
    assert admin.list_transactions(transactional_id_pattern="kit.h(en)+") == [kitchen]
    with pytest.raises(RefusedError) as raised:
        admin.list_transactions(transactional_id_pattern="(kitchen")
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_transactional_id_that_is_not_known_is_refused(admin: Admin) -> None:
    """The error says which."""
    with pytest.raises(RefusedError, match="transactional id nobody is not known") as raised:
        admin.describe_transactions(["nobody"])
    assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_fencing_aborts_the_transaction_and_names_the_new_epoch(admin: Admin, opened: Open) -> None:
    """The producer that had it can commit no more."""
    producer = opened("fenced", "fenced-orders")
    before = admin.describe_transactions(["fenced"])["fenced"]
    fenced = admin.fence_producers(["fenced"])
    assert list(fenced) == ["fenced"]
    assert isinstance(fenced["fenced"], FencedProducer)
    assert fenced["fenced"].producer_id == before.producer_id
    assert fenced["fenced"].epoch > before.producer_epoch
    (seen,) = admin.describe_producers("fenced-orders", 0)
    assert seen.transaction_start_offset is None
    with pytest.raises(FencedError):
        producer.commit_transaction()


def test_a_transaction_is_terminated_by_force(admin: Admin, opened: Open) -> None:
    """It is aborted."""
    producer = opened("forced", "forced-orders")
    admin.force_terminate_transaction("forced")
    assert admin.describe_transactions(["forced"])["forced"].state in ("CompleteAbort", "Empty")
    with pytest.raises(FencedError):
        producer.commit_transaction()


def test_a_partition_is_freed_of_a_transaction_around_its_coordinator(admin: Admin, opened: Open) -> None:
    """A broker with a replica says which producer has the transaction."""
    opened("hanging", "held")
    (holder,) = admin.describe_producers("held", 0)
    assert holder.transaction_start_offset == 0
    assert admin.describe_producers("held", 0, broker_id=0) == [holder]
    admin.abort_transaction("held", 0, producer_id=holder.producer_id, producer_epoch=holder.epoch, coordinator_epoch=0)
    (holder,) = admin.describe_producers("held", 0)
    assert holder.transaction_start_offset is None


def test_an_epoch_that_is_not_the_producers_frees_no_partition(admin: Admin, opened: Open) -> None:
    """One that the producer had before is refused."""
    admin.fence_producers(["kept"])
    opened("kept", "kept-orders")
    (holder,) = admin.describe_producers("kept-orders", 0)
    with pytest.raises(RefusedError) as raised:
        admin.abort_transaction(
            "kept-orders", 0, producer_id=holder.producer_id, producer_epoch=holder.epoch - 1, coordinator_epoch=0
        )
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert admin.describe_producers("kept-orders", 0) == [holder]


def test_a_level_is_finalized_and_taken_back_through_admin() -> None:
    """A lower level needs another kind of change, and a validation changes nothing."""
    with Cluster() as cluster, Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:

        def level() -> int:
            (found,) = admin.describe_features().features
            assert found == FeatureDescription(VERSION, 0, 2, found.finalized)
            return found.finalized

        assert level() == 0
        admin.update_features({VERSION: 2}, validate_only=True)
        assert level() == 0
        admin.update_features({VERSION: 2})
        eventually(lambda: level() == 2, what="the level is finalized")
        with pytest.raises(RefusedError, match="downgrade"):
            admin.update_features({VERSION: 1})
        admin.update_features({VERSION: 1}, LevelChange.SAFE_DOWNGRADE)
        eventually(lambda: level() == 1, what="the level is lower")
        admin.update_features({VERSION: 0}, LevelChange.SAFE_DOWNGRADE)
        eventually(lambda: level() == 0, what="no level is finalized")


def test_a_level_that_no_broker_supports_is_refused(admin: Admin) -> None:
    """So is a feature without a name that is known."""
    for levels in ({VERSION: 99}, {"no.such.feature": 1}):
        with pytest.raises(RefusedError) as raised:
            admin.update_features(levels)
        assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_the_asyncio_twin_asks_about_transactions_and_features(cluster: Cluster, opened: Open) -> None:
    """The answers are the same ones."""
    opened("asked", "asked-orders")

    async def ask() -> None:
        async with AsyncAdmin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            listed = await admin.list_transactions(states=["Ongoing"])
            assert "asked" in [each.transactional_id for each in listed]
            assert (await admin.describe_transactions(["asked"]))["asked"].state == "Ongoing"
            await admin.force_terminate_transaction("asked")
            assert [each.name for each in (await admin.describe_features()).features] == [VERSION]

    asyncio.run(ask())
