"""Spark on this machine or on a cluster: the session, its JVM, and the Python
processes that it starts.

Spark: SparkSubmit starts the JVM, PythonGatewayServer connects to it,
PythonWorkerFactory starts workers.
"""
