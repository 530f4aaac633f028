"""The pytest fixtures; registered by the package's ``pytest11`` entry point."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster

__all__ = ["barnabas_cluster", "barnabas_session_cluster"]


@pytest.fixture
def barnabas_cluster() -> "Iterator[Cluster]":
    """A cluster of one broker, new for each test."""
    from barnabas.testing.cluster import Cluster  # not before a test asks, see barnabas.testing

    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def barnabas_session_cluster() -> "Iterator[Cluster]":
    """A cluster of one broker for the whole run; give topics and groups names of their own."""
    from barnabas.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster
