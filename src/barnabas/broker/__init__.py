"""A Kafka broker in ZooKeeper mode: controller, replication, groups, one module per API, and the server around them.

``server.py`` starts and stops it, ``dispatch.py`` takes requests in, ``node.py`` says what a handler can reach.
"""
