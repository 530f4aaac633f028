"""A whole cluster on this machine: ``up`` plans, starts and watches it, ``status``, ``logs``
and ``down`` are for it.

In Kafka: the nearest are `KafkaClusterTestKit` and the scripts of the quick start.
"""
