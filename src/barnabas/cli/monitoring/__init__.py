"""What monitors need: the list of metrics, dashboards and alert rules.

In Kafka: the configuration files of `JmxReporter`'s readers that others keep for it.
"""
