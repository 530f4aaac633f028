"""Apache Kafka's on-disk log: partition logs and log dirs, over `barnabas.base.files`.

Kafka: the packages kafka.log and org.apache.kafka.storage.internals.log.

Start at `partition_log.PartitionLog` (one replica) and `dirs.log_dirs.LogDirs` (all logs of a
broker); `settings.LogConfig` is a topic's configuration. Everything is synchronous and for one
thread; only `flushing.FlushTask.run` and the steps of a compaction may run elsewhere.
"""
