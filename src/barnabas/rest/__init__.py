"""A REST proxy for a cluster: Confluent's API, versions 2 and 3.

Kafka has no counterpart; Confluent's is the REST Proxy.
"""
