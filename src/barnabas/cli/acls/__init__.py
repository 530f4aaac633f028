"""The tool for access control lists.

In Kafka: `AclCommand`.
"""
