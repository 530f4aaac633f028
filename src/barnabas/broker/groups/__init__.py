"""The group coordinator: members of classic consumer groups, and committed offsets.

A group lives on the broker that leads its partition of ``__consumer_offsets``. `GroupCoordinator`
decides: a request or a timer yields effects (`Reply`, `Replies`, `Append`). Once the records of an
append are committed, they change durable state through the same code that loads a partition.
`service` is the edge, which performs the effects.

In Kafka: the package `kafka.coordinator.group` (`GroupCoordinator`,
`GroupMetadataManager`, `GroupMetadata`).
"""
