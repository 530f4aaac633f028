"""Makes the format ``barnabas`` known to every Spark session of an environment where
Barnabas is installed.

Spark looks for packages named ``pyspark_*`` that have a ``DefaultSource`` and registers it, so that
``spark.readStream.format("barnabas")`` works without a call to ``spark.dataSource.register``.
"""

from barnabas.pipelines.connector.data_source import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
