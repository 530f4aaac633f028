"""The commands that run until they are stopped, a broker, a coordination server or a mirror, and
those that stop servers.

In Kafka: `Kafka`, `MirrorMaker`. In ZooKeeper: `ZooKeeperServerMain`, `QuorumPeerMain`.
"""
