"""Record batches of magic 2: the header, records, control records, varints and compression codecs.

Kafka: the package ``org.apache.kafka.common.record``.
"""
