"""The documentation's pictures of terminals show what the terminals held."""

import sys
from pathlib import Path

import pyte
from hypothesis import given
from hypothesis import strategies as st

from support.needs import ROOT, needs

sys.path.insert(0, str(ROOT / "docs"))
import terminal_picture
import terminal_recording
from terminal_picture import Pane, draw, drawn_text, panes_of

PICTURES = ROOT / "docs" / "pictures"


def held(pane: Pane) -> str:
    """A pane's text as tmux gives it, without the blanks at the ends of its lines."""
    return "".join(line.rstrip() + "\n" for line in pane.text.splitlines())


def screen_of(text: str, columns: int = 20, rows: int = 5) -> pyte.Screen:
    """A terminal that was sent a text."""
    screen = pyte.Screen(columns, rows)
    pyte.Stream(screen).feed(text)
    return screen


def test_each_pane_of_the_first_picture_shows_what_the_pane_held() -> None:
    """No line stands in another pane, and none is cut off: up, overview, tail and a producer."""
    picture = (PICTURES / "first-steps.svg").read_text()
    panes = panes_of(picture)
    assert [drawn_text(picture, pane) for pane in panes] == [held(pane) for pane in panes]
    assert [pane.text.split("\n")[0] for pane in panes] == [
        "$ barnabas up --brokers 3",
        "$ barnabas context add local --bootstrap-servers localhost:9092",
        "$ barnabas tail orders --last 4",
        "$ barnabas console-producer --topic orders \\",
    ]
    up, overview, tail, _ = (pane.text for pane in panes)
    assert "ready 127.0.0.1:9092" in up
    assert "table-" not in up
    assert "kitchen" in overview
    assert tail.count("table-") == 4


@needs("tmux")
def test_a_session_of_tmux_is_drawn_as_its_panes_are(tmp_path: Path) -> None:
    """Colours, characters that XML escapes, a long line that wraps, and panes that scroll."""
    tmux = terminal_recording.Tmux(str(tmp_path), 60, 12)
    try:
        tmux.split(0, "-h")
        tmux.split(1, "-v")
        tmux.type(0, r"printf '\033[31mred\033[m <b> & plain\n'; seq 100 140 | tr '\n' ' '")
        tmux.type(1, "seq 30")
        tmux.until(0, lambda text: "140" in text)
        tmux.until(1, lambda text: "30" in text)
        picture = tmux.picture("panes")
    finally:
        tmux.end()
    panes = panes_of(picture)
    assert len(panes) == 3
    assert [drawn_text(picture, pane) for pane in panes] == [held(pane) for pane in panes]
    assert f'fill="{terminal_picture.COLOURS["red"]}"' in picture
    assert "<b> & plain" in panes[0].text


def test_borders_are_lines_without_gaps() -> None:
    """From the upper edge of their first cell to the lower edge of their last one,
    through a crossing."""
    screen = screen_of("a│b\r\n─┼─\r\na│b", rows=3)
    (path,) = [line for line in draw(screen, "").splitlines() if line.startswith("<path")]
    assert 'd="M24.6,44.0V98.0M12.0,71.0H37.2"' in path


def test_each_border_has_the_colour_of_its_cell() -> None:
    """tmux shows which pane is used by it."""
    picture = draw(screen_of("│\r\n\x1b[32m│\x1b[m", rows=2), "")
    strokes = [line.split('stroke="')[1].split('"')[0] for line in picture.splitlines() if line.startswith("<path")]
    assert strokes == [terminal_picture.FOREGROUND, terminal_picture.COLOURS["green"]]


@given(st.text(st.sampled_from("ab <&>'\"é─│├\x1b"), max_size=80), st.integers(0, 7), st.booleans())
def test_whatever_a_terminal_shows_is_drawn_in_its_place(text: str, colour: int, reverse: bool) -> None:
    """All but the borders, which are lines."""
    screen = screen_of(f"\x1b[3{colour}{';7' if reverse else ''}m" + text.replace("\x1b", "\x1b[1m"))
    picture = draw(screen, "anything <&>")
    rows = [row.translate(dict.fromkeys(map(ord, terminal_picture.BORDERS), " ")) for row in screen.display]
    assert drawn_text(picture, Pane(0, 0, 20, 5, "")) == "".join(row.rstrip() + "\n" for row in rows)


def test_rows_appear_at_their_times_and_stay_where_nothing_may_move() -> None:
    """The last one stays for a while."""
    picture = draw(screen_of("one\r\ntwo", rows=2), "", times_s=[0.5, 2.0])
    assert "#row1{animation:l1 10.0s step-end infinite}" in picture
    assert "@keyframes l1{0%,20.00%{opacity:0}20.01%,100%{opacity:1}}" in picture
    assert "prefers-reduced-motion" in picture
