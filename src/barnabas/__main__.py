"""The ``barnabas`` command, and ``python -m barnabas``.

Ctrl-C while the modules load ends the process by the signal, without a traceback: shells report 130, as for a command that
already runs.
"""

import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Load the command line, and run it with the program's arguments."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from barnabas.cli.main import main as run

    signal.signal(signal.SIGINT, before)
    return run()


if __name__ == "__main__":
    sys.exit(main())
