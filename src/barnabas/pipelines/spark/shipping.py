"""What a Spark cluster gets from this machine: our own code. Needs no Spark.

Executors run on other machines with a Python environment of their own at the same path. Packages
with compiled code (pyarrow, confluent-kafka) must be installed there; our own code goes with each
flow, so it is of the version that planned it.
"""

import zipfile
from pathlib import Path

import barnabas

__all__ = ["zip_package"]


def zip_package(folder: Path) -> Path:
    """Our package as a zip in a folder, as ``--py-files`` takes it."""
    root = Path(barnabas.__file__).parent
    path = folder / "barnabas.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted(root.rglob("*.py")):
            archive.write(each, each.relative_to(root.parent))
    return path
