"""How a broker joins the cluster, stays registered, watches others and leaves (in
Kafka: part of `KafkaServer`)."""
