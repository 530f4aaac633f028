"""Where a user of the screen is, and what the keys change: the view, what it is a part of, its
order, its filter, and whether it stands still.

In Kafka: no counterpart; the keys are those of `top`, `less` and k9s, where these agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from barnabas.top.rates import Seen
from barnabas.top.tables import Column, ViewTable, filtered, ordered
from barnabas.top.views import VIEWS

__all__ = [
    "ALL",
    "PLACES",
    "Navigation",
    "Order",
    "current_table",
    "drilled",
    "navigated",
    "next_view",
    "raised",
    "sorted_by",
]

ALL = "all"
"""The first rows of all views."""
PLACES = (ALL, *VIEWS)
"""What the keys 0, 1 and so on go to."""


@dataclass(frozen=True, slots=True)
class Order:
    """By the column of this name, or as the view has it."""

    column: str | None = None
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Navigation:
    """``part_of`` is the key of the row whose parts are shown; None for the view itself."""

    view: str = ALL
    part_of: str | None = None
    orders: Mapping[str, Order] = field(default_factory=dict)
    """By the names of views; those of parts have their own, as ``topics/``."""
    filters: Mapping[str, str] = field(default_factory=dict)
    is_paused: bool = False

    @property
    def place(self) -> str:
        """The key of what is shown in ``orders`` and ``filters``."""
        return self.view if self.part_of is None else f"{self.view}/"

    @property
    def order(self) -> Order:
        return self.orders.get(self.place, Order())

    @property
    def filter(self) -> str:
        return self.filters.get(self.place, "")

    @property
    def title(self) -> str:
        title = "All" if self.view == ALL else VIEWS[self.view].title
        return title if self.part_of is None else f"{title}: {self.part_of}"

    def with_filter(self, text: str) -> "Navigation":
        return replace(self, filters={**self.filters, self.place: text})

    def with_pause(self, is_paused: bool) -> "Navigation":
        return replace(self, is_paused=is_paused)


def current_table(navigation: Navigation, seen: Seen) -> ViewTable:
    """What a view shows now: filtered, and in the chosen order."""
    view = VIEWS[navigation.view]
    is_whole = navigation.part_of is None or view.parts is None
    table = view.table(seen) if is_whole or view.parts is None else view.parts(seen, navigation.part_of or "")
    order = navigation.order
    names = [column.name for column in table.columns]
    column = names.index(order.column) if order.column in names else None
    return ordered(filtered(table, navigation.filter), column, descending=order.descending)


def next_view(navigation: Navigation, step: int) -> Navigation:
    """The view after this one, or before it; the first one after the last."""
    return navigated(navigation, PLACES[(PLACES.index(navigation.view) + step) % len(PLACES)])


def navigated(navigation: Navigation, view: str) -> Navigation:
    """To another view."""
    return replace(navigation, view=view, part_of=None)


def drilled(navigation: Navigation, view: str, key: str) -> Navigation:
    """Into the parts of a row of a view; to the view, where its rows have none."""
    if navigation.part_of is not None:
        return navigation
    return replace(navigation, view=view, part_of=key if VIEWS[view].parts is not None else None)


def raised(navigation: Navigation) -> Navigation:
    """One step back: without the filter, then out of the parts."""
    if navigation.filter:
        return navigation.with_filter("")
    return replace(navigation, part_of=None)


def sorted_by(navigation: Navigation, columns: Sequence[Column], *, step: int = 0, turn: bool = False) -> Navigation:
    """Ordered by the next column, or the one before, by ``step``; ``turn`` reverses the order.

    Before the first column and after the last stands the view's own order. Numbers begin with the
    greatest, texts with the first."""
    order = navigation.order
    if turn:
        changed = replace(order, descending=not order.descending)
    else:
        names = [column.name for column in columns]
        place = (names.index(order.column) if order.column in names else -1) + step
        place = (place + 1) % (len(names) + 1) - 1
        changed = Order() if place < 0 else Order(names[place], columns[place].is_number)
    return replace(navigation, orders={**navigation.orders, navigation.place: changed})
