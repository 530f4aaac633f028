"""The ``barnabas`` command, and ``python -m barnabas``.

Ctrl-C while the modules load ends the process by the signal, without a traceback: shells report
130, as for a command that already runs. Where Ctrl-C was ignored when the process began, as for a
job in the background of a script, it stays ignored.
"""

import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Load the command line, and run it with the program's arguments."""
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if not is_ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from barnabas.cli.main import main as run

    if not is_ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


if __name__ == "__main__":
    sys.exit(main())
