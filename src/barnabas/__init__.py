"""Barnabas: a distributed messaging platform that speaks Apache Kafka's and Apache
ZooKeeper's protocols."""

__version__ = "0.1.0"
__date__ = "2026-11-23"
"""The day of this version, which changes with it."""
