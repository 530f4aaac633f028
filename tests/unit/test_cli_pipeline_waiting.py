"""What commands say while Spark starts."""

import io
import re

from barnabas.cli.pipeline_waiting import WaitDisplay
from support.waiting import eventually


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_shows_what_is_waited_for_and_how_long() -> None:
    """It is drawn again while nothing happens, and is gone at the end."""
    terminal = Terminal()
    with WaitDisplay(terminal, every_s=0.01) as waits:
        waits.show("starting Spark")
        assert terminal.getvalue() == "\r\x1b[Kstarting Spark, 0 s"
        eventually(lambda: terminal.getvalue().count("starting Spark, ") > 3)
        waits.show("checking")
    assert re.fullmatch(r"(\r\x1b\[Kstarting Spark, \d s)+(\r\x1b\[Kchecking, \d s)+\r\x1b\[K", terminal.getvalue())


def test_elsewhere_each_thing_is_a_line() -> None:
    """A log is to be read later."""
    log = io.StringIO()
    with WaitDisplay(log, every_s=0.01) as waits:
        waits.show("starting Spark")
        waits.show("checking")
    assert log.getvalue() == "starting Spark\nchecking\n"
