"""The members of an ensemble, their roles and addresses, and which sets of them are a quorum.

In ZooKeeper: `QuorumPeerConfig`, `QuorumServer`, `QuorumVerifier`.
"""
