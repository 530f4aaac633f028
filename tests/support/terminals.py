"""A command in this process whose standard output and error are a terminal, as
`prepare_streams` prepares it."""

import os
import pty
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout

from barnabas.cli.output.terminal import TerminalStream


def on_terminal(call: Callable[[], object]) -> str:
    """What the call shows on a terminal; its lines end with a newline only."""
    ours, theirs = pty.openpty()
    received = bytearray()

    def read() -> None:
        try:
            while data := os.read(ours, 65536):
                received.extend(data)
        except OSError:  # the end of a terminal
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with ExitStack() as stack:
            stream = stack.enter_context(open(theirs, "wb"))
            terminal = stack.enter_context(TerminalStream(stream, encoding="utf-8", line_buffering=True))
            stack.enter_context(redirect_stdout(terminal))
            stack.enter_context(redirect_stderr(terminal))
            call()
            sys.stdout.flush()
    finally:
        reader.join()
        os.close(ours)
    return received.decode().replace("\r\n", "\n")
