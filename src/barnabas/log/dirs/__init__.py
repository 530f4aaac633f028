"""All log dirs of a broker: their locks, checkpoints, partitions, and replicas that
move between them.

Kafka: LogManager.
"""
