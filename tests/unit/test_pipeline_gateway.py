"""How Spark's JVM is started, with a script in its place; the connection itself is tested with Spark."""

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from barnabas.pipelines.gateway import JvmEndedError, SparkJvm

SCRIPT = '#!/bin/sh\nprintf "<%s>" "$SPARK_HOME" "$JAVA_HOME" "$@"\nexit 3\n'


def test_a_jvm_that_ends_before_it_can_be_connected_to_is_reported_and_leaves_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings and the user's arguments are passed on; no environment variable stays."""
    script = tmp_path / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT)
    script.chmod(0o755)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name 'my flow' pyspark-shell")
    before = dict(os.environ)
    log = tmp_path / "log"
    with log.open("wb") as file:
        jvm = SparkJvm(tmp_path / "spark", {"spark.a": "b c"}, {"JAVA_HOME": "/java"}, file.fileno())
    with pytest.raises(JvmEndedError, match="ended with 3"):
        jvm.connect()
    assert not jvm.end()
    words = [str(tmp_path / "spark"), "/java", "--conf", "spark.a=b c", "--name", "my flow", "pyspark-shell"]
    assert log.read_text() == "".join(f"<{each}>" for each in words)
    assert dict(os.environ) == before
