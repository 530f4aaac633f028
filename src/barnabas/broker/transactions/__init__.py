"""The transaction coordinator, and producer ids for all producers.

A transactional id lives on the broker that leads its partition of ``__transaction_state``.
`TransactionCoordinator` decides: a request or a deadline yields effects. A transaction changes when
its record is committed. `service` is the edge, which appends records, sends markers and loads
partitions. `producer_ids` has the ids, in blocks of a thousand.

In Kafka: the package `kafka.coordinator.transaction` (`TransactionCoordinator`,
`TransactionStateManager`, `TransactionMarkerChannelManager`, `ProducerIdManager`).
"""
