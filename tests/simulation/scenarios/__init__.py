"""What simulated clusters go through: clients, faults and checks, drawn from a seed.

``python tests/simulation/run.py --seeds 1-50`` runs them. The simulated machines, disks and
networks are in `barnabas.testing.simulation`.
"""
