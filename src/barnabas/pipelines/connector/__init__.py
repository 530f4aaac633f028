"""Spark's data source ``barnabas``: topics as batch and streaming DataFrames, and
rows as records of topics.

Kafka: Spark's connector. KafkaMicroBatchStream plans ranges of offsets, KafkaDataConsumer reads
one, KafkaDataWriter writes.
"""
