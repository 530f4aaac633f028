"""Transaction log and snapshots, in Apache ZooKeeper's formats."""
