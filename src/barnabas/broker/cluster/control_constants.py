"""Numbers in the controller's requests that both sides must know: it writes them,
every broker reads them.

In Kafka: `LeaderAndIsr` and `SecurityProtocol`.
"""

__all__ = ["EPOCH_DURING_DELETE", "LEADER_DURING_DELETE", "SECURITY_PROTOCOL_IDS"]

LEADER_DURING_DELETE = -2
"""The leader in UpdateMetadata of a partition whose topic is being deleted (Kafka's
`LeaderAndIsr.LeaderDuringDelete`)."""

EPOCH_DURING_DELETE = -2
"""The leader epoch in UpdateMetadata and StopReplica of such a partition
(`LeaderAndIsr.EpochDuringDelete`)."""

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""The ids of Kafka's `SecurityProtocol`."""
