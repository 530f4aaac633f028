"""Metrics of a broker for Prometheus.

In Kafka: `KafkaMetricsGroup`, whose MBeans the Prometheus JMX exporter reads.
"""
