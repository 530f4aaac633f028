"""The tool for configurations of topics and brokers, quotas, and SCRAM credentials.

In Kafka: `ConfigCommand`.
"""
