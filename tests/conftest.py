"""What holds for all tests."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from support.class_archives import make_archives
from support.needs import fetch_reference, is_required, missing, needs_reference

# Other processes may use the machine too: an example may take long, and so may making it.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# For trials: CI has no time for it, and skips nothing.
collect_ignore = (
    []
    if os.environ.get("BARNABAS_LONG")
    else [
        "interop/test_acl_broker_rights.py",
        "interop/test_prometheus_scrapes.py",
        "interop/test_registry_apicurio.py",
    ]
)
LONGEST_FIRST = (
    "spark",
    "test_migration",
    "test_labs",
    "test_reassignment_apache",
    "test_mixed_cluster",
    "test_java_tools",
    "test_cli_admin_tools",
    "test_ensemble",
)
"""Parts of the suites that start other programs: with these first, two workers end
at about the same time."""
IGNORED_IN_THE_BACKGROUND = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL}
"""What a shell lets a script's job in the background ignore, and the handlers that the
job has in the foreground."""
OURS_ALONE = {Path(__file__).parent / name for name in ("unit", "fuzz", "simulation")}
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def pytest_configure() -> None:
    """Start as in the foreground: what a test starts inherits ignored signals, and
    would not end at Ctrl-C."""
    for number, handler in IGNORED_IN_THE_BACKGROUND.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other clients leave sockets to the garbage collector, which then complains in
    whatever test runs by then."""
    for item in items:
        if OURS_ALONE.isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
    rank = {group: place for place, group in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(_group(item.nodeid), len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With --dist loadfile, tests of a module share a worker, and so do all tests on
    Spark, with one session."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return Scheduling(config, log)


def _group(nodeid: str) -> str:
    path = PurePosixPath(nodeid.partition("::")[0])
    return "spark" if path.parent.name == "spark" else path.stem


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose programs are not on this machine."""
    names = dict.fromkeys(name for mark in item.iter_markers("needs") for name in mark.args)
    if lacking := missing(names):
        pytest.skip(f"needs {', '.join(lacking)}")
    if os.environ.get("PYTEST_XDIST_WORKER") and {*needs_reference.args} <= {*names}:
        fetch_reference()
        make_archives()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Fail what is skipped, where nothing may be missing."""
    return _required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """The same for a whole module."""
    return _required((yield))


def _required(report: Report) -> Report:
    if report.skipped and is_required() and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which BARNABAS_REQUIRE_REFERENCE forbids: {report.longrepr}"
    return report
