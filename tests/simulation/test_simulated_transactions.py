"""Transactions of whole clusters in virtual time, each run from its seed, and the limit of their
version 1."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import transaction_mutants
from mutation import WHEN_ALL_SEEDS_RUN_S, run_in_own_process, sample_of_commit
from transaction_mutants import TRANSACTION_MUTANTS

from barnabas.client import ClientError, TopicPartition
from barnabas.testing import VirtualCluster, simulate
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest
from simulation.scenarios.transaction_admin import CHORES
from simulation.scenarios.transaction_scenario import (
    TRANSACTION_FAULTS,
    TransactionPlan,
    run_transaction_seed,
    transaction_plan_of,
)

TESTS = str(Path(__file__).parents[1])
SEEDS = int(os.environ.get("BARNABAS_TRANSACTION_SEEDS", "40"))
SEEDS_A_TEST = 10
SAMPLE = 3


@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_A_TEST))
def test_simulated_transactions_keep_their_promises(first: int) -> None:
    """Nothing of an aborted transaction is seen, a transaction is seen whole or not at all, copies
    are exactly once."""
    failed: list[str] = []
    seen: Counter[str] = Counter()
    for seed in range(first, first + SEEDS_A_TEST):
        result = run_transaction_seed(seed)
        seen.update(result.counts)
        if result.violations:
            again = f"python tests/simulation/run.py --transactions --seeds {seed}"
            failed.append(f"{again}\n" + "\n".join(result.violations))
    assert not failed, "\n".join(failed)
    what = ("transactions committed", "transactions aborted", "producers that died", "zombies", "requests repeated")
    for name in (*what, "markers", "copies compared"):
        assert seen[name], f"no {name} in {SEEDS_A_TEST} runs: {dict(seen)}"


def test_late_ends_of_version_2_are_refused_under_load() -> None:
    """Most requests come again after seconds, and no transaction suffers."""
    plan = TransactionPlan(2, 1, 2, 20.0, (), 2.0, mean_pause_s=0.15, repeated_share=0.8, levels=(2,))
    result = run_transaction_seed(1, plan=plan)
    assert not result.violations, "\n".join(result.violations)
    assert result.counts["late ends refused"] > result.counts["transactions committed"] / 4


def test_batches_that_come_after_the_end_of_their_transaction_are_refused() -> None:
    """Most Produce requests of version 1 are held by the network, and come when their client has
    given them up."""
    plan = TransactionPlan(4, 0, 4, 20.0, (), 2.0, mean_pause_s=0.5, held_share=0.6)
    result = run_transaction_seed(1, plan=plan)
    assert not result.violations, "\n".join(result.violations)
    assert result.counts["requests held"] > result.counts["transactions committed"]


def test_compaction_and_deletion_leave_transactions_whole() -> None:
    """Originals are compacted and copies deleted meanwhile, and replicas move."""
    plan = TransactionPlan(2, 1, 2, 15.0, (), 2.0, mean_pause_s=0.15, brokers=4, chores=CHORES, is_compacted=True)
    result = run_transaction_seed(1, plan=plan)
    assert not result.violations, "\n".join(result.violations)
    for name in ("values compacted", "values deleted", *(f"admin: {chore}" for chore in CHORES)):
        assert result.counts.get(name), f"no {name}: {result.counts}"


def test_the_same_seed_gives_the_same_transactions_byte_for_byte() -> None:
    """Here and in another process with other hashes: every event at its microsecond."""
    seeds = (4, 6)
    here = [run_transaction_seed(seed).digest for seed in seeds]
    module = "simulation.scenarios.transaction_scenario"
    program = f"from {module} import run_transaction_seed; print([run_transaction_seed(s).digest for s in {seeds}])"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": TESTS}
    elsewhere = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert elsewhere.stdout.strip() == str(here)


def test_plans_of_transactions_are_varied() -> None:
    """All faults that leave the disks are drawn; every fifth run is calm."""
    plans = [transaction_plan_of(seed) for seed in range(1, 201)]
    assert sum(1 for plan in plans if not plan.faults) == 40
    assert {plan.copiers for plan in plans} == {0, 1, 2}
    assert {plan.producers for plan in plans} == {1, 2, 3}
    assert {plan.levels for plan in plans} == {(0,), (2,), (0, 2), (1, 2), (2, 0), (2, 1, 2)}
    assert {plan.repeated_share > 0 for plan in plans} == {True, False}
    assert {plan.brokers for plan in plans} == {3, 4}
    assert {plan.is_compacted for plan in plans} == {True, False}
    assert {chore for plan in plans for chore in plan.chores} == set(CHORES)
    assert {name for plan in plans for name in plan.faults} == set(TRANSACTION_FAULTS)


def test_in_version_1_a_late_end_of_a_transaction_ends_the_next_one() -> None:
    """The protocol cannot tell them apart (KIP-890): what the producer then aborts was committed,
    and it learns that."""

    async def scenario(cluster: VirtualCluster) -> tuple[list[str | None], str]:
        await cluster.create_topic("orders")
        producer = cluster.producer({"transactional.id": "till"})
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("orders", "tea")
        transactions = producer._transactions
        assert transactions is not None
        producer_id, epoch = transactions.identity
        late = EndTxnRequest(transactional_id="till", producer_id=producer_id, producer_epoch=epoch, committed=True)
        await producer.begin_transaction()
        await producer.send("orders", "coffee")
        coordinator = cluster.transaction_coordinator("till")
        assert coordinator is not None
        response = await cluster._link().channels().send(coordinator, late, version=4)
        assert response.error_code == 0
        with pytest.raises(ClientError) as found:
            await producer.abort_transaction()
        async with cluster.consumer({"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            return [record.value for record in await consumer.consume(10, 2.0)], found.value.name

    assert simulate(scenario, brokers=1).value == (["tea", "coffee"], "INVALID_TXN_STATE")


@pytest.mark.parametrize(("level", "seen"), [(0, ["tea", "coffee"]), (2, ["tea"])])
def test_a_late_end_tears_a_transaction_in_version_1_and_is_refused_in_version_2(level: int, seen: list[str]) -> None:
    """The next transaction is aborted; in version 1 its first record was committed by then."""

    async def scenario(cluster: VirtualCluster) -> tuple[list[str | None], int]:
        await cluster.create_topic("orders", 2)
        producer = cluster.producer({"transactional.id": "till"})
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", "tea", partition=0)
        transactions = producer._transactions
        assert transactions is not None
        producer_id, epoch = transactions.identity
        late = EndTxnRequest(transactional_id="till", producer_id=producer_id, producer_epoch=epoch, committed=True)
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send("orders", "coffee", partition=0)
        coordinator = cluster.transaction_coordinator("till")
        assert coordinator is not None
        response = await cluster._link().channels().send(coordinator, late, version=5 if level else 4)
        await producer.send("orders", "milk", partition=1)
        await producer.abort_transaction()
        async with cluster.consumer({"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition("orders", 0), TopicPartition("orders", 1)])
            return [record.value for record in await consumer.consume(10, 2.0)], response.error_code

    expected = ErrorCode.PRODUCER_FENCED if level else ErrorCode.NONE
    run = simulate(scenario, brokers=1, features={"transaction.version": level})
    assert run.value == (seen, expected)


def test_all_mutants_of_transactions_fit_the_code() -> None:
    """Where the code has moved on, the output says what is missing."""
    done = run_in_own_process(transaction_mutants.__file__, "--fit")
    assert sorted(done.stdout.splitlines()) == sorted(f"{mutant.__name__} fits" for mutant in TRANSACTION_MUTANTS)
    assert len(TRANSACTION_MUTANTS) >= 10
    assert done.returncode == 0


@pytest.mark.timeout(WHEN_ALL_SEEDS_RUN_S)
@pytest.mark.parametrize("mutant", sample_of_commit(TRANSACTION_MUTANTS, SAMPLE), ids=lambda mutant: mutant.__name__)
def test_a_mutant_of_transactions_of_this_commits_sample_is_noticed(mutant: Callable[[], None]) -> None:
    """One of the seeds that can show the defect does."""
    done = run_in_own_process(transaction_mutants.__file__, "--here", mutant.__name__)
    assert done.returncode == 0, done.stdout
