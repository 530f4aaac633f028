"""Static and dynamic configuration of brokers and topics (Kafka's `KafkaConfig` and
`DynamicBrokerConfig`).

`definitions` has the settings of a broker, `broker_config` their values now. A change of a dynamic
one begins in `config_admin`, whose docstring follows it through the other modules.
"""
