"""Apache Kafka's on-disk log: partition logs and log dirs, over `barnabas.base.files`.

Start at `partition_log.PartitionLog` (one replica) and `log_dirs.LogDirs` (all of a broker's); `settings.LogConfig` is a
topic's configuration. Everything is synchronous and for one thread; only `flushing.FlushTask.run` may run elsewhere.
"""
