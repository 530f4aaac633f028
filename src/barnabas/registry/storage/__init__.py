"""The topic ``_schemas``, and the election of the instance that writes it.

In Confluent's registry: `KafkaStore`, and the package ``leaderelector.kafka``.
"""
