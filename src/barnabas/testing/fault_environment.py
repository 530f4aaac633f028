"""How a `ProcessCluster` gives a server its faults: by a variable of its environment.

It has a module of its own, so that servers without faults load nothing else of `barnabas.testing`.
"""

__all__ = ["FAULTS_ENVIRONMENT"]

FAULTS_ENVIRONMENT = "BARNABAS_TESTING_FAULTS"
"""Its value is the port of the `FaultLinks` and the key for a connection."""
