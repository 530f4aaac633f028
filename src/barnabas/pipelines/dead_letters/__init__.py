"""Bad rows and their topics: dead letters, micro-batches that are put aside, and
records that are sent again.

Kafka: Connect's DeadLetterQueueReporter. Spark: DropMalformedMode and FailFastMode
are the other ways.
"""
