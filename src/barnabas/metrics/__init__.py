"""All metrics by their servers, and what is made of them: dashboards for Grafana, and alert rules
for Prometheus.

In Kafka: the page of its documentation on monitoring; the dashboards and rules that Strimzi and
others keep for it.
"""
