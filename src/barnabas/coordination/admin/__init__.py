"""The server for operators: the commands of the four-letter words as JSON over HTTP,
and metrics for Prometheus.

In ZooKeeper: the package org.apache.zookeeper.server.admin (JettyAdminServer, Commands) and
PrometheusMetricsProvider.
"""
