"""What a user sets up once: contexts, completion, and scripts with the names of Apache's.

Kafka has no counterpart but its scripts, which name classes such as `TopicCommand`.
"""
