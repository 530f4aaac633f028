"""From which value on a figure counts as wrong, for alert rules, dashboards and the doctor alike.

In ZooKeeper: ``fsync.warningthresholdms`` is such a threshold. Kafka's documentation names metrics
to watch, and no values.
"""

__all__ = ["DISK_FILLING", "DISK_NEARLY_FULL", "MANY_OUTSTANDING_REQUESTS", "SLOW_FSYNC_MS"]

DISK_NEARLY_FULL = 0.05
"""The share of a log dir's disk that is left when it counts as full."""
DISK_FILLING = 0.15
"""The share that is left when it is time to act."""
MANY_OUTSTANDING_REQUESTS = 100
"""Requests to a coordination server that have no answer yet."""
SLOW_FSYNC_MS = 100
"""The average above which ZooKeeper's guide calls a log device slow; single ones are counted by
fsync.warningthresholdms."""
