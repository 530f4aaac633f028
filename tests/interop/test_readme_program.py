"""The program that opens the README runs as it stands, and so does its first test."""

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


def test_the_first_test_passes(tmp_path: Path) -> None:
    """In a run of its own, in an empty folder."""
    program = re.search(
        r"```python\n(from barnabas\.client import [^`]*?def test_.*?)```", README.read_text(), re.DOTALL
    )[1]
    (tmp_path / "test_orders.py").write_text(program)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout
