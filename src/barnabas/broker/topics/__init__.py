"""Creation, growth and deletion of topics (Kafka's `ZkAdminManager` and `AdminZkClient`)."""
