"""The view of ``barnabas top``: brokers, topics, groups, coordination, flows, mirrors and the
slowest requests of any Kafka cluster.

`reader` asks, `screen` shows, and all between is deciding code: `values` is what was read, `rates`
what changed since, `views` the tables, `navigation` what keys do.

In Kafka: no counterpart; `kafka-topics.sh`, `kafka-consumer-groups.sh` and the MBeans have the
parts. The well-known tools are `top`, k9s and kaskade.
"""
