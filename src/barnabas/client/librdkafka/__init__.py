"""What makes librdkafka behave as callers of a Python library expect: names kept, errors
raised, logs in plain words.

Kafka has no counterpart: `KafkaProducer` and `KafkaConsumer` do their own work.
"""
