"""The plugin by its earlier name, for ``-p barnabas.testing.pytest_plugin`` and ``pytest_plugins``; see `pytest_barnabas`."""

from pytest_barnabas import (
    barnabas_cluster,
    barnabas_flow,
    barnabas_session_cluster,
    barnabas_spark,
    pytest_configure,
)

__all__ = ["barnabas_cluster", "barnabas_flow", "barnabas_session_cluster", "barnabas_spark", "pytest_configure"]
