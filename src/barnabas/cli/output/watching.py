"""Showing something again and again until Ctrl-C, for options ``--watch``."""

import sys
import time
from collections.abc import Callable

from barnabas.cli.output.colours import print_error
from barnabas.cli.output.terminal import own, print
from barnabas.client.errors import ClientError

__all__ = ["show_repeatedly"]

_CLEAR = "\x1b[H\x1b[2J"


def show_repeatedly(show: Callable[[], object], interval_s: float, restart: Callable[[], None]) -> None:
    """Each time on a clear screen, if it is one. ``restart`` gives each round its deadline.

    The first time an error ends it; later it goes on when brokers answer again.
    """
    is_first = True
    while True:
        print(own(sys.stdout, _CLEAR), end="")
        restart()
        try:
            show()
        except ClientError as error:
            if is_first or not error.retriable:
                raise
            print_error(f"Error: {error}")
        is_first = False
        time.sleep(interval_s)
