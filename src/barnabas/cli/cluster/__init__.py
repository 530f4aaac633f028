"""The tools for a cluster as a whole.

In Kafka: `ClusterTool`, `BrokerApiVersionsCommand`.
"""
