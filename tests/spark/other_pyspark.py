"""Runs some tests of this folder with other packages:
``python tests/spark/other_pyspark.py 4.2.1|connect|polars|notebook|connector [TEST ...]``.

A version is one of PySpark; ``connect`` adds what Spark Connect and declarative pipelines need,
``polars`` adds Polars, which reads the lake tables, ``notebook`` a kernel of Jupyter's;
``connector`` brings the jars of Spark's own Kafka connector into Maven's repository instead. The
packages are installed into a temporary folder that goes before the environment's own (PySpark is
450 MB to download, so this is a trial and not a part of CI). The exit status is pytest's.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TESTS = ("test_spark_source.py", "test_spark_quarantine.py", "test_spark_state.py")
MORE = {
    "connect": (
        ("grpcio", "grpcio-status", "googleapis-common-protos", "pyyaml", "zstandard"),
        "test_spark_connect.py",
    ),
    "polars": (("polars",), "test_lake_readers.py"),
    "notebook": (("nbclient", "ipykernel"), "test_notebook_kernel.py"),
}


def main(what: str, *tests: str) -> int:
    """The exit status."""
    if what == "connector":
        sys.path.insert(0, str(HERE.parent))
        from support.connector import fetch_connector

        fetch_connector()
        command = [
            sys.executable,
            "-m",
            "pytest",
            str(HERE / "test_spark_connector.py"),
            "-q",
            "-p",
            "no:cacheprovider",
        ]
        return subprocess.run(command, check=False).returncode
    packages: tuple[str, ...] = (f"pyspark=={what}",)
    usual, options = TESTS, ("--no-deps",)
    if what in MORE:
        packages, test = MORE[what]
        usual, options = (test,), ()
    with tempfile.TemporaryDirectory(prefix="barnabas-pyspark-") as folder:
        install = ["-m", "pip", "install", "--quiet", *options, "--target", folder, *packages]
        subprocess.run([sys.executable, *install], check=True)
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        chosen = [str(HERE / each) for each in tests or usual]
        print(f"{', '.join(Path(each).name for each in chosen)} with {', '.join(packages)}", flush=True)
        command = [sys.executable, "-m", "pytest", *chosen, "-q", "-p", "no:cacheprovider"]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
