"""A Kafka broker in ZooKeeper mode (Kafka's `KafkaServer`): a folder for each subsystem,
named as Kafka names it.

`server` starts and stops the broker, `assembly` makes its components and subscribes them to each
other, `requests` takes requests in, and `apis` has one module for each API key.
"""
