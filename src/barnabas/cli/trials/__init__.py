"""The tools that try a cluster: how fast it is, and whether it loses records.

In Kafka: `ProducerPerformance`, `ConsumerPerformance`, `EndToEndLatency`,
`VerifiableProducer`, `VerifiableConsumer`.
"""
