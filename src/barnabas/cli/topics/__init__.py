"""The tools for topics and the offsets of their partitions.

In Kafka: `TopicCommand`, `DeleteRecordsCommand`, `GetOffsetShell`.
"""
