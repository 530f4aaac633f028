"""The controller: the broker that elects leaders, and creates and deletes topics for all.

In Kafka: `KafkaController`.

`context` is what it knows. `broker_change`, `topic_change`, `isr_change`, `reassignment`,
`replica_leader_election` and `failover` decide what follows from each event;
`partition_state_machine`, `replica_state_machine` and `topic_deletion` carry it out. `event_queue`
holds the events, `controller_election` decides who is controller, and `service` performs.

Decisions are generators of `cluster.steps`. A decision changes the `ControllerContext` that it is
given, yields what must be read or written, is resumed with the outcome, and puts requests for
brokers into a `RequestBatch`. So all deciding code is synchronous, tests drive it over a dictionary
of znodes, and a run can be cut at any yield, as a crash or a lost session would cut it.
"""
