"""The plugin as a user's pytest loads it: an installed distribution, whose packages
pytest would rewrite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.needs import ROOT

PACKAGES = ("barnabas", "pyspark_barnabas", "pytest_barnabas")
TEST = """
import sys

def loader(name):
    return type(sys.modules[name].__loader__).__name__

def test_one(barnabas_cluster):
    assert barnabas_cluster.bootstrap_servers
    ours = [name for name in sys.modules if name.partition(".")[0] == "barnabas"]
    assert len(ours) > 100
    rewritten = {name for name in ours if loader(name) == "AssertionRewritingHook"}
    package = {"barnabas", "barnabas.base", "barnabas.base.lazy_names", "barnabas.testing"}  # before the plugin runs
    assert rewritten <= package | {"barnabas.testing.pytest_plugin"}
    assert loader("test_one") == "AssertionRewritingHook"
"""
UNUSED = """
import sys

def test_one():
    assert not [name for name in sys.modules if name.partition(".")[0] == "barnabas"]
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of a distribution as pip lays it out; its files are links."""
    site = tmp_path / "site"
    info = site / "installed_barnabas-1.0.dist-info"
    info.mkdir(parents=True)
    for package in PACKAGES:
        (site / package).symlink_to(ROOT / "src" / package)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-barnabas\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pytest11]\npytest_barnabas = pytest_barnabas\n")
    (info / "RECORD").write_text("".join(f"{package}/__init__.py,,\n" for package in PACKAGES))
    return site


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder for a user's tests."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def run(site: Path, folder: Path, *options: str, **environment: str) -> str:
    """What pytest prints for the tests of a folder, where a warning is an error."""
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *options]
    settings = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("options", "conftest", "environment"),
    [
        ((), "", {}),
        ((), "from barnabas.testing import Cluster", {}),
        *(
            (options, conftest, environment)
            for name in ("pytest_barnabas", "barnabas.testing.pytest_plugin")
            for options, conftest in ((("-p", name), ""), ((), f"pytest_plugins = ['{name}']"))
            for environment in ({}, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
        ),
    ],
)
def test_modules_of_barnabas_are_imported_as_they_are_without_pytest(
    installed: Path, project: Path, options: tuple[str, ...], conftest: str, environment: dict[str, str]
) -> None:
    """Their bytecode is used, and no assertions are rewritten but the user's,
    however the plugin is loaded.

    By its longer name pytest imports it itself, with the two packages around it.
    """
    (project / "test_one.py").write_text(TEST)
    (project / "conftest.py").write_text(conftest)
    assert "1 passed" in run(installed, project, *options, **environment)


def test_a_run_without_the_fixtures_imports_nothing_of_barnabas(installed: Path, project: Path) -> None:
    """Every pytest run on the machine loads the plugin."""
    (project / "test_one.py").write_text(UNUSED)
    assert "1 passed" in run(installed, project)


def test_a_module_that_only_begins_like_ours_is_the_users(installed: Path, project: Path) -> None:
    """Its assertions are rewritten as ever."""
    (project / "barnabas_orders.py").write_text("def check(n):\n    assert n == 3\n")
    (project / "conftest.py").write_text("import pytest\npytest.register_assert_rewrite('barnabas_orders')\n")
    (project / "test_one.py").write_text(
        "import pytest, barnabas_orders\n\n"
        "def test_one(barnabas_cluster):\n"
        "    with pytest.raises(AssertionError, match='assert 2 == 3'):\n        barnabas_orders.check(2)\n"
    )
    assert "1 passed" in run(installed, project)
