"""The tools for the files in a broker's log dir.

In Kafka: `DumpLogSegments`.
"""
