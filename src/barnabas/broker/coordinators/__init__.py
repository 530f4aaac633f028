"""What the coordinators of groups and of transactions have in common: the partitions of the topics
that they keep their state in, and their loading (Kafka's `CoordinatorLoader`)."""
