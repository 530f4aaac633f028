"""The tools for the coordination service: its shell, the state of its servers, the
contents of its files.

In ZooKeeper: `ZooKeeperMain` and its `CliCommand` classes, `SnapshotFormatter`, `TxnLogToolkit`.
"""
