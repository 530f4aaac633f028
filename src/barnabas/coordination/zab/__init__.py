"""Zab, the protocol by which the servers of an ensemble agree on one sequence of transactions.

`leader` and `learner` decide, `service` does the I/O: it runs a server through election, synchronisation and broadcast.

In ZooKeeper: `Leader`, `LearnerHandler`, `Follower`, `Observer`, and `QuorumPeer` for the service.
"""
