"""What requests about the cluster's own state do, one function each, over an `AdminConnection`.

Kafka has no counterpart; Confluent's are the resources of version 3, such as TopicsResource.
"""
