"""Primary-backup replication of partitions: roles, epochs, the in-sync set and the high watermark.

In Kafka: `ReplicaManager`, `Partition`, `ReplicaFetcherThread`,
`AlterPartitionManager`, `FetchSession`.
"""
