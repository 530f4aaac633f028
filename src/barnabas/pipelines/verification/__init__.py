"""A flow's results computed once more from its topics, and compared with what its outputs hold.

Kafka: the ReplicaVerificationTool compares replicas in the same way.
"""
