"""A cluster with a REST proxy and a registry for each module, and a topic for each test."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from barnabas.client import Admin
from barnabas.testing import Cluster

if TYPE_CHECKING:
    from support.rest_web import Web


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One broker, the proxy and the registry."""
    with Cluster(rest=True, registry=True, settings={"auto.create.topics.enable": "false"}) as made:
        yield made


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> "Web":
    """What asks its proxy."""
    from support.rest_web import Web

    return Web(cluster.rest.url)


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions, named after the test."""
    name = request.node.originalname[:200]
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topic(name, partitions=2)
    return name
