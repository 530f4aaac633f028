"""How far groups are behind, in records and in time, from samples of any Kafka cluster.

`values` is what others read, `judge` and `offset_times` decide, `tracker` keeps what was sampled,
`reader` asks the cluster.

In Kafka: `ConsumerGroupCommand` and `KafkaShareGroupCommand` for the records; Kafka has no
counterpart for the time and the state, Burrow, kminion and Kafka Lag Exporter have.
"""
