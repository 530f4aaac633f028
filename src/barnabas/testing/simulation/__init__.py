"""Whole clusters of the production code on a seeded event loop, with virtual time,
network and disk.

The same seed gives the same run, byte for byte. See `barnabas.testing.simulation.simulation` for
how a run is made. What the project's own runs go through, and what must hold after them, is in
``tests/simulation/scenarios``.
"""
