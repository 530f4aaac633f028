"""The packages that pipelines need: those of the extras ``pipelines`` and ``outputs``."""

import importlib.metadata
import importlib.util

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import install_command

__all__ = ["PYSPARK_VERSIONS", "MissingExtraError", "require_extra", "require_outputs"]

PYSPARK_VERSIONS = ("4.2", "4.3")


class MissingExtraError(BarnabasError):
    """The packages of an extra are not installed."""


def require_extra() -> None:
    """Raises `MissingExtraError` that names the first missing or unfit package and the
    command that installs it."""
    for name in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(f"pipelines need {name}, which is not installed: {install_command('pipelines')}")
    found = importlib.metadata.version("pyspark")
    if not found.startswith(tuple(f"{each}." for each in PYSPARK_VERSIONS)):
        raise MissingExtraError(
            f"pipelines run on PySpark {' and '.join(PYSPARK_VERSIONS)}; {found} is installed: {install_command('pipelines')}"
        )


def require_outputs(*names: str) -> None:
    """Raises `MissingExtraError` that names the first missing package and the
    command that installs it."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(f"this needs {name}, which is not installed: {install_command('outputs')}")
