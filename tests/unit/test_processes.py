"""Tasks in processes of their own: their steps, their errors, and their ends."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.processes import NoWorkerError, WorkerLostError, WorkerProcesses
from support.counting_task import DIES
from support.waiting import eventually


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def workers() -> Iterator[WorkerProcesses]:
    processes = WorkerProcesses()
    yield processes
    processes.close()


def test_a_task_goes_on_step_by_step_in_another_process_and_ends_when_it_is_closed(workers: WorkerProcesses) -> None:
    """What it prints is no answer; what it raises is raised here, and it goes on after that."""
    worker = workers.start("support.counting_task", 2)
    first, pid = worker.step()
    with pytest.raises(FileNotFoundError) as raised:
        worker.step()
    assert (raised.value.errno, raised.value.filename) == (2, "/a/file")
    assert (first, worker.step()) == (1, (3, pid))
    assert pid != os.getpid()
    worker.close()
    eventually(lambda: not is_running(pid))


def test_a_process_that_is_killed_is_lost_and_so_is_one_that_cannot_begin(workers: WorkerProcesses) -> None:
    """The caller learns it at its next step, and may close it."""
    worker = workers.start("support.counting_task", 0)
    os.kill(worker.step()[1], signal.SIGKILL)
    with pytest.raises(WorkerLostError):
        worker.step()
    worker.close()
    worker = workers.start("support.no_such_task", 0)
    with pytest.raises(NoWorkerError):
        worker.step()
    worker.close()


def test_a_process_that_dies_of_its_first_step_could_be_started(workers: WorkerProcesses) -> None:
    """What it died of is the task's, and would reach this process if the task were
    done here instead."""
    worker = workers.start("support.counting_task", DIES)
    with pytest.raises(WorkerLostError) as raised:
        worker.step()
    assert not isinstance(raised.value, NoWorkerError)
    worker.close()


def test_a_process_whose_task_never_took_a_step_gets_no_other(workers: WorkerProcesses) -> None:
    """What it says of the beginning of the one task is not taken for an answer of the next."""
    workers.start("support.counting_task", 0).finish()
    worker = workers.start("support.counting_task", 4)
    assert worker.step()[0] == 1
    worker.close()


def test_a_process_that_cannot_be_started_is_lost_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a program of Python, and with one that is not there."""
    for program in ("", "/no/such/python"):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(NoWorkerError):
            WorkerProcesses().start("support.counting_task", 0)


def test_a_process_whose_task_is_over_gets_the_next_one(workers: WorkerProcesses) -> None:
    """Not one whose task was closed, nor one that was killed meanwhile; two tasks at a
    time have two processes."""
    worker = workers.start("support.counting_task", 0)
    _, pid = worker.step()
    worker.finish()
    worker.close()
    worker = workers.start("support.counting_task", 0)
    assert worker.step() == (1, pid)
    other = workers.start("support.counting_task", 0)
    other_pid = other.step()[1]
    assert other_pid != pid
    other.close()
    eventually(lambda: not is_running(other_pid))
    worker.finish()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_running(pid))
    worker = workers.start("support.counting_task", 0)
    _, next_pid = worker.step()
    assert next_pid not in (pid, other_pid)
    workers.close()
    assert worker.step() == (2, next_pid)
    worker.finish()
    eventually(lambda: not is_running(next_pid))


def test_a_process_without_a_task_ends_after_a_while_and_with_its_owner() -> None:
    """The memory of one is no price for a compaction an hour."""
    workers = WorkerProcesses(idle_s=0.01)
    worker = workers.start("support.counting_task", 0)
    pids = [worker.step()[1]]
    worker.finish()
    eventually(lambda: not is_running(pids[0]))
    workers = WorkerProcesses()
    worker = workers.start("support.counting_task", 0)
    pids.append(worker.step()[1])
    worker.finish()
    workers.close()
    eventually(lambda: not is_running(pids[1]))


def test_a_task_that_stands_still_is_lost_some_time_after_its_owner_is_closed() -> None:
    """Its process is stopped by a signal in the middle of its task: the step that
    waits for it comes to an end."""
    workers = WorkerProcesses(grace_s=0.01)
    worker = workers.start("support.counting_task", 0)
    _, pid = worker.step()
    os.kill(pid, signal.SIGSTOP)
    ended: list[BaseException] = []

    def step() -> None:
        try:
            worker.step()
        except WorkerLostError as error:
            ended.append(error)

    waiting = threading.Thread(target=step, daemon=True)
    waiting.start()
    workers.close()
    waiting.join(30)
    assert len(ended) == 1
    eventually(lambda: not is_running(pid))
    worker.close()


def test_a_task_that_begins_after_its_owner_is_closed_and_stands_still_is_lost_too() -> None:
    """A thread may be about to start it while the owner is closed."""
    workers = WorkerProcesses(grace_s=0.01)
    workers.close()
    worker = workers.start("support.counting_task", 0)
    lost: list[BaseException] = []

    def steps() -> None:
        try:
            while True:
                worker.step()
        except WorkerLostError as error:
            lost.append(error)

    waiting = threading.Thread(target=steps, daemon=True)
    waiting.start()
    waiting.join(30)
    assert len(lost) == 1
    worker.close()


@pytest.mark.parametrize("is_idle", [False, True])
def test_a_worker_ends_with_the_process_that_asks_it(*, is_idle: bool) -> None:
    """Killed, so that it cannot say so; with a task, and waiting for one."""
    script = (
        "import sys, time; from barnabas.base.processes import WorkerProcesses; workers = WorkerProcesses();"
        "task = workers.start('support.counting_task', 0); print(task.step()[1], flush=True);"
        f"{is_idle} and task.finish(); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {script}"], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    eventually(lambda: not is_running(pid))
