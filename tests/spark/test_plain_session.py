"""Sessions without Spark's machine learning, made beside the one of all tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from barnabas.pipelines.spark.java_session import open_plain_session  # noqa: E402

PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"


@pytest.fixture
def sessions(spark: Any) -> Iterator[Any]:
    """Java's class of sessions; the default session is the one of all tests again afterwards."""
    kind = spark._jvm.org.apache.spark.sql.classic.SparkSession
    yield kind
    kind.setDefaultSession(spark._jsparkSession)


def is_new(spark: Any, sessions: Any) -> bool:
    """Whether another session than that of all tests is the default now."""
    return not sessions.getDefaultSession().get().equals(spark._jsparkSession)


def test_a_session_without_extensions_is_the_one_that_pyspark_finds(spark: Any, sessions: Any) -> None:
    """It has the context's settings, and runs queries."""
    open_plain_session(spark.sparkContext)
    assert is_new(spark, sessions)
    made = sessions.getDefaultSession().get()
    assert made.conf().get("spark.sql.session.timeZone") == "UTC"
    assert made.sql("select 1 + 1").collectAsList().toString() == "[[2]]"


def test_extensions_of_others_are_kept(spark: Any, sessions: Any, tmp_path: Path) -> None:
    """Named in a setting, or found on the class path: then PySpark makes the
    session, which loads them."""
    conf, java = spark.sparkContext._conf, spark._jvm.java
    conf.set("spark.sql.extensions", "org.example.Extensions")
    try:
        open_plain_session(spark.sparkContext)
    finally:
        conf._jconf.remove("spark.sql.extensions")
    assert not is_new(spark, sessions)
    provider = tmp_path / PROVIDERS
    provider.parent.mkdir(parents=True)
    provider.write_text("org.example.Extensions\n")
    thread = java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    places = spark.sparkContext._gateway.new_array(java.net.URL, 1)
    places[0] = java.io.File(str(tmp_path)).toURI().toURL()
    thread.setContextClassLoader(java.net.URLClassLoader(places, before))
    try:
        open_plain_session(spark.sparkContext)
    finally:
        java.lang.Thread.currentThread().setContextClassLoader(before)
    assert not is_new(spark, sessions)
