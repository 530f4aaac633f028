"""The pytest fixtures; registered by the package's ``pytest11`` entry point.

Every pytest run on a machine with this package loads this module, so it imports `barnabas` when a
test asks for a fixture.

pytest rewrites the assertions of each package of a distribution that has a plugin: it would parse
and compile all modules of `barnabas` in each run, if bytecode is not written
(PYTHONDONTWRITEBYTECODE), which took 3 to 4 seconds. pytest has no setting against it. So a finder
of modules stands before pytest's, and finds these packages as a run without pytest does, with the
bytecode that pip has made. Their assertions are for their developers.

Kafka has no counterpart.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.flows import FlowUnderTest

__all__ = ["barnabas_cluster", "barnabas_flow", "barnabas_session_cluster", "barnabas_spark", "pytest_configure"]

_MARK = "barnabas"
_PACKAGES = ("barnabas", "pyspark_barnabas")
_OPTIONS = (
    *("brokers", "settings", "data_dir", "racks", "zk_servers", "kafka_version", "security", "users", "acls"),
    *("record_acls", "features"),
)
_SECURITY_HINTS = dict.fromkeys(("security_protocol", "tls", "ssl", "sasl"), '; security="SASL_SSL" secures a cluster')


class _AsWithoutPytest:
    """Finds our packages before pytest's finder, which would have their assertions rewritten."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Python's own finder's answer for our modules.

        None leaves a module to the finders that follow."""
        return PathFinder.find_spec(name, path, target) if name.partition(".")[0] in _PACKAGES else None


if _AsWithoutPytest not in sys.meta_path:
    sys.meta_path.insert(0, _AsWithoutPytest)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark with the options of a test's cluster."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(brokers=1, settings=None, racks=0, zk_servers=1, kafka_version=None, security=None, users=None, "
        "acls=None, record_acls=False, features=None): options of the fixture barnabas_cluster",
    )


@pytest.fixture
def barnabas_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A cluster of one broker, new for each test.

    The mark ``barnabas`` of a test, class or module has other options."""
    from barnabas.base.hints import did_you_mean
    from barnabas.testing.cluster import Cluster

    options: dict[str, Any] = {}
    # The closest mark is the last, and counts.
    for mark in reversed(list(request.node.iter_markers(_MARK))):
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
    from barnabas.pipelines.spark.session import open_session

    session = open_session("tests", cores=2)
    yield session.spark
    session.close()


@pytest.fixture
def barnabas_flow(
    barnabas_spark: Any, barnabas_session_cluster: "Cluster", tmp_path: "Path"
) -> "Callable[[Any], FlowUnderTest]":
    """Makes of a flow, or its file, one that runs in the test:
    ``barnabas_flow("orders.toml").given(rows).run()``."""
    from barnabas.testing.flows import FlowUnderTest

    servers = barnabas_session_cluster.bootstrap_servers
    return lambda flow: FlowUnderTest(flow, barnabas_spark, servers, tmp_path)
