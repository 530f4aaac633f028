"""A session of Spark without the functions of Spark's machine learning, whose registration is a
tenth of a small flow's start.

Spark looks on its class path for extensions of sessions, and has one itself: three functions for
vectors, which Scala's reflection examines in a second of processor time. A session that is made
with its extensions given does not look for any.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["open_plain_session"]

_PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
_OWN_JAR = "/spark-mllib_"
_SETTING = "spark.sql.extensions"


def open_plain_session(context: "SparkContext") -> None:
    """Make the session that PySpark then finds, without extensions.

    Do nothing if there are others than Spark's own."""
    from py4j.protocol import Py4JError

    of_context: Any = context
    if of_context._conf.contains(_SETTING):
        return
    jvm: Any = of_context._jvm
    try:
        places = jvm.java.lang.Thread.currentThread().getContextClassLoader().getResources(_PROVIDERS)
        while places.hasMoreElements():
            if _OWN_JAR not in str(places.nextElement().toString()):
                return
        sql, none = jvm.org.apache.spark.sql, jvm.scala.Option.empty()
        nothing = jvm.PythonUtils.toScalaMap({})
        session = sql.classic.SparkSession(
            of_context._jsc.sc(), none, none, sql.SparkSessionExtensions(), nothing, nothing
        )
        sql.classic.SparkSession.setDefaultSession(session)
    except (Py4JError, TypeError):
        # Another version of Spark may lack this; then PySpark makes the session,
        # with its extensions.
        return
