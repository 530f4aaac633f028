"""One line for a person out of Spark's exceptions."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from barnabas.base.errors import ConfigError
from barnabas.pipelines.errors import PipelineError, reason_of, with_advice

WORKER = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "daemon.py", line 1, in manager
KeyError: 'x'
During handling of the above exception, another exception occurred:
Traceback (most recent call last):
  File "source.py", line 300, in _poll
barnabas.pipelines.connector.data_source.DataLossError: t-0 has no offset 5 any more: retention took it.

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
Caused by: java.lang.IllegalStateException: later
"""


def test_the_last_python_error_is_the_reason() -> None:
    """Ours comes without its class's name."""
    assert str(reason_of(RuntimeError(WORKER))) == "t-0 has no offset 5 any more: retention took it."


def test_an_error_of_any_class_of_ours_comes_without_its_name() -> None:
    """It is known by its module."""
    text = "Traceback (most recent call last):\nbarnabas.pipelines.cluster.kafka_cluster.MissingTopicError: topic t does not exist\n"
    assert str(reason_of(RuntimeError(text))) == "topic t does not exist"


FUNCTION = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/pyspark/worker.py", line 9, in main
    process()
  File "/home/ann/flows/orders.py", line 7, in ratio
    return 10 // (x - 2)
ZeroDivisionError: division by zero

"""


def test_an_error_in_a_function_of_the_flow_comes_with_its_line() -> None:
    """In a worker, in the driver where a sink waits for it, and in a function that
    takes batches."""
    expected = "ZeroDivisionError: division by zero (orders.py, line 7)"
    assert str(reason_of(RuntimeError(FUNCTION))) == expected
    assert str(reason_of(RuntimeError("boom"), RuntimeError(FUNCTION))) == expected
    try:
        {}["missing"]
    except KeyError as error:
        found = str(reason_of(RuntimeError("boom"), error))
    assert found.startswith("KeyError: 'missing' (test_pipeline_errors.py, line ")


def test_a_function_on_arrow_with_other_types_is_explained() -> None:
    """Spark names a method of a class of its own."""
    text = 'Cannot call the method "getInt" of the class "org.apache.spark.sql.vectorized.ArrowColumnVector$ArrowVectorAccessor".'
    for ours in (None, RuntimeError(text)):
        assert "another type than it declares: int is pa.int32()" in str(reason_of(RuntimeError(text), ours))


def test_an_error_of_our_own_in_the_driver_is_the_reason() -> None:
    """What a sink raised needs no search."""
    ours = ConfigError("table t is there already")
    assert reason_of(RuntimeError("[FOREACH_BATCH_USER_FUNCTION_ERROR] ..."), ours) is ours


def test_a_jvms_deepest_cause_is_the_reason() -> None:
    """When no Python is involved."""
    text = "boom\n\tat x\nCaused by: a.B: first\n\tat y\nCaused by: java.io.IOException: No space left on device\n"
    assert str(reason_of(RuntimeError(text))) == "No space left on device"


def test_no_text_of_py4j_is_ever_the_reason() -> None:
    """Its errors hold what the JVM threw, or nothing."""
    py4j = type("Py4JJavaError", (Exception,), {})
    call = "An error occurred while calling o3411.getResult."
    assert (
        str(reason_of(RuntimeError("boom"), py4j(f"{call}\n: a.b.SparkException: Job 3 cancelled\n\tat x")))
        == "Job 3 cancelled"
    )
    assert str(reason_of(RuntimeError("boom"), py4j(f"{call}\n: a.B: c\n\tat x\nCaused by: a.C: deeper"))) == "deeper"
    assert "run the flow again" in str(reason_of(RuntimeError("boom"), py4j(call)))


def test_an_analysis_error_is_reported_by_its_first_line() -> None:
    """The plan that follows is for Spark's authors."""
    text = "[UNRESOLVED_COLUMN] A column `x` cannot be resolved. Did you mean `y`?;\n'Project ['x]\n+- Relation"
    assert str(reason_of(RuntimeError(text))).startswith("[UNRESOLVED_COLUMN] A column `x` cannot be resolved")


def test_a_row_that_fails_an_expectation_is_reported_without_sparks_codes() -> None:
    """The text is ours; Spark puts a condition before it and a state after it."""
    cause = "[USER_RAISED_EXCEPTION] the expectation cheap is not met: a < 1; the row is {} SQLSTATE: P0001"
    text = f"boom\n\tat x\nCaused by: org.apache.spark.SparkRuntimeException: {cause}\n\tat y\n"
    expected = "the expectation cheap is not met: a < 1; the row is {}"
    assert str(reason_of(RuntimeError(text))) == expected
    assert str(reason_of(RuntimeError("boom"), RuntimeError(cause))) == expected
    assert str(reason_of(RuntimeError(cause))) == expected


def test_a_full_disk_comes_with_the_folders_to_look_at(tmp_path: Path) -> None:
    """And with what happens after; other errors stay as they are."""
    found = str(with_advice(PipelineError("IOException: No space left on device"), tmp_path))
    assert "No space left on device: free some for the checkpoint" in found
    assert str(tmp_path) in found
    assert "MiB free" in found
    assert "start the flow again" in found
    sinks = {"sqlite table t": tmp_path / "not there" / "out.db"}
    assert f"or sqlite table t ({sinks['sqlite table t']}: " in str(
        with_advice(PipelineError("disk is full: No space left on device"), tmp_path, sinks)
    )
    other = PipelineError("no topic")
    assert with_advice(other, tmp_path) is other
