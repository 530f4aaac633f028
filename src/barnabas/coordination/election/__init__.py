"""Leader election among the members of an ensemble, through their election ports.

In ZooKeeper: `FastLeaderElection` and `QuorumCnxManager`.
"""
