"""What tests inherit from where they are started: they see what users see."""

import os
import signal
import subprocess
import sys


def test_ci_has_no_variable_of_pythons() -> None:
    """PYTHONUNBUFFERED, for one, hides that a command keeps what it prints; ``.ci/run`` says what it leaves."""
    assert "CI" not in os.environ or [name for name in os.environ if name.startswith("PYTHON")] == []


def test_what_a_test_starts_ends_at_ctrl_c_and_ctrl_backslash() -> None:
    """Neither is ignored."""
    script = "import signal; print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGQUIT))"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown == f"{signal.default_int_handler} {signal.SIG_DFL}\n"


def test_so_it_does_where_the_tests_are_a_job_in_the_background_of_a_script() -> None:
    """A shell lets such a job ignore both."""
    test = f"{__file__}::{test_what_a_test_starts_ends_at_ctrl_c_and_ctrl_backslash.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    run = ["bash", "-c", "trap '' INT QUIT; exec \"$@\"", "bash", *command]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
