"""A simulated cluster for a user's own code: producers, consumers and faults in virtual
time, each run from its seed.

`barnabas.testing.simulate` runs a scenario; `barnabas.testing.virtual.cluster` is what the scenario
gets. The servers are those of `barnabas.testing.simulation`: the production code on a simulated
clock, network and disk.
"""
