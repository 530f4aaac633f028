"""How commands reach a cluster: properties, contexts, deadlines, and what they report
when not all brokers answer.

In Kafka: `CommandLineUtils.initializeBootstrapProperties`; contexts and deadlines
have no counterpart.
"""
