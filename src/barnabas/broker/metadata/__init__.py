"""A broker's metadata of the cluster, from UpdateMetadata (Kafka's `ZkMetadataCache`)."""
