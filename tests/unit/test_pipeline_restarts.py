"""When a broken query starts again, without Spark."""

from barnabas.pipelines.restarts import Restarts, lost_worker, restarts_of

LATE = RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.")
DIED = RuntimeError("SparkException: Python worker exited unexpectedly (crashed)")


def test_workers_that_died_and_workers_that_are_late_differ() -> None:
    """By what Spark says of them."""
    assert "did not start within 10 s" in str(lost_worker(None, LATE))
    assert "died" in str(lost_worker(DIED))
    killed = "Job aborted due to stage failure\nCaused by: java.net.SocketException: Connection reset\n\tat sun.nio.ch"
    assert "died" in str(lost_worker(RuntimeError(killed)))
    planner = "Connection reset\n=== Streaming Query ===\nIdentifier: flow\nCurrent State: ACTIVE"
    assert "died" in str(lost_worker(RuntimeError(planner)))
    assert lost_worker(RuntimeError("PostgreSQL: connection reset by peer")) is None
    assert lost_worker(RuntimeError("no"), None) is None


def test_a_late_worker_is_started_again_a_few_times_in_a_row() -> None:
    """A micro-batch in between begins a new row; other errors are final."""
    restarts = Restarts()
    assert not restarts.allows_another("flow", -1, RuntimeError("division by zero"), None)
    most = restarts_of(str(lost_worker(LATE)))
    assert [restarts.allows_another("flow", -1, LATE, None) for _ in range(most + 1)] == [True] * most + [False]
    restarts = Restarts()
    assert [restarts.allows_another("flow", batch, None, LATE) for batch in range(10)] == [True] * 10


def test_workers_that_die_end_the_flow_sooner_than_those_that_are_late() -> None:
    """A worker that dies each time will die again; a busy machine becomes less so."""
    restarts = Restarts()
    assert [restarts.allows_another("flow", -1, DIED) for _ in range(4)] == [True] * 3 + [False]
    assert restarts_of(str(lost_worker(DIED))) < restarts_of(str(lost_worker(LATE)))


def test_two_queries_that_break_in_turn_without_progress_are_not_started_for_ever() -> None:
    """What one query finished says nothing about another."""
    restarts = Restarts()
    allowed = [restarts.allows_another(query, batch, DIED) for query, batch in [("flow", 5), ("bad-rows", 2)] * 3]
    assert allowed[:4] == [True] * 4
    assert not allowed[-1]
