"""The screen of `barnabas top`, driven by Textual's pilot: keys, sizes, errors and its end."""

import asyncio
import threading
from collections.abc import Callable

import pytest

pytest.importorskip("textual")

from textual.pilot import Pilot
from textual.widgets import Static

from barnabas.base.errors import BarnabasError
from barnabas.cli.output.terminal import columns, escaped
from barnabas.lag.values import GroupKind, GroupLag, LagState
from barnabas.top.layout import TextRules
from barnabas.top.screen import TopApp, _Rows
from barnabas.top.values import BrokerSeen, BrokerState, PartitionSeen, Snapshot, TopicSeen

RULES = TextRules(escaped, columns)
WAIT_S = 20.0


def snapshot(number: int, topics: int = 3, **more: object) -> Snapshot:
    """The reading of this number: each has one record more."""
    part = PartitionSeen(0, 1, (1,), (1,), 0, number)
    found = [TopicSeen(f"topic{at}", False, [part, PartitionSeen(1, 1, (1,), (1,), 0, 5)]) for at in range(topics)]
    return Snapshot(number * 1000, 5, "c", [BrokerSeen(1, "h:1", None, True, BrokerState.UP)], found, **more)  # type: ignore[arg-type]


class Readings:
    """Gives what a test sets next, once for each permit."""

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)
        self.next: Snapshot | Exception = snapshot(1)

    def read(self) -> Snapshot:
        self.permits.acquire()
        if isinstance(self.next, Exception):
            raise self.next
        return self.next


class Driven:
    """An app, its pilot, and what it shows."""

    def __init__(self, app: TopApp, pilot: Pilot[int], readings: Readings) -> None:
        self.app, self.pilot, self.readings = app, pilot, readings

    @property
    def lines(self) -> list[str]:
        rows = self.app.query_one(_Rows)
        return [rows.render_line(y).text.rstrip() for y in range(rows.size.height)]

    @property
    def status(self) -> str:
        return str(self.app.query_one("#status", Static).render())

    @property
    def chosen(self) -> str | None:
        place = self.app.query_one(_Rows).place
        return None if place is None else place.key

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def read(self, read: Snapshot | BarnabasError, is_there: Callable[[], bool]) -> None:
        """Let the thread read this, and wait until it is shown."""
        self.readings.next = read
        self.readings.permits.release()
        async with asyncio.timeout(WAIT_S):
            while not is_there():
                await self.pilot.pause(0.01)


def drive(
    work: "Callable[[Driven], object]", size: tuple[int, int] = (100, 30), first: Snapshot | None = None
) -> int | None:
    """Run ``work`` on a screen of this size; the exit code, if it was left."""
    readings = Readings()
    app = TopApp(readings, 0.01, RULES, clock=lambda: 3.0)
    app.show_first(first or snapshot(1))

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await work(Driven(app, pilot, readings))  # type: ignore[misc]

    asyncio.run(run())
    readings.permits.release()
    return app.return_value


def test_keys_go_through_views_into_a_topic_and_back() -> None:
    """A number, Enter, Esc, an order, a filter."""

    async def work(at: Driven) -> None:
        assert "Topics (3)" in at.lines
        await at.press("2", "down", "enter")
        assert at.app.navigation.title == "Topics: topic1"
        assert at.lines[1].startswith("topic1-0")
        await at.press("escape", "slash", *"ic2", "enter")
        assert [line.split()[0] for line in at.lines if line] == ["TOPIC", "topic2"]
        assert "with 'ic2'" in at.status
        await at.press("escape", "s", "r")
        assert [line.split()[0] for line in at.lines if line] == ["TOPIC", "topic2", "topic1", "topic0"]
        await at.press("tab")
        assert at.app.navigation.view == "groups"
        assert at.lines[0] == "none"

    assert drive(work) is None


def test_a_row_stays_chosen_while_others_come_before_it() -> None:
    """By its key, not by its place; and a pause keeps what is shown."""

    async def work(at: Driven) -> None:
        await at.press("2", "end")
        assert at.chosen == "topic2"
        more = snapshot(2, topics=9)
        await at.read(
            Snapshot(2000, topics=[*more.topics[5:], *more.topics[:5]]), lambda: "topic8" in "".join(at.lines)
        )
        assert at.chosen == "topic2"
        await at.press("space")
        assert "PAUSED" in at.status
        await at.read(
            snapshot(3, topics=1), lambda: at.app._newest is not None and at.app._newest.snapshot.at_ms == 3000
        )
        assert "topic8" in "".join(at.lines)
        await at.press("space")
        assert "topic8" not in "".join(at.lines)
        assert at.chosen == "topic0"

    drive(work)


def test_an_error_is_shown_and_the_view_goes_on() -> None:
    """What was read last stays, and the next reading takes the error away."""

    async def work(at: Driven) -> None:
        await at.read(BarnabasError("no broker answers: h:1\x1b[31m"), lambda: "No answer" in at.status)
        assert r"h:1\x1b[31m" in at.status
        assert "Topics (3)" in at.lines
        await at.read(snapshot(4), lambda: "No answer" not in at.status)

    drive(work)


def test_names_cannot_control_the_terminal() -> None:
    """Escapes, right-to-left marks and newlines are shown by their codes, in rows and in pages."""
    name = "evil\x1b]0;title\x07\u202e\nforged"
    group = GroupLag(name, GroupKind.CLASSIC, "Stable", 1, (), LagState.WELL, problem=name)
    hostile = snapshot(1, gaps=[name], groups=[group])

    async def work(at: Driven) -> None:
        await at.press("3")
        await at.press("enter")
        for text in (*at.lines, *at.status.split("\n")):
            assert text.isprintable(), text
        await at.press("exclamation_mark")
        shown = str(at.app.screen.query_one(Static).render())
        assert r"evil\x1b" in shown
        assert shown.replace("\n", "").isprintable()

    drive(work, first=hostile)


@pytest.mark.parametrize("size", [(40, 10), (8, 3), (1, 1)])
def test_any_size_can_be_shown(size: tuple[int, int]) -> None:
    """And changed while it runs."""

    async def work(at: Driven) -> None:
        for key in "0123456":
            await at.press(key)
        await at.pilot.resize_terminal(80, 24)
        await at.pilot.pause()
        assert len(at.lines) == 24 - 4
        await at.press("question_mark", "escape")

    drive(work, size)


def test_ten_thousand_rows_are_as_quick_as_ten() -> None:
    """Only the rows that are seen are made into texts."""
    parts = [PartitionSeen(number, 1, (1,), (1,), 0, 5) for number in range(10_000)]

    async def work(at: Driven) -> None:
        await at.press("2", "enter", "end")
        assert at.chosen == "wide-9999"
        assert any(line.startswith("wide-9999") for line in at.lines)
        await at.press("pageup", "home")
        assert at.chosen == "wide-0"
        assert at.lines[0].startswith("PARTITION")

    drive(work, first=Snapshot(0, topics=[TopicSeen("wide", False, parts)]))


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
def test_a_key_ends_it_while_a_reading_waits_for_a_broker(key: str, code: int) -> None:
    """The thread that reads does not keep the program, and ctrl-c works in a filter too."""

    async def work(at: Driven) -> None:
        if key == "ctrl+c":
            await at.press("2", "slash")
        await at.press(key)

    assert drive(work) == code


def test_a_fault_in_reading_ends_the_screen_rather_than_freezing_it() -> None:
    """What is no answer of the cluster is raised where it is seen."""

    async def work(at: Driven) -> None:
        at.readings.next = ZeroDivisionError("a fault")
        at.readings.permits.release()
        async with asyncio.timeout(WAIT_S):
            while at.app.is_running:
                await at.pilot.pause(0.01)

    with pytest.raises(ZeroDivisionError, match="a fault"):
        drive(work)
