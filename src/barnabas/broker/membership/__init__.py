"""How a broker joins the cluster, stays registered, and leaves (Kafka's `KafkaServer` registration and shutdown)."""
