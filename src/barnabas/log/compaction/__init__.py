"""Compaction: of each key only the newest record stays.

Kafka: Cleaner, LogCleanerManager, SkimpyOffsetMap."""
