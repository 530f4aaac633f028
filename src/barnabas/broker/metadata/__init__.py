"""What a broker knows of the cluster from UpdateMetadata (Kafka's `ZkMetadataCache`)."""
