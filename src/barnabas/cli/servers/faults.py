"""The faults of a server that a `barnabas.testing.ProcessCluster` started.

Any other server does not even load their code."""

import os
from collections.abc import Callable
from typing import Any

from barnabas.testing.fault_environment import FAULTS_ENVIRONMENT

__all__ = ["parts_with_faults"]


def parts_with_faults(name_of: Callable[[], str]) -> dict[str, Any]:
    """The files, clock and network for a server's constructor.

    Nothing unless a cluster with faults started this process. ``name_of`` gives the
    server's name in that cluster.
    """
    if FAULTS_ENVIRONMENT not in os.environ:
        return {}
    from barnabas.testing.process_faults import join_faults

    faults = join_faults(name_of())
    return {"files": faults.files, "clock": faults.clock, "network": faults.network}
