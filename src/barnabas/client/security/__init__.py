"""TLS and SASL on a connection to a broker.

In Kafka: `ChannelBuilders`, `SslFactory`, `SaslClientAuthenticator`; the package
`org.apache.kafka.common.security`.
"""
