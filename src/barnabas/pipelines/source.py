"""The data source ``barnabas`` for sessions that were made elsewhere.

spark.dataSource.register(BarnabasDataSource)
"""

from barnabas.pipelines.connector.data_source import BarnabasDataSource

__all__ = ["BarnabasDataSource"]
