"""The REST proxy: Confluent's REST API, versions 2 and 3, over this project's own clients, and
server-sent events for live reading.

Kafka has no counterpart; Confluent's is KafkaRestApplication.
"""
