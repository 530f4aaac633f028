"""A schema registry that speaks the REST API of Confluent's, with its data in the topic
``_schemas`` in Confluent's format.

Kafka has no counterpart; Confluent's is the Schema Registry.
"""
