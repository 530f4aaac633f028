"""The screen of ``barnabas top``: a terminal that shows what a thread reads, until ``q`` or Ctrl-C.

Textual has the terminal: it reads keys and the size, writes what has changed, and puts the terminal
back at the end, also after an error. The colours are the terminal's own, and with NO_COLOR there
are none. All texts are escaped before they are shown, and only the rows that are seen are made.

Kafka has no counterpart: `top` and k9s are the models.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import ClassVar, Protocol

from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, Static

from barnabas.base.errors import BarnabasError
from barnabas.top.layout import Layout, LineKind, RowPlace, TextRules, layout_of
from barnabas.top.navigation import (
    ALL,
    PLACES,
    Navigation,
    current_table,
    drilled,
    navigated,
    next_view,
    raised,
    sorted_by,
)
from barnabas.top.pace import pause_s, work_s
from barnabas.top.rates import Rates, Seen, rates_between
from barnabas.top.status import keys_text, status_lines
from barnabas.top.tables import Level
from barnabas.top.values import Snapshot
from barnabas.top.views import VIEWS

__all__ = ["SnapshotReader", "TopApp", "run_screen"]

_INTERRUPTED, _TERMINATED = 130, 143
_STYLES = {
    LineKind.TITLE: Style(bold=True),
    LineKind.HEADER: Style(bold=True),
    LineKind.NOTE: Style(italic=True),
    Level.WARNING: Style(color="yellow"),
    Level.ERROR: Style(color="red"),
}
_CURSOR = Style(reverse=True)
_LEAST_REFRESH_S, _MOST_REFRESH_S = 0.5, 60.0


class SnapshotReader(Protocol):
    """What the screen shows again and again."""

    def read(self) -> Snapshot:
        """Raises `BarnabasError` where nothing can be read."""


class _Rows(ScrollView, can_focus=True):
    """The lines of a layout, one of which is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f", "page(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
        Binding("tab,right,l", "app.turn(1)", show=False),
        Binding("shift+tab,left,h", "app.turn(-1)", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.layout_shown: Layout | None = None
        self.place: RowPlace | None = None
        self._cursor = 0

    def show_layout(self, layout: Layout) -> None:
        """Other lines: the row that was chosen stays so, wherever it is now; else the one that has
        come to its place."""
        self.layout_shown = layout
        self.virtual_size = Size(0, len(layout.lines))
        numbers = layout.row_numbers
        found = layout.number_of(self.place)
        if found is None:
            found = min(numbers, key=lambda number: abs(number - self._cursor), default=0)
        self._choose(found)
        self.refresh()

    def forget_place(self) -> None:
        """The lines that follow are of another table: begin at its first row."""
        self.place, self._cursor = None, 0

    def _choose(self, number: int) -> None:
        self._cursor = number
        self.place = None if self.layout_shown is None else self.layout_shown.place(number)
        top = 0 if self.layout_shown and number <= next(iter(self.layout_shown.row_numbers), 0) else number
        self.scroll_to_region(Region(0, top, 1, number - top + 1), animate=False, force=True)
        self.refresh()

    def action_move(self, step: int) -> None:
        """To another row; a large step goes to the first one, or the last."""
        numbers = self.layout_shown.row_numbers if self.layout_shown else []
        if numbers:
            at = numbers.index(self._cursor) if self._cursor in numbers else 0
            self._choose(numbers[min(max(at + step, 0), len(numbers) - 1)])

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.size.height - 1))

    def render_line(self, y: int) -> Strip:
        """One line of those that are seen."""
        layout, width = self.layout_shown, self.size.width
        number = self.scroll_offset.y + y
        if layout is None or not 0 <= number < len(layout.lines):
            return Strip.blank(width)
        text, kind, level = layout.text(number)
        style = _STYLES.get(kind) or _STYLES.get(level) or Style()
        if number == self._cursor and kind == LineKind.ROW and self.has_focus:
            style += _CURSOR
        return Strip([Segment(text, style)]).adjust_cell_length(width, style)


class _Page(ModalScreen[None]):
    """A text over the screen, until a key is pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,space,q,question_mark,exclamation_mark", "dismiss", show=False)
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """The text, which may be longer than the screen."""
        with VerticalScroll():
            yield Static(self._text, markup=False)


class _Read(Message):
    """From the thread that reads."""

    def __init__(self, outcome: Snapshot | Exception) -> None:
        super().__init__()
        self.outcome = outcome


class TopApp(App[int]):
    """Reads in a thread of its own, and shows. Returns the exit code."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen, _Page { background: ansi_default; color: ansi_default; }
    Static { height: auto; background: ansi_default; color: ansi_default; }
    #status { height: auto; }
    #keys { height: 1; }
    _Rows { height: 1fr; background: ansi_default; color: ansi_default; scrollbar-size: 1 1; overflow-x: hidden;
            scrollbar-color: ansi_default; scrollbar-background: ansi_default; }
    VerticalScroll { height: 100%; width: 100%; background: ansi_default; color: ansi_default; }
    Input { height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; display: none; }
    Input.-open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave(0)", show=False),
        Binding("ctrl+c", f"leave({_INTERRUPTED})", show=False, priority=True),
        *(Binding(str(number), f"go('{view}')", show=False) for number, view in enumerate(PLACES)),
        Binding("enter", "enter", show=False),
        Binding("escape,backspace", "rise", show=False),
        Binding("less_than_sign", "sort(-1)", show=False),
        Binding("greater_than_sign,s", "sort(1)", show=False),
        Binding("r", "reverse", show=False),
        Binding("slash", "filter", show=False),
        Binding("space,p", "pause", show=False),
        Binding("plus,equals_sign", "faster(0.5)", show=False),
        Binding("minus", "faster(2)", show=False),
        Binding("exclamation_mark", "gaps", show=False),
        Binding("question_mark", "help", show=False),
    ]

    def __init__(
        self, reader: SnapshotReader, refresh_s: float, rules: TextRules, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(ansi_color=True)
        self._reader = reader
        self._refresh_s = refresh_s
        self._rules = rules
        self._clock = clock
        self._work_s: float | None = None
        self._read_soon = threading.Event()
        self._newest: Seen | None = None
        self._shown: Seen | None = None
        self._error = ""
        self.navigation = Navigation()

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static(id="status", markup=False)
        yield _Rows()
        yield Input(placeholder="words of a row", compact=True)
        yield Static(keys_text(), id="keys", markup=False)

    def show_first(self, snapshot: Snapshot) -> None:
        """What was read before the screen is there."""
        self._newest = self._shown = Seen(snapshot, rates_between(None, snapshot))
        self._note_work(snapshot)

    def _note_work(self, snapshot: Snapshot) -> None:
        self._work_s = work_s(self._work_s, snapshot.took_ms / 1000, is_whole=not snapshot.gaps)

    def on_mount(self) -> None:
        """The screen is there: begin to read."""
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGINT, self.exit, _INTERRUPTED)
            loop.add_signal_handler(signal.SIGTERM, self.exit, _TERMINATED)
        self.query_one(_Rows).focus()
        self.call_after_refresh(self._show)
        self.set_interval(1.0, self._show_status)
        # It ends with the program: a broker that does not answer does not keep it.
        threading.Thread(target=self._read_always, name="barnabas-top-reader", daemon=True).start()

    def on_resize(self) -> None:
        """Other columns may have room."""
        self.call_after_refresh(self._show)

    # Reading, in its thread

    def _read_always(self) -> None:
        while True:
            self._read_soon.wait(pause_s(self._refresh_s, self._work_s or 0.0))
            self._read_soon.clear()
            try:
                snapshot = self._reader.read()
            except Exception as error:  # what is no BarnabasError ends the screen, which shows it
                event = _Read(error)
            else:
                self._note_work(snapshot)
                event = _Read(snapshot)
            if not self.post_message(event):
                return  # the screen has ended

    def on__read(self, event: _Read) -> None:
        """What the thread has read, or why it could not."""
        read = event.outcome
        if isinstance(read, BarnabasError):
            self._error = str(read)
            self._show_status()
            return
        if isinstance(read, Exception):
            raise read
        self._error = ""
        before = None if self._newest is None else self._newest.snapshot
        rates = rates_between(before, read)
        if self._newest is not None and rates.seconds is None:
            rates = self._newest.rates
        self._newest = Seen(read, rates)
        if not self.navigation.is_paused:
            self._shown = self._newest
            self._show()

    # Showing

    def _show(self) -> None:
        seen = self._shown or Seen(Snapshot(0), Rates())
        rows = self.query_one(_Rows)
        rows.show_layout(layout_of(self.navigation, seen, rows.size.width, rows.size.height, self._rules))
        self._show_status()

    def _show_status(self) -> None:
        seen = self._shown
        width, now_ms = max(1, self.size.width), round(self._clock() * 1000)
        working_s = self._work_s or 0.0
        every_s = working_s + pause_s(self._refresh_s, working_s)
        lines = status_lines(self.navigation, seen, every_s, self._error, now_ms, width)
        fitted = [self._rules.fitted(line, width).rstrip() for line in lines]
        self.query_one("#status", Static).update("\n".join(fitted))

    def _go(self, navigation: Navigation) -> None:
        has_moved = navigation.place != self.navigation.place or navigation.part_of != self.navigation.part_of
        self.navigation = navigation
        rows = self.query_one(_Rows)
        if has_moved:
            rows.forget_place()
        self._show()

    # Keys

    def action_leave(self, code: int) -> None:
        self.exit(code)

    def action_turn(self, step: int) -> None:
        self._go(next_view(self.navigation, step))

    def action_go(self, view: str) -> None:
        self._go(navigated(self.navigation, view))

    def action_enter(self) -> None:
        place = self.query_one(_Rows).place
        if place is not None:
            self._go(drilled(self.navigation, *place))

    def action_rise(self) -> None:
        self._go(raised(self.navigation))

    def action_sort(self, step: int) -> None:
        self._sort(step=step)

    def action_reverse(self) -> None:
        self._sort(turn=True)

    def _sort(self, *, step: int = 0, turn: bool = False) -> None:
        if self.navigation.view != ALL and self._shown is not None:
            columns = current_table(self.navigation, self._shown).columns
            self._go(sorted_by(self.navigation, columns, step=step, turn=turn))

    def action_pause(self) -> None:
        navigation = self.navigation.with_pause(not self.navigation.is_paused)
        if not navigation.is_paused:
            self._shown = self._newest
        self._go(navigation)

    def action_faster(self, factor: float) -> None:
        self._refresh_s = min(max(self._refresh_s * factor, _LEAST_REFRESH_S), _MOST_REFRESH_S)
        self._read_soon.set()
        self._show_status()

    def action_filter(self) -> None:
        if self.navigation.view == ALL:
            return
        asked = self.query_one(Input)
        asked.add_class("-open")
        asked.value = self.navigation.filter
        asked.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Rows are filtered while the words are typed."""
        if event.input.has_class("-open"):
            self._go(self.navigation.with_filter(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The filter stays."""
        event.input.remove_class("-open")
        self.query_one(_Rows).focus()

    def action_gaps(self) -> None:
        gaps = self._shown.snapshot.gaps if self._shown else ()
        lines = [self._rules.escape(line) for line in gaps] or ["Nothing is missing."]
        self.push_screen(_Page("\n\n".join(["What could not be read:", *lines])))

    def action_help(self) -> None:
        names = ", ".join(f"{number} {view}" for number, view in enumerate(PLACES))
        self.push_screen(_Page(_HELP.format(names=names, last=len(VIEWS))))


_HELP = """Keys of barnabas top

0 to {last}          a view: {names}
Tab, arrows     the next view, the one before
up, down, j, k  another row; page up, page down, home, end
Enter           into a topic, a broker, a group; Esc goes back
s or > and <    order by another column; r reverses the order
/               show the rows with some words; Esc shows all again
space or p      stand still, and go on
+ and -         read more often, less often
!               what could not be read, and why
q or Ctrl-C     end

? stands for what is not known. A reading takes at most a tenth of the time, so that
brokers of a large cluster are read less often.

Esc closes this page.
"""


def run_screen(
    reader: SnapshotReader, refresh_s: float, escape: Callable[[str], str], measure: Callable[[str], int]
) -> int:
    """Show the screen until it is left; the exit code.

    The first reading is made before, and raises what it raises, such as that no broker answers."""
    app = TopApp(reader, refresh_s, TextRules(escape, measure))
    app.show_first(reader.read())
    code = app.run()
    return app.return_code or 0 if code is None else code
