"""The program that opens the README runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing import Cluster

pytestmark = [pytest.mark.interop]
README = Path(__file__).parents[2] / "README.md"


def test_the_opening_program_prints_its_record(barnabas_cluster: Cluster, tmp_path: Path) -> None:
    """Only the port differs."""
    program = re.search(r"```python\n(from barnabas\.client .*?)```", README.read_text(), re.DOTALL)[1]
    path = tmp_path / "program.py"
    path.write_text(program.replace("localhost:9092", barnabas_cluster.bootstrap_servers))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "table-7 one espresso\n", done.stderr
