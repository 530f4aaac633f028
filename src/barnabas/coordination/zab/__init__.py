"""Zab, the protocol by which the servers of an ensemble agree on one sequence of transactions.

`leader` and `learner` decide; `leader_server` and `learner_server` connect them with the
requests of clients. `service` does the I/O: it runs a server through election,
synchronization and broadcast.

In ZooKeeper: `Leader`, `LearnerHandler`, `Follower`, `Observer`, and `QuorumPeer` for the service.
"""
