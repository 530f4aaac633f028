"""What holds around each run of a flow: one driver for a checkpoint, signals that end it in good
order, and a note of how it ended."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from barnabas.base.files import OsFiles
from barnabas.base.private_files import make_private_dirs
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.errors import PipelineError, with_advice
from barnabas.pipelines.specification.spec import Flow

__all__ = ["broken_end_noted", "locked_checkpoint", "note_end", "stop_signals"]


@contextlib.contextmanager
def broken_end_noted(notes: Checkpoint, flow: Flow) -> Iterator[None]:
    """Notes why a run broke, for commands that ask later."""
    try:
        yield
    except Exception as error:
        note_end(notes, "failed", flow.hide(str(error)))
        raise


def note_end(notes: Checkpoint, status: str, reason: str | None = None) -> None:
    """Notes how a run ended, as far as the disk allows."""
    with contextlib.suppress(OSError):  # on a full disk, say: the reason is printed, too
        notes.note_end(status, reason)


@contextlib.contextmanager
def locked_checkpoint(checkpoint: Path) -> Iterator[None]:
    """Locks a checkpoint against other drivers. It is made if it is not there.

    Raises `PipelineError`, also for an `OSError` of the run."""
    try:
        make_private_dirs(checkpoint)
        lock = OsFiles().lock(str(checkpoint / ".lock"))
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(lock)
            except BlockingIOError as error:
                raise PipelineError(f"another process runs the flow with the checkpoint {checkpoint}") from error
            yield
    except ConnectionError as error:  # of the run: nothing here connects
        raise PipelineError(
            f"the connection to Spark's JVM broke ({error.strerror or error}): run the flow again, it goes on from its checkpoint"
        ) from error
    except OSError as error:
        where = error.filename or checkpoint
        what = f"the checkpoint {where}" if str(where).startswith(str(checkpoint)) else where
        raise with_advice(PipelineError(f"cannot use {what}: {error.strerror or error}"), checkpoint) from error


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set.

    An exception in the midst of a call to the JVM would break its socket."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
