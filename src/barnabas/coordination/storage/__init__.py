"""Transaction log and snapshots, in Apache ZooKeeper's formats.

In ZooKeeper: `FileTxnLog`, `FileSnap` and `FileTxnSnapLog`.
"""
