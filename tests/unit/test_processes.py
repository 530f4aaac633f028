"""Tasks in processes of their own: their steps, their errors, and their ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.processes import WorkerLostError, start_worker
from support.waiting import eventually


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_task_goes_on_step_by_step_in_another_process_and_ends_when_it_is_closed() -> None:
    """What it prints is no answer; what it raises is raised here, and it goes on after that."""
    worker = start_worker("support.counting_task", 2)
    first, pid = worker.step()
    with pytest.raises(FileNotFoundError) as raised:
        worker.step()
    assert (raised.value.errno, raised.value.filename) == (2, "/a/file")
    assert (first, worker.step()) == (1, (3, pid))
    assert pid != os.getpid()
    worker.close()
    eventually(lambda: not is_running(pid))


def test_a_process_that_is_killed_is_lost_and_so_is_one_that_cannot_begin() -> None:
    """The caller learns it at its next step, and may close it."""
    worker = start_worker("support.counting_task", 0)
    os.kill(worker.step()[1], signal.SIGKILL)
    with pytest.raises(WorkerLostError):
        worker.step()
    worker.close()
    worker = start_worker("support.no_such_task", 0)
    with pytest.raises(WorkerLostError):
        worker.step()
    worker.close()


def test_a_process_that_cannot_be_started_is_lost_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a program of Python, and with one that is not there."""
    for program in ("", "/no/such/python"):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(WorkerLostError):
            start_worker("support.counting_task", 0)


def test_a_worker_ends_with_the_process_that_asks_it() -> None:
    """Killed, so that it cannot say so."""
    script = (
        "import sys, time; from barnabas.base.processes import start_worker;"
        "print(start_worker('support.counting_task', 0).step()[1], flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {script}"], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    eventually(lambda: not is_running(pid))
