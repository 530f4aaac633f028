"""What tests need beside Python: programs of others, which a machine may lack.

`needs` marks a test. Where something is missing, the test is skipped and says what; with
BARNABAS_REQUIRE_REFERENCE, as in CI, nothing is skipped: a skipped test fails, whatever the
reason (`tests/conftest.py`).
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

__all__ = [
    "APACHE",
    "CUSTOMERS",
    "ROOT",
    "SHARED",
    "fetch_reference",
    "fetching",
    "is_required",
    "missing",
    "needs",
    "needs_reference",
    "program",
]

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("BARNABAS_SHARED", ROOT.parent / "shared"))
APACHE = SHARED / "reference" / "apache"
CUSTOMERS = SHARED / "data" / "customers.csv"

_FILES = {"the reference systems (../shared/reference/apache)": APACHE, "../shared/data/customers.csv": CUSTOMERS}
_HEADERS = ("zookeeper/zookeeper.h",)
_PLUGINS = {"rsyslog's omkafka": "rsyslog/omkafka.so", "collectd's write_kafka": "collectd/write_kafka.so"}
_LIBRARY_DIRS = [*Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib"), Path("/usr/lib64")]
_INCLUDE_DIRS = [*filter(None, os.environ.get("CPATH", "").split(":")), "/usr/local/include", "/usr/include"]


def needs(*names: str) -> pytest.MarkDecorator:
    """Programs on the PATH, or files, C headers and plugins that are named in this module."""
    return pytest.mark.needs(*names)


needs_reference = needs("java", "mvn", "the reference systems (../shared/reference/apache)")
"""Apache Kafka and Apache ZooKeeper, which run on Java."""


def missing(names: Iterable[str]) -> list[str]:
    """Those that this machine does not have."""
    return [name for name in names if not _exists(name)]


def _exists(name: str) -> bool:
    if name in _FILES:
        return _FILES[name].exists()
    if name in _HEADERS:
        return any((Path(directory) / name).exists() for directory in _INCLUDE_DIRS)
    if name in _PLUGINS:
        return any((folder / _PLUGINS[name]).exists() for folder in _LIBRARY_DIRS)
    return program(name) is not None


def program(name: str) -> str | None:
    """The path of a program, or None. Debian keeps PostgreSQL's server programs off the PATH, and
    daemons off a user's."""
    found = shutil.which(name)
    elsewhere = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/sbin")]
    for folder in elsewhere if found is None else ():
        found = found or shutil.which(name, path=str(folder))
    return found


@contextlib.contextmanager
def fetching() -> Iterator[None]:
    """One process at a time brings jars: workers share Maven's repository and
    ~/.cache/reference."""
    folder = Path.home() / ".cache" / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def fetch_reference() -> None:
    """Bring Apache Kafka's jars, unless they are there: no worker uses those that
    another one is still writing."""
    with fetching():
        for version in ("3.9.1", "4.3.0"):
            subprocess.run([str(APACHE), "classpath", "--version", version], check=True, capture_output=True)


def is_required() -> bool:
    """Whether nothing may be missing."""
    return bool(os.environ.get("BARNABAS_REQUIRE_REFERENCE"))
