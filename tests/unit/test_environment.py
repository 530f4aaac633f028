"""What tests inherit from where they are started: they see what users see."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.skipif("CI" not in os.environ, reason="a developer's own environment may have such variables")
def test_ci_has_no_variable_of_pythons() -> None:
    """PYTHONUNBUFFERED, for one, hides that a command keeps what it prints;
    ``.ci/run`` says what it leaves."""
    at_the_start = Path("/proc/self/environ").read_bytes().split(b"\0")
    assert any(each.startswith(b"CI=") for each in at_the_start)
    assert [each for each in at_the_start if each.startswith(b"PYTHON")] == []


def test_what_a_test_starts_ends_at_ctrl_c_and_ctrl_backslash() -> None:
    """Neither is ignored."""
    script = "import signal; print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGQUIT))"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown == f"{signal.default_int_handler} {signal.SIG_DFL}\n"


def test_children_get_default_signals_when_the_run_is_a_background_job() -> None:
    """A shell lets such a job ignore both."""
    test = f"{__file__}::{test_what_a_test_starts_ends_at_ctrl_c_and_ctrl_backslash.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    run = ["bash", "-c", "trap '' INT QUIT; exec \"$@\"", "bash", *command]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout


def test_text_files_are_utf_8_whatever_the_machines_encoding_is() -> None:
    """Windows has another one, and so has a locale that is not UTF-8: each file that is read
    or written names its own."""
    unnamed = [
        f"{path.relative_to(SOURCE)}:{call.lineno}"
        for path in SOURCE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and _opens_text(call) and "encoding" not in {each.arg for each in call.keywords}
    ]
    assert unnamed == []


def _opens_text(call: ast.Call) -> bool:
    """By `open`, by `os.fdopen`, or by a path's methods; not by files of ours, which have bytes."""
    match call.func:
        case ast.Attribute(attr="write_text"):
            return True
        case ast.Attribute(attr="read_text"):
            return not call.args  # else it is of a distribution
        case ast.Name(id="open") | ast.Attribute(value=ast.Name(id="os"), attr="fdopen"):
            mode = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode")]
            return not (mode and isinstance(mode[0], ast.Constant) and "b" in mode[0].value)
    return False
