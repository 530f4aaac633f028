"""How peers prove who they are, without I/O: SASL mechanisms, and the files that
hold their secrets.

In ZooKeeper: the SASL mechanisms of the JDK, ZooKeeperSaslServer, and JAAS login configurations.
"""
