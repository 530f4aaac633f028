"""What commands say while Spark starts."""

import io
import re

import pytest

pytest.importorskip("confluent_kafka")

from barnabas.cli.pipelines.progress import RunDisplay
from barnabas.cli.pipelines.waiting import WaitDisplay
from barnabas.pipelines.progress.progress import Totals
from support.waiting import eventually


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_shows_what_is_waited_for_and_how_long() -> None:
    """It is drawn again while nothing happens, and is gone at the end."""
    terminal = Terminal()
    with WaitDisplay(terminal, every_s=0.01) as waits:
        waits.show("starting Spark")
        assert terminal.getvalue().startswith("\r\x1b[Kstarting Spark, 0 s")
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


def test_a_run_shows_that_it_waits_until_its_first_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the seconds on a terminal; what it says stays above that line."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with RunDisplay(quiet=False) as display:
        display.say("starting Spark for f")
        eventually(lambda: terminal.getvalue().count("no micro-batch yet, 1 s"), timeout_s=30)
        display.show(Totals(rows=7, batches=1, batch=0, seconds=1.0, lag=0))
        display.say("warning: w")
    shown = terminal.getvalue()
    assert "\r\x1b[Kstarting Spark for f\n\r\x1b[Kno micro-batch yet, " in shown
    assert shown.endswith("\r\x1b[K7 rows, 7 rows/s, lag 0, batch 0\r\x1b[Kwarning: w\n\n")


@pytest.mark.parametrize("quiet", [True, False])
def test_a_run_elsewhere_prints_what_it_says_unless_it_is_to_be_quiet(
    quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a file of a service, say."""
    with RunDisplay(quiet=quiet) as display:
        display.say("starting Spark for f")
    assert capsys.readouterr().err == ("" if quiet else "starting Spark for f\n")
