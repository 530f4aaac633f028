"""The packages of the extra ``outputs``."""

import importlib.util

from barnabas.base.installation import install_command
from barnabas.pipelines.session import MissingExtraError

__all__ = ["require_outputs"]


def require_outputs(*names: str) -> None:
    """Raises `MissingExtraError` that names the first missing package and the command that installs it."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(f"this needs {name}, which is not installed: {install_command('outputs')}")
