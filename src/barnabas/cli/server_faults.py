"""The faults of a server that a `barnabas.testing.ProcessCluster` started; any other server does not even load their code."""

import os
from typing import Any

__all__ = ["parts_with_faults"]


def parts_with_faults(name: str) -> dict[str, Any]:
    """The files, clock and network for a server's constructor; nothing unless a cluster with faults started this process."""
    if "BARNABAS_TESTING_FAULTS" not in os.environ:
        return {}
    from barnabas.testing.process_faults import join_faults

    faults = join_faults(name)
    return {"files": faults.files, "clock": faults.clock, "network": faults.network}
