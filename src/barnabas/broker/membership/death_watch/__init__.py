"""Detects within a second that another broker's process died, long before its session expires.

Kafka has no counterpart: its controller waits for the end of the session (`BrokerChangeHandler`).
"""
