"""The controller: the broker that decides who leads which partition, creates and deletes topics, and tells the others.

In Kafka: `KafkaController`.

`context` is what it knows, `elections` are its choices, `transitions`, `topic_deletion` and `decisions` turn
events into steps, and `service` performs the steps: znode reads and writes, and requests to brokers.

A step is a generator. It changes the `state.ControllerState` it was given, yields what must be read or written
(`steps.Step`), is resumed with the outcome, and puts requests for brokers into a `requests.RequestBatch`. So all
deciding code is synchronous, tests drive it over a dictionary of znodes, and a run can be cut at any yield, as a crash
or a lost session would cut it.
"""
