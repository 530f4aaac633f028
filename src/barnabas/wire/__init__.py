"""Kafka's and ZooKeeper's messages, record batches and compression: bytes to values
and back, without I/O."""
