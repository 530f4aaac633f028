"""The state and the rules of a coordination server: tree, sessions, watches, quotas,
and the way of a request.

In ZooKeeper: `DataTree`, `SessionTracker`, `WatchManager`, `PrepRequestProcessor`,
`FinalRequestProcessor`.
"""
