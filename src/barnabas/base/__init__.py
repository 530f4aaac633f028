"""What every layer stands on: identifiers, settings, and the seams to files, time,
randomness and the network.

Nothing here knows Kafka's or ZooKeeper's protocols. The seams are small protocols with one real
implementation beside each; simulations bring their own.
"""
