"""The tools for transactions, and for the levels of features that they depend on.

In Kafka: `TransactionsCommand` and `FeatureCommand`.
"""
