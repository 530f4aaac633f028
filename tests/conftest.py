"""What holds for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes is the machine's affair: others may be using it.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

OURS_ALONE = {Path(__file__).parent / name for name in ("unit", "fuzz", "simulation")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other clients leave sockets to the garbage collector, which then complains in whatever test runs by then."""
    for item in items:
        if OURS_ALONE.isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
