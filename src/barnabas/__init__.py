"""Barnabas: a distributed messaging platform that speaks Apache Kafka's and Apache ZooKeeper's protocols."""

__version__ = "0.1.0"
