"""When a broken query starts again, without Spark."""

from barnabas.pipelines.restarts import MAX_RESTARTS, Restarts, lost_worker

LATE = RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.")


def test_workers_that_died_and_workers_that_are_late_differ() -> None:
    """By what Spark says of them."""
    died = RuntimeError("SparkException: Python worker exited unexpectedly (crashed)")
    assert "did not start within 10 s" in str(lost_worker(None, LATE))
    assert "died" in str(lost_worker(died))
    killed = "Job aborted due to stage failure\nCaused by: java.net.SocketException: Connection reset\n\tat sun.nio.ch"
    assert "died" in str(lost_worker(RuntimeError(killed)))
    assert lost_worker(RuntimeError("PostgreSQL: connection reset by peer")) is None
    assert lost_worker(RuntimeError("no"), None) is None


def test_a_late_worker_is_started_again_a_few_times_in_a_row() -> None:
    """A micro-batch in between begins a new row; other errors are final."""
    restarts = Restarts()
    assert not restarts.allows_another("flow", -1, RuntimeError("division by zero"), None)
    assert [restarts.allows_another("flow", -1, LATE, None) for _ in range(MAX_RESTARTS + 1)] == [
        True
    ] * MAX_RESTARTS + [False]
    restarts = Restarts()
    assert [restarts.allows_another("flow", batch, None, LATE) for batch in range(10)] == [True] * 10


def test_two_queries_that_break_in_turn_without_progress_are_not_started_for_ever() -> None:
    """What one query finished says nothing about another."""
    restarts = Restarts()
    allowed = [restarts.allows_another(query, batch, LATE) for query, batch in [("flow", 5), ("bad-rows", 2)] * 3]
    assert allowed[:4] == [True] * 4
    assert not allowed[-1]
