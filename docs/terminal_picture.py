"""Draw the screen of a terminal emulator (pyte) as SVG: text on a grid, colours, and
borders without gaps.

A viewer takes any font of equal width that it has. So each piece of text has its place and its
length, and the borders of panes are lines, not characters: between the characters of two rows a
viewer leaves a gap. The picture keeps what each pane held, as JSON in ``<metadata>``, with which a
test compares what is drawn (`panes_of`, `drawn_text`).
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pyte
from pyte.screens import Char

__all__ = ["Pane", "draw", "drawn_text", "panes_of"]

CELL_WIDTH, ROW_HEIGHT, FONT_SIZE = 8.4, 18, 14
LEFT, TOP, MARGIN = 12, 44, 12
BASELINE = 13
LAST_S = 8.0
BACKGROUND, FOREGROUND = "#1b1d23", "#c9ccd1"
COLOURS = {
    "black": "#1b1d23",
    "red": "#e5646f",
    "green": "#8fc16f",
    "brown": "#e0b562",
    "blue": "#66a8ee",
    "magenta": "#c583dd",
    "cyan": "#5bb9c4",
    "white": "#d7dae0",
}
# The halves of a border's cell that have a line: left, right, up, down.
BORDERS = {
    "─": "lr",
    "│": "ud",
    "┌": "rd",
    "┐": "ld",
    "└": "ru",
    "┘": "lu",
    "├": "rud",
    "┤": "lud",
    "┬": "lrd",
    "┴": "lru",
    "┼": "lrud",
}


class Pane(NamedTuple):
    """A part of the screen, in cells, and the text that it held."""

    left: int
    top: int
    width: int
    height: int
    text: str


class _Piece(NamedTuple):
    """Neighbours in a row that look alike."""

    column: int
    text: str
    look: Char


def draw(screen: pyte.Screen, title: str, panes: Sequence[Pane] = (), times_s: Sequence[float] = ()) -> str:
    """The picture of a screen.

    With ``times_s`` each row appears at its time, over and over, where pictures may move."""
    width = 2 * LEFT + screen.columns * CELL_WIDTH
    height = TOP + screen.lines * ROW_HEIGHT + MARGIN
    rows = [_row(screen, row) for row in range(screen.lines)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<metadata>{escape(json.dumps([pane._asdict() for pane in panes]))}</metadata>" if panes else "",
            "<style>",
            f"text{{font:{FONT_SIZE}px Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;white-space:pre}}",
            ".bold{font-weight:bold}",
            _animation(times_s) if times_s else "",
            "</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{BACKGROUND}"/>',
            *(
                f'<circle cx="{20 + 20 * number}" cy="20" r="6" fill="{fill}"/>'
                for number, fill in enumerate(("#ff5f57", "#febc2e", "#28c840"))
            ),
            f'<text x="{width / 2:g}" y="25" text-anchor="middle" fill="{FOREGROUND}" class="bold">{escape(title)}</text>',
            *(f'<g id="row{number}">{row}</g>' for number, row in enumerate(rows) if row),
            _borders(screen),
            "</svg>\n",
        ]
    )


def _row(screen: pyte.Screen, row: int) -> str:
    """Backgrounds, and above them the text."""
    y = TOP + row * ROW_HEIGHT
    backgrounds, texts = [], []
    for column, text, look in _pieces(screen, row):
        x, width = LEFT + column * CELL_WIDTH, len(text) * CELL_WIDTH
        front, back = _colours(look)
        if back != BACKGROUND:
            backgrounds.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW_HEIGHT}" fill="{back}"/>')
        for word in re.finditer(r"\S+( \S+)*", text):
            bold = ' class="bold"' if look.bold else ""
            texts.append(
                f'<text x="{x + word.start() * CELL_WIDTH:.1f}" y="{y + BASELINE}" fill="{front}"{bold}'
                f' textLength="{len(word[0]) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs">{escape(word[0])}</text>'
            )
    return "".join(backgrounds + texts)


def _pieces(screen: pyte.Screen, row: int) -> Iterator[_Piece]:
    """A row's text, without its borders."""
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    start = 0
    while start < len(cells):
        end = start + 1
        while end < len(cells) and cells[end]._replace(data="") == cells[start]._replace(data=""):
            end += 1
        text = "".join(" " if cell.data in BORDERS else cell.data or " " for cell in cells[start:end])
        yield _Piece(start, text, cells[start])
        start = end


def _colours(look: Char) -> tuple[str, str]:
    """Of the text and behind it."""
    front, back = _colour(look.fg, FOREGROUND), _colour(look.bg, BACKGROUND)
    return (back, front) if look.reverse else (front, back)


def _colour(name: str, default: str) -> str:
    if re.fullmatch(r"[\da-f]{6}", name):
        return f"#{name}"
    # pyte calls the ninth to sixteenth colour "bright" and the name, one of them
    # with a typing error.
    return default if name == "default" else COLOURS[re.sub(r"^b[rf]ight", "", name)]


def _borders(screen: pyte.Screen) -> str:
    """All lines: a path for each colour, of pieces from cell to cell that touch."""
    halves: dict[str, dict[tuple[str, float], list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in range(screen.lines):
        for column in range(screen.columns):
            cell = screen.buffer[row][column]
            x, y = LEFT + (column + 0.5) * CELL_WIDTH, TOP + (row + 0.5) * ROW_HEIGHT
            lines = halves[_colours(cell)[0]] if cell.data in BORDERS else {}
            for half in BORDERS.get(cell.data, ""):
                if half in "lr":
                    ends = (x - CELL_WIDTH / 2, x) if half == "l" else (x, x + CELL_WIDTH / 2)
                    lines["H", y].append(ends)
                else:
                    ends = (y - ROW_HEIGHT / 2, y) if half == "u" else (y, y + ROW_HEIGHT / 2)
                    lines["V", x].append(ends)
    return "\n".join(
        f'<path d="{_path(lines)}" stroke="{colour}" fill="none" stroke-linecap="square"/>'
        for colour, lines in halves.items()
    )


def _path(lines: dict[tuple[str, float], list[tuple[float, float]]]) -> str:
    moves = []
    for (direction, at), ends in lines.items():
        for first, last in _joined(ends):
            start = (first, at) if direction == "H" else (at, first)
            moves.append(f"M{start[0]:.1f},{start[1]:.1f}{direction}{last:.1f}")
    return "".join(moves)


def _joined(pieces: list[tuple[float, float]]) -> list[list[float]]:
    """Intervals, those that touch as one."""
    joined: list[list[float]] = []
    for first, last in sorted(pieces):
        if joined and first - joined[-1][1] < 0.01:
            joined[-1][1] = max(last, joined[-1][1])
        else:
            joined.append([first, last])
    return joined


def _animation(times_s: Sequence[float]) -> str:
    """Style rules that show row after row. A viewer that ignores them shows all rows."""
    whole_s = times_s[-1] + LAST_S
    rules = []
    for number, at_s in enumerate(times_s):
        part = 100 * at_s / whole_s
        rules.append(f"@keyframes l{number}{{0%,{part:.2f}%{{opacity:0}}{part + 0.01:.2f}%,100%{{opacity:1}}}}")
        rules.append(f"#row{number}{{animation:l{number} {whole_s:.1f}s step-end infinite}}")
    return "\n".join([*rules, "@media (prefers-reduced-motion:reduce){g{animation:none!important}}"])


def panes_of(picture: str) -> list[Pane]:
    """The panes that the recorder put into a picture."""
    found = ElementTree.fromstring(picture).find("{*}metadata")
    return [] if found is None else [Pane(**each) for each in json.loads(found.text or "[]")]


def drawn_text(picture: str, pane: Pane) -> str:
    """The text that a picture shows in the cells of a pane, with a line's end for each row."""
    cells = defaultdict(lambda: " ")
    for text in ElementTree.fromstring(picture).iterfind("{*}g/{*}text"):
        row = round((float(text.attrib["y"]) - BASELINE - TOP) / ROW_HEIGHT)
        column = round((float(text.attrib["x"]) - LEFT) / CELL_WIDTH)
        for number, character in enumerate(text.text or ""):
            cells[row, column + number] = character
    rows = range(pane.top, pane.top + pane.height)
    columns = range(pane.left, pane.left + pane.width)
    return "".join("".join(cells[row, column] for column in columns).rstrip() + "\n" for row in rows)
