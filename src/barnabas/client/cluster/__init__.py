"""The brokers of a cluster as a tool asks them: any, the controller, a group's
coordinator, one, or each.

In Kafka: `KafkaAdminClient`, `AdminMetadataManager`, `AdminApiDriver`.
"""
