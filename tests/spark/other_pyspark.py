"""Runs some tests of this folder on another version of PySpark: ``python tests/spark/other_pyspark.py 4.2.1 [TEST ...]``.

The version is installed into a temporary folder that goes before the environment's own (450 MB to download, so this is a trial
and not a part of CI). The exit status is pytest's.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TESTS = ("test_spark_source.py", "test_spark_quarantine.py", "test_spark_state.py")


def main(version: str, *tests: str) -> int:
    """The exit status."""
    with tempfile.TemporaryDirectory(prefix="barnabas-pyspark-") as folder:
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, f"pyspark=={version}"]
        subprocess.run([sys.executable, *install], check=True)
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        chosen = [str(HERE / each) for each in tests or TESTS]
        print(f"{', '.join(Path(each).name for each in chosen)} on PySpark {version}", flush=True)
        command = [sys.executable, "-m", "pytest", *chosen, "-q", "-p", "no:cacheprovider"]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
