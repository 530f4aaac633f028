"""A coordination server: its settings, its four-letter words, and the edge that does its I/O.

In ZooKeeper: `ZooKeeperServer` and `NIOServerCnxn`.
"""
