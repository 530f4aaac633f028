"""Which cluster is read and written: options, offsets, and what the driver asks of the brokers.

Needs no Spark.

Kafka: Spark's connector has KafkaSourceProvider for the options and
KafkaOffsetReader for the questions.
"""
