"""The notebook of examples/pipelines in a kernel of Jupyter's:
``python tests/spark/other_pyspark.py notebook``.

Jupyter's packages are not installed with Barnabas, so this is a trial. `test_spark_examples.py`
runs the same cells without them.
"""

import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

from support.needs import ROOT  # noqa: E402

EXAMPLES = ROOT / "examples" / "pipelines"


def test_the_notebook_runs_in_a_kernel(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts in the kernel; the last table of the stream has every view."""
    feed = [sys.executable, str(EXAMPLES / "feed.py"), "user-activity", "--bootstrap-server", cluster.bootstrap]
    subprocess.run([*feed, "--topic", "notebook", "--limit", "120"], check=True, timeout=200)
    monkeypatch.setenv("BOOTSTRAP_SERVERS", cluster.bootstrap)
    monkeypatch.setenv("TOPIC", "notebook")
    notebook = nbformat.read(EXAMPLES / "topics.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}})
    client.execute()
    shown = [
        str(output.get("data", {}).get("text/plain", ""))
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    ]
    assert sum("count" in text for text in shown) == 2
    assert "window_start" in shown[-1]
