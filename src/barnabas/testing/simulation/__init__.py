"""Whole clusters of the production code on a seeded event loop, with virtual time, network and disk.

The same seed gives the same run, byte for byte. ``python -m barnabas.testing.simulation --seeds 1-200`` runs some;
see `barnabas.testing.simulation.simulation` for how a run is made, and `barnabas.testing.simulation.checks` for what
must hold after it.
"""
