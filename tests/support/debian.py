"""Programs of Debian's packages, unpacked into a folder: nothing is installed, and no service of
the machine is replaced or started.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from support.needs import fetching

__all__ = ["unpacked"]

_LIMIT_S = 120


def unpacked(name: str, *packages: str) -> Path:
    """The folder with the files of packages, in ~/.cache/reference/debian.

    Without ``apt-get``, or without its lists, there is nothing to try."""
    folder = Path.home() / ".cache" / "reference" / "debian" / name
    with fetching():
        if not (folder / "complete").exists():
            if shutil.which("apt-get") is None:
                pytest.skip("no apt-get")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            command = ["apt-get", "download", "-qq", *packages]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
            if done.returncode:
                pytest.skip(f"{' '.join(command)}: {done.stderr[-300:]}")
            for package in folder.glob("*.deb"):
                subprocess.run(["dpkg", "--extract", package, folder], timeout=_LIMIT_S, check=True)
            (folder / "complete").touch()
    return folder
