"""The faults of a server that a `barnabas.testing.ProcessCluster` started.

Any other server does not even load their code."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.testing.fault_environment import FAULTS_ENVIRONMENT

if TYPE_CHECKING:
    from barnabas.testing.process_faults import RemoteFaults

__all__ = ["faults_of_cluster"]


def faults_of_cluster(name_of: Callable[[], str]) -> "RemoteFaults | None":
    """The faults of this process; None unless a cluster with faults started it.

    ``name_of`` gives the server's name in that cluster.
    """
    if FAULTS_ENVIRONMENT not in os.environ:
        return None
    from barnabas.testing.process_faults import join_faults

    return join_faults(name_of())
