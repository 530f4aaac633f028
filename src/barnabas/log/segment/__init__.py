"""One segment of a log: the .log file with its offset, time and transaction index.

Kafka: LogSegment, OffsetIndex, TimeIndex, TransactionIndex.
"""
