"""``barnabas pipeline``: flows that are declared in files, run on Spark.

Kafka has no counterpart; the nearest is the command line of Kafka Connect, `ConnectStandalone`.
"""
