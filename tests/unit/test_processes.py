"""When a process of a `ProcessCluster` counts as ended."""

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.testing import ProcessCluster
from support.waiting import eventually

# Its first thread ends, and the other lives on with the files of the process until its input ends.
WITHOUT_ITS_FIRST_THREAD = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process that was not waited for counts as running")
def test_a_process_runs_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    """A zombie whose other threads still end has its ports open: it has not ended, which a mere zombie has."""
    command = [sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        cluster = ProcessCluster(1, data_dir=tmp_path)
        cluster.pids["0"] = process.pid
        eventually(lambda: state(process.pid) == "Z", what="its first thread has ended")
        assert cluster.is_running(0)
        assert process.stdin is not None
        process.stdin.close()
        eventually(lambda: not cluster.is_running(0), what="its last thread has ended")
        assert state(process.pid) == "Z"  # it has not been waited for yet
    assert not cluster.is_running(0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing shows when a process was started")
def test_another_process_with_the_pid_of_one_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    """Systems use pids again: the broker does not run, and no signal goes to the stranger."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as stranger:
        cluster = ProcessCluster(1, data_dir=tmp_path)
        cluster.pids["0"] = stranger.pid
        assert cluster.is_running(0)
        cluster._processes.start_times[stranger.pid] = "1"
        assert not cluster.is_running(0)
        for signal_it in (cluster.kill_broker, cluster.stop_broker, cluster.pause_broker, cluster.resume_broker):
            with pytest.raises(BarnabasError, match="broker 0 is not running"):
                signal_it(0)
        assert stranger.poll() is None
        assert stranger.stdin is not None
        stranger.stdin.close()
        assert stranger.wait(60) == 0


def state(pid: int) -> str:
    """The state of the first thread, a letter of proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
