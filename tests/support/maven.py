"""Programs in Java and their jars, which Maven brings once, into ~/.cache/reference."""

import subprocess
from pathlib import Path

import pytest

from support.needs import fetching

__all__ = ["QUICK", "compiled", "jars"]

QUICK = ("-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that runs for a short time, beside others."""

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


def compiled(program: Path, folder: Path, directory: Path) -> str:
    """The class path with the program, which frameworks want as files."""
    subprocess.run(["javac", "-cp", f"{folder}/*", "-d", directory / "classes", program], timeout=120, check=True)
    return f"{directory}/classes:{folder}/*"
