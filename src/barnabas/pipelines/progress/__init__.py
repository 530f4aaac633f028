"""What a running flow reports: totals, lag, bad rows against their limits, and the
summary of a run.

Spark: StreamingQueryProgress and StreamingQueryListener.
"""
