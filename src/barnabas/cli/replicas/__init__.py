"""The tools for replicas: where they are, which of them leads, how they move, whether they agree.

In Kafka: `ReassignPartitionsCommand`, `LeaderElectionCommand`, `LogDirsCommand`,
`ReplicaVerificationTool`.
"""
