"""The pytest fixtures; registered by the package's ``pytest11`` entry point."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.base.hints import did_you_mean

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.flows import FlowUnderTest

__all__ = ["barnabas_cluster", "barnabas_flow", "barnabas_session_cluster", "barnabas_spark", "pytest_configure"]


_MARK = "barnabas"
_OPTIONS = ("brokers", "settings", "data_dir", "racks", "zk_servers", "kafka_version", "security", "users")
_SECURITY_HINTS = {"acls": "; brokers have no ACLs"} | dict.fromkeys(
    ("security_protocol", "tls", "ssl", "sasl"), '; security="SASL_SSL" secures a cluster'
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark with the options of a test's cluster."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(brokers=1, settings=None, racks=0, zk_servers=1, kafka_version=None, security=None, users=None): "
        "options of the fixture barnabas_cluster",
    )


@pytest.fixture
def barnabas_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A cluster of one broker, new for each test; the mark ``barnabas`` of a test, class or module has other options."""
    from barnabas.testing.cluster import Cluster  # not before a test asks, see barnabas.testing

    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(_MARK))):  # the closest one is the last, and counts
        options |= mark.kwargs
    for name in options:
        if name not in _OPTIONS:
            hint = _SECURITY_HINTS.get(name) or did_you_mean(name, _OPTIONS)
            raise pytest.UsageError(f"the mark {_MARK} has no option {name}{hint}: there are {', '.join(_OPTIONS)}")
    with Cluster(**options) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def barnabas_session_cluster() -> "Iterator[Cluster]":
    """A cluster of one broker for the whole run; give topics and groups names of their own."""
    from barnabas.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def barnabas_spark() -> Iterator[Any]:
    """A Spark session on two cores for the whole run; needs the extra ``pipelines``."""
    from barnabas.pipelines.session import open_session

    session = open_session("tests", cores=2)
    yield session.spark
    session.close()


@pytest.fixture
def barnabas_flow(
    barnabas_spark: Any, barnabas_session_cluster: "Cluster", tmp_path: "Path"
) -> "Callable[[Any], FlowUnderTest]":
    """Makes of a flow, or its file, one that runs in the test: ``barnabas_flow("orders.toml").given(rows).run()``."""
    from barnabas.testing.flows import FlowUnderTest

    servers = barnabas_session_cluster.bootstrap_servers
    return lambda flow: FlowUnderTest(flow, barnabas_spark, servers, tmp_path)
