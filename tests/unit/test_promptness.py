"""The measure of promptness that hostile-bytes tests use: the machine's load excuses a server,
its own slowness does not."""

import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from support.promptness import promptly, read_to_the_end, waited_for_cpu_s


def test_a_block_that_waits_for_nothing_but_time_is_late() -> None:
    """No CPU was missing, so nothing explains it: a timeout is never taken for load."""
    with (
        pytest.raises(AssertionError, match=r"the answer took .* promised 0\.05 s"),
        promptly(os.getpid(), "the answer", limit_s=0.05),
    ):
        threading.Event().wait(0.5)


def test_waiting_for_a_cpu_is_counted_and_excuses_lateness() -> None:
    """Four processes that are bound to one CPU and never rest: each waits most of
    the time, and is excused."""
    cpu = min(os.sched_getaffinity(0))
    busy = f"import os; os.sched_setaffinity(0, [{cpu}]); print(flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", busy]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    try:
        for process in processes:
            process.stdout.readline()
        before = waited_for_cpu_s(processes[0].pid)
        with promptly(processes[0].pid, "its share", limit_s=0.3):
            end = time.monotonic() + 60
            while waited_for_cpu_s(processes[0].pid) < before + 0.5 and time.monotonic() < end:
                threading.Event().wait(0.05)
        assert waited_for_cpu_s(processes[0].pid) >= before + 0.5
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_reading_to_the_end_returns_what_came_before_the_connection_was_closed() -> None:
    """An orderly end; a reset counts as an end too."""
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"last words")
        theirs.close()
        assert read_to_the_end(ours) == b"last words"
