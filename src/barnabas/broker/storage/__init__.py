"""Background work on the logs: retention, cleaning, checkpoints, moves between log dirs.

In Kafka: the schedule of `LogManager`, `LogCleaner` and `ReplicaAlterLogDirsManager`.
"""
