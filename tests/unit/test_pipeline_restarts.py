"""When a broken query starts again, without Spark."""

from barnabas.pipelines.running.restarts import Restarts, restarts_of, transient_fault

LATE = RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.")
DIED = RuntimeError("SparkException: Python worker exited unexpectedly (crashed)")


def test_faults_that_may_pass_differ_from_errors() -> None:
    """By what Spark says of them."""
    assert "did not start within 10 s" in str(transient_fault(None, LATE))
    assert "died" in str(transient_fault(DIED))
    killed = "Job aborted due to stage failure\nCaused by: java.net.SocketException: Connection reset\n\tat sun.nio.ch"
    assert "died" in str(transient_fault(RuntimeError(killed)))
    closed = "Job aborted due to stage failure\nCaused by: java.io.IOException: Stream closed\n\tat java.base/java.io"
    assert "died" in str(transient_fault(RuntimeError(closed)))
    assert "died" in str(transient_fault(RuntimeError("Stream closed\n=== Streaming Query ===")))
    planner = "Connection reset\n=== Streaming Query ===\nIdentifier: flow\nCurrent State: ACTIVE"
    assert "died" in str(transient_fault(RuntimeError(planner)))
    unread = (
        "Lost task 0.0 in stage 1.0 (TID 3) (localhost executor driver): java.io.OptionalDataException\n\tat java.base"
    )
    assert "could not read a task" in str(transient_fault(RuntimeError(unread)))
    assert transient_fault(RuntimeError("PostgreSQL: connection reset by peer")) is None
    assert transient_fault(RuntimeError("no"), None) is None


def test_an_error_that_quotes_what_spark_says_is_an_error() -> None:
    """A flow's own function, or a record, may hold any words."""
    own = "Traceback (most recent call last):\n  File \"u.py\"\nValueError: no 'java.io.IOException: Stream closed'"
    assert transient_fault(RuntimeError(f"org.apache.spark.api.python.PythonException: {own}")) is None
    assert transient_fault(RuntimeError("u.MyError: Python worker exited unexpectedly, it says")) is None
    record = "[CAST_INVALID_INPUT] The value 'java.io.OptionalDataException' of the type \"STRING\" cannot be cast"
    assert transient_fault(RuntimeError(record)) is None
    failed = "[STREAM_FAILED] Query [id = 7] terminated with exception: Python worker exited unexpectedly (crashed)"
    assert "died" in str(transient_fault(RuntimeError(failed)))
    called = "py4j.protocol.Py4JJavaError: org.apache.spark.SparkException: Python worker failed to connect back."
    assert "did not start" in str(transient_fault(RuntimeError(called)))


def test_a_late_worker_is_started_again_a_few_times_in_a_row() -> None:
    """A micro-batch in between begins a new row; other errors are final."""
    restarts = Restarts()
    assert not restarts.allows_another("flow", -1, RuntimeError("division by zero"), None)
    most = restarts_of(str(transient_fault(LATE)))
    assert [restarts.allows_another("flow", -1, LATE, None) for _ in range(most + 1)] == [True] * most + [False]
    restarts = Restarts()
    assert [restarts.allows_another("flow", batch, None, LATE) for batch in range(10)] == [True] * 10


def test_workers_that_die_end_the_flow_sooner_than_those_that_are_late() -> None:
    """A worker that dies each time will die again; a busy machine becomes less so."""
    restarts = Restarts()
    assert [restarts.allows_another("flow", -1, DIED) for _ in range(4)] == [True] * 3 + [False]
    assert restarts_of(str(transient_fault(DIED))) < restarts_of(str(transient_fault(LATE)))


def test_two_queries_that_break_in_turn_without_progress_are_not_started_for_ever() -> None:
    """What one query finished says nothing about another."""
    restarts = Restarts()
    allowed = [restarts.allows_another(query, batch, DIED) for query, batch in [("flow", 5), ("bad-rows", 2)] * 3]
    assert allowed[:4] == [True] * 4
    assert not allowed[-1]
