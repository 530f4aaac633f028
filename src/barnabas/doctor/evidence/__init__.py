"""What was read of a cluster: frozen values, a class for each part.

A part that could not be read is an `Absent` with the reason; one that was read in part has gaps.

In Kafka: the answers to `Admin`'s describe methods.
"""
