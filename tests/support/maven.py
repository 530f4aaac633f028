"""Jars for programs in Java, which Maven brings once, into ~/.cache/reference."""

import subprocess
from pathlib import Path

import pytest

from support.needs import fetching

__all__ = ["jars"]

_LIMIT_S = 280


def jars(name: str, project: Path) -> Path:
    """The folder with what the project's pom.xml names, and all that this needs.

    ``name`` has the versions. Without a package registry there is nothing to try."""
    folder = Path.home() / ".cache" / "reference" / name
    with fetching():
        if not (folder / "complete").exists():
            command = ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), "dependency:copy-dependencies"]
            command += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
            if done.returncode:
                pytest.skip(f"{' '.join(command)} got no jars: {done.stdout[-300:]}{done.stderr[-300:]}")
            (folder / "complete").touch()
    return folder
