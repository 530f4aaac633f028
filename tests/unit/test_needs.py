"""What happens to a test whose programs are not on the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.needs import missing, program

TESTS = Path(__file__).parents[1]


def run_without_programs(tmp_path: Path, **environment: str) -> str:
    """A test that needs kcat, on a machine that has nothing on its PATH."""
    command = [sys.executable, "-m", "pytest", TESTS / "interop" / "test_kcat.py", "-q", "-k", "metadata"]
    command += ["-p", "no:cacheprovider", "--basetemp", tmp_path / "base"]
    kept = {name: value for name, value in os.environ.items() if name != "BARNABAS_REQUIRE_REFERENCE"}
    done = subprocess.run(
        command,
        env=kept | {"PATH": str(tmp_path)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


def test_a_test_without_its_program_is_skipped_and_names_it(tmp_path: Path) -> None:
    """On a contributor's machine not everything is installed."""
    said = run_without_programs(tmp_path)
    assert "1 skipped" in said
    assert "needs kcat" in said


def test_with_the_switch_of_ci_a_skipped_test_fails_and_names_what_is_missing(tmp_path: Path) -> None:
    """Nothing is left out there unseen."""
    said = run_without_programs(tmp_path, BARNABAS_REQUIRE_REFERENCE="1")
    assert "1 error" in said
    assert "1 skipped" not in said
    assert "needs kcat" in said


def test_programs_are_found_on_the_path_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name that is neither a program nor a file of `support.needs` is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing(["kcat", "no-such-program"]) == ["kcat", "no-such-program"]
    (tmp_path / "kcat").touch(0o755)
    assert program("kcat") == str(tmp_path / "kcat")
    assert missing(["kcat", "no-such-program"]) == ["no-such-program"]
