"""What the proxy decides: values of records, error answers, consumer instances, links, settings.

Kafka has no counterpart; Confluent's are EmbeddedFormat, RecordSerializer, ConsumerInstanceConfig.
"""
