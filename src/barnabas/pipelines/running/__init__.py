"""A run of a flow: the queries, the micro-batches that go to outputs, signals, and
starts after a fault.

Spark: MicroBatchExecution runs a query, ForeachBatchSink gets its micro-batches.
"""
