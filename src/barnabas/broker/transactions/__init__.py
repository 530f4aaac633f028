"""Producer ids in blocks of a thousand (Kafka's `ProducerIdManager`)."""
