"""The group coordinator: membership of classic consumer groups and their committed offsets.

A group lives on the broker that leads its partition of ``__consumer_offsets``. `GroupCoordinator` decides: a request
or a timer yields effects (`Reply`, `Append`), and what an append wrote changes durable state, through the same code
that loads a partition, once the records are committed. `service` is the edge: it performs the effects.
"""
