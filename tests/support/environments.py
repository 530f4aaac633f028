"""Environments for Python programs of others, which `make` builds from lock files."""

import re
import subprocess
import tarfile
from functools import cache
from pathlib import Path

import pytest

from support.needs import ROOT

__all__ = ["python_of", "source_of"]

_LIMIT_S = 560


@cache
def python_of(name: str) -> Path:
    """The interpreter of an environment, which is made at the first need: `frameworks`,
    `systems`, `patroni`, `kaskade`.

    Without a package registry there is nothing to try."""
    folder = Path("build") / name
    command = ["make", str(folder / "installed")]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if made.returncode:
        pytest.skip(f"{' '.join(command)}: {made.stderr[-300:]}")
    return ROOT / folder / "bin" / "python"


def source_of(package: str, name: str, directory: Path) -> Path:
    """The source distribution of a package of an environment, as its lock file pins it, unpacked.

    It has the package's own tests, which wheels leave out."""
    lock = (ROOT / "tests" / "other_languages" / "python" / f"{name}.lock").read_text()
    pinned = re.search(rf"^{package}(\[[^]]*\])?(?P<pin>==.*(\n    --hash.*)+)", lock, re.MULTILINE)
    (directory / "source.lock").write_text(f"{package}{pinned['pin']}\n")
    command = [python_of(name), "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package]
    command += ["--require-hashes", "-r", directory / "source.lock", "-d", directory]
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if fetched.returncode:
        pytest.skip(f"no source of {package}: {fetched.stderr[-300:]}")
    (archive,) = directory.glob(f"{package}-*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(directory, filter="data")
    return directory / archive.name.removesuffix(".tar.gz")
